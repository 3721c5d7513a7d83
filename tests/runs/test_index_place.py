"""An index lies on a local disk, where nobody else can write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.runs.index_place import place_of


class Machine:
    """A machine whose mounts are told here, by folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mounts: dict[str, str] = {"/": "ext4"}
        self.root = root
        monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(root / "runtime"))
        read = Path.read_text

        def read_text(path: Path, *given: Any, **options: Any) -> str:
            if str(path) == "/proc/mounts":
                lines = (f"dev {at} {kind} rw 0 0" for at, kind in self.mounts.items())
                return "\n".join(lines)
            return read(path, *given, **options)

        monkeypatch.setattr(Path, "read_text", read_text)

    def mount(self, name: str, kind: str) -> Path:
        self.mounts[str(self.root / name)] = kind
        return self.root / name


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path.resolve(), monkeypatch)


def test_on_a_local_disk_the_index_lies_beside_the_runs(machine: Machine) -> None:
    runs = machine.root / "runs"
    assert place_of(runs) == runs / ".sparring" / "index.sqlite"


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs"])
def test_on_a_network_it_lies_in_a_folder_of_this_user_alone(machine: Machine, kind: str) -> None:
    runs = machine.mount("shared", kind) / "team" / "runs"
    place = place_of(runs)
    assert place.is_relative_to(machine.root / "cache")
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert place == place_of(runs)
    assert place != place_of(runs.parent / "other")


def test_the_innermost_mount_counts(machine: Machine) -> None:
    machine.mount("shared", "nfs")
    inside = machine.mount("shared/scratch", "xfs") / "runs"
    assert place_of(inside) == inside / ".sparring" / "index.sqlite"
    beside = machine.root / "shared-not" / "runs"  # its name begins alike
    assert place_of(beside) == beside / ".sparring" / "index.sqlite"


def test_a_home_on_the_network_is_passed_over(machine: Machine) -> None:
    machine.mount("cache", "nfs")
    place = place_of(machine.mount("shared", "nfs") / "runs")
    assert place.is_relative_to(machine.root / "runtime")


def test_a_folder_that_others_can_open_is_refused(machine: Machine) -> None:
    runs = machine.mount("shared", "nfs") / "runs"
    folder = place_of(runs).parent
    folder.chmod(0o755)
    with pytest.raises(InvalidInput, match="open to other users; remove it, or set XDG_CACHE_HOME"):
        place_of(runs)


def test_a_link_in_its_place_is_refused(machine: Machine) -> None:
    runs = machine.mount("shared", "nfs") / "runs"
    folder = place_of(runs).parent
    folder.rename(machine.root / "elsewhere")
    folder.symlink_to(machine.root / "elsewhere")
    with pytest.raises(InvalidInput, match="open to other users"):
        place_of(runs)


def test_runs_that_may_not_be_written_have_their_index_elsewhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = machine.root / "runs"
    runs.mkdir()
    monkeypatch.setattr("os.access", lambda *_: False)
    assert machine.root / "cache" in place_of(runs).parents
    monkeypatch.undo()
    assert place_of(runs) == runs / ".sparring" / "index.sqlite"
