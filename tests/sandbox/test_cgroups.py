"""A control group bounds the memory of a whole sandbox, where this machine allows one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparring.contracts.errors import InfrastructureError
from sparring.sandbox import SandboxLimits, cgroups
from sparring.sandbox.cgroups import ControlGroup, describe_limits, make, sweep
from sparring.sandbox.processes import ticks_at_start

LIMITS = SandboxLimits(memory_bytes=123_456_789)


def place_at(folder: Path | None, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let groups be created in a plain folder, as if it were a control group's."""
    place = None if folder is None else cgroups._Place(folder, version)
    monkeypatch.setattr(cgroups, "_place", lambda: place)


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (2, {"memory.max": "123456789", "memory.swap.max": "0", "memory.oom.group": "1"}),
        (1, {"memory.limit_in_bytes": "123456789", "memory.memsw.limit_in_bytes": "123456789"}),
    ],
)
def test_a_group_bounds_memory_and_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, files: dict[str, str]
) -> None:
    place_at(tmp_path, version, monkeypatch)
    monkeypatch.setattr(cgroups, "_counts_swap", lambda: True)
    group = make(LIMITS)
    assert group is not None
    assert {file.name: file.read_text() for file in group.folder.iterdir()} == files
    assert describe_limits() == f"cgroups version {version}"


def test_every_group_has_a_folder_of_its_own_named_after_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_at(tmp_path, 2, monkeypatch)
    made = [make(LIMITS) for _ in range(3)]
    names = {group.folder.name for group in made if group is not None}
    assert len(names) == 3
    own = f"sparring-{os.getpid()}-{ticks_at_start(os.getpid())}-"
    assert all(name.startswith(own) for name in names)


def test_where_groups_are_not_allowed_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    place_at(None, 2, monkeypatch)
    assert make(LIMITS) is None
    assert describe_limits() == ""
    sweep()


def test_a_group_that_cannot_be_created_names_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_at(tmp_path / "gone", 2, monkeypatch)
    with pytest.raises(InfrastructureError, match=f"cannot create a control group in {tmp_path}"):
        make(LIMITS)


@pytest.mark.parametrize(("version", "name"), [(2, "memory.events"), (1, "memory.oom_control")])
def test_a_kill_for_lack_of_memory_is_found(tmp_path: Path, version: int, name: str) -> None:
    group = ControlGroup(tmp_path, version)
    assert not group.has_run_out_of_memory()
    (tmp_path / name).write_text("low 0\noom 1\noom_kill 0\n")
    assert not group.has_run_out_of_memory()
    (tmp_path / name).write_text("low 0\noom 1\noom_kill 2\n")
    assert group.has_run_out_of_memory()
    (tmp_path / name).write_text("not two words\n")
    assert not group.has_run_out_of_memory()


def test_in_version_2_a_process_is_moved_and_the_thread_is_not(tmp_path: Path) -> None:
    group = ControlGroup(tmp_path, 2)
    with group.spawning():
        group.take(4321)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"cgroup.procs": "4321"}


def test_in_version_1_the_thread_goes_into_the_group_and_comes_back_even_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, inside = tmp_path / "home", tmp_path / "inside"
    home.mkdir()
    inside.mkdir()
    monkeypatch.setattr(cgroups, "_home", lambda: home)
    group = ControlGroup(inside, 1)

    def spawn() -> None:
        with group.spawning():
            group.take(4321)
            assert (inside / "tasks").read_text() == "0"
            assert not (home / "tasks").exists()
            raise KeyError("broken")

    with pytest.raises(KeyError):
        spawn()
    assert (home / "tasks").read_text() == "0"
    assert not (inside / "cgroup.procs").exists()


def test_a_group_is_removed_once_it_is_empty_and_given_up_otherwise(tmp_path: Path) -> None:
    folder = tmp_path / "group"
    folder.mkdir()
    (folder / "occupied").touch()
    ControlGroup(folder, 2).remove(0.01)
    assert folder.exists()
    (folder / "occupied").unlink()
    ControlGroup(folder, 2).remove()
    assert not folder.exists()
    ControlGroup(folder, 2).remove()


def test_only_groups_of_dead_processes_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_at(tmp_path, 2, monkeypatch)
    own = f"sparring-{os.getpid()}-{ticks_at_start(os.getpid())}-0"
    reused = f"sparring-{os.getpid()}-1-0"
    for name in (own, reused, "sparring-999999999-5-0", "sparring-x-y-z", "system.slice"):
        (tmp_path / name).mkdir()
    sweep()
    assert {folder.name for folder in tmp_path.iterdir()} == {own, "sparring-x-y-z", "system.slice"}


@pytest.mark.skipif(not describe_limits(), reason="no control groups can be created here")
def test_a_real_group_has_its_limit_and_can_be_removed() -> None:
    group = make(SandboxLimits(memory_bytes=64 * 1024 * 1024))
    assert group is not None
    name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
    limit = (group.folder / name).read_text().strip()
    has_run_out = group.has_run_out_of_memory()
    group.remove()
    assert (limit, has_run_out) == (str(64 * 1024 * 1024), False)
    assert not group.folder.exists()
