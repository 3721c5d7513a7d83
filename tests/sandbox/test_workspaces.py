"""Workspaces are private, bounded and removed, whatever a program did to them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparring.contracts.errors import InfrastructureError, SparringError
from sparring.sandbox import SandboxLimits, workspaces
from sparring.sandbox.command import MIB
from sparring.sandbox.processes import ticks_at_start
from sparring.sandbox.workspaces import DiskUse, disk_use, new_workspace, remove

LIMITS = SandboxLimits(disk_bytes=MIB, files=5)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of all workspaces, for this module alone."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(folder))
        patched.setattr(workspaces, "_process_folders", {})
        base = folder / f"sparring-sandboxes-{os.geteuid()}"
        (base / "999999999-5" / "0").mkdir(parents=True)
        yield base
        workspaces.remove_all()


def deep(root: Path, depth: int) -> None:
    """Folders in each other, by names that no path could hold."""
    current = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 100, dir_fd=current)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)


def test_disk_use_counts_all_files_and_follows_no_link(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(bytes(MIB))
    (root / "folder" / "x").write_bytes(b"x" * 100_000)
    (root / "link").symlink_to(tmp_path)
    use = disk_use(root, 100)
    assert (use.files, use.is_opaque) == (3, False)
    assert 100_000 <= use.size < MIB


@pytest.mark.parametrize("most", [0, 3, 7])
def test_counting_stops_just_after_the_most_files(tmp_path: Path, most: int) -> None:
    for number in range(12):
        (tmp_path / f"{number % 3}").mkdir(exist_ok=True)
        (tmp_path / f"{number % 3}" / str(number)).touch()
    assert disk_use(tmp_path, most).files == most + 1


def test_a_missing_folder_has_no_use_and_a_file_is_opaque(tmp_path: Path) -> None:
    assert disk_use(tmp_path / "missing", 10) == DiskUse()
    (tmp_path / "file").touch()
    assert disk_use(tmp_path / "file", 10).is_opaque


def test_folders_too_deep_to_walk_are_opaque_and_removed_all_the_same(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    deep(root, 80)
    assert disk_use(root, 1000).is_opaque
    remove(root)
    assert not root.exists()


def test_folders_without_permissions_are_removed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a").chmod(0)
    remove(root)
    assert not root.exists()
    remove(root)


def test_an_unbounded_workspace_is_full_by_its_bytes_or_its_files(base: Path) -> None:
    workspace = new_workspace(1, None, LIMITS, is_bounded=False)
    assert workspace.root == workspace.folder
    assert not workspace.is_full(LIMITS, MIB)
    assert workspace.is_full(LIMITS, MIB + 1)
    (workspace.root / "x").write_bytes(b"x" * 500_000)
    assert not workspace.is_full(LIMITS)
    assert workspace.is_full(LIMITS, 600_000)
    for number in range(5):
        (workspace.root / str(number)).touch()
    assert workspace.is_full(LIMITS)
    workspace.remove()
    assert not workspace.folder.exists()


def test_a_workspace_is_in_a_folder_that_no_other_user_can_reach(base: Path) -> None:
    workspace = new_workspace(2, None, LIMITS, is_bounded=False)
    own = base / f"{os.getpid()}-{ticks_at_start(os.getpid())}-{workspaces._host()}"
    assert workspace.folder == own / "2"
    assert {folder.stat().st_mode & 0o777 for folder in (base, own, own / "2")} == {0o700}
    workspace.remove()


def test_a_bounded_workspace_is_full_when_the_kernel_says_so(base: Path) -> None:
    if not workspaces.workspaces_are_bounded():
        pytest.skip("this machine has no mount namespaces")
    workspace = new_workspace(3, None, LIMITS)
    assert workspace.is_bounded
    assert not workspace.is_full(LIMITS, MIB)
    assert workspace.is_full(LIMITS, MIB + 1)
    with pytest.raises(OSError, match="No space left"):
        (workspace.root / "x").write_bytes(bytes(2 * MIB))
    assert workspace.is_full(LIMITS, 4096)
    workspace.remove()
    assert not workspace.folder.exists()
    with pytest.raises(InfrastructureError, match="the workspace is gone"):
        workspace.is_full(LIMITS)


def test_a_workspace_is_removed_only_by_the_process_that_made_it(base: Path) -> None:
    workspace = new_workspace(4, None, LIMITS, is_bounded=False)
    replace(workspace, made_by=os.getpid() + 1).remove()
    assert workspace.folder.exists()
    workspace.remove()
    assert not workspace.folder.exists()


def test_a_number_is_given_once(base: Path) -> None:
    workspace = new_workspace(5, None, LIMITS, is_bounded=False)
    with pytest.raises(FileExistsError):
        new_workspace(5, None, LIMITS, is_bounded=False)
    workspace.remove()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_workspace_belongs_to_the_user_of_its_sandbox(base: Path) -> None:
    for number, is_bounded in ((6, False), (7, True)):
        workspace = new_workspace(number, 12345, LIMITS, is_bounded=is_bounded)
        assert workspace.root.stat().st_uid == 12345
        workspace.remove()


def test_the_empty_folder_is_empty_and_made_once(base: Path) -> None:
    folder = workspaces.empty_folder()
    assert workspaces.empty_folder() == folder
    assert list(folder.iterdir()) == []


def test_folders_of_dead_processes_are_removed_and_those_of_living_ones_are_not(
    base: Path,
) -> None:
    workspaces.empty_folder()
    assert not (base / "999999999-5").exists()
    with subprocess.Popen(["sleep", "60"]) as other:
        own = workspaces._host()
        living = base / f"{other.pid}-{ticks_at_start(other.pid)}-{own}"
        reused, elsewhere = base / f"{other.pid}-1-{own}", base / f"{other.pid}-1-another"
        for folder in (living, reused, elsewhere):
            folder.mkdir()
        workspaces._remove_leftovers(base)
        assert living.exists()
        assert elsewhere.exists()
        assert not reused.exists()
        os.utime(elsewhere, (0, 0))
        workspaces._remove_leftovers(base)
        assert not elsewhere.exists()
        other.kill()


def test_all_workspaces_are_removed_at_exit(base: Path) -> None:
    own = new_workspace(8, None, LIMITS, is_bounded=False).folder.parent
    workspaces.remove_all()
    assert not own.exists()
    workspaces.remove_all()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_base_folder_that_somebody_else_put_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(workspaces, "_process_folders", {})
    place = tmp_path / f"sparring-sandboxes-{os.geteuid()}"
    if kind == "file":
        place.touch()
    else:
        place.symlink_to(tmp_path)
    with pytest.raises(SparringError, match="not a folder owned by this user; remove it, or set"):
        workspaces.empty_folder()
