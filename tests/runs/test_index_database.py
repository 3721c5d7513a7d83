"""Where the index lies, what a row holds, and how its file heals."""

from __future__ import annotations

import contextlib
import multiprocessing
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.runs.index import Index, Query
from sparring.runs.index_database import Database, Row, marks_in, place_of, read_row, rows_of
from sparring.runs.lifecycle import RunState
from tests.runs.index_writers import make, write_from_here


class Machine:
    """A machine whose mounts are given here, by folder."""

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


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "fuse.juicefs"])
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


def stored(row: Row, place: Path) -> Row:
    """The row as a database returns it."""
    database = Database(place / "index.sqlite")
    database.store([row], set(), {}, {})
    with database.reading() as connection:
        (read,) = rows_of(connection, "WHERE id = ?", [row.id])
    return read


def test_a_row_survives_being_stored(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a-1")
    folder.create({"format": 1, "kind": "train", "policy": {"model": "tiny"}, "target": "x.py:X"})
    append_state(folder, RunState.QUEUED, author="test")
    row = read_row(folder)
    assert row is not None
    assert (row.kind, row.environment, row.model, row.launcher) == ("train", "x", "tiny", "local")
    assert stored(row, tmp_path) == row


def test_a_known_row_reads_only_what_is_new(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a-1")
    folder.create({"format": 1, "kind": "train"})
    append_state(folder, RunState.QUEUED, author="test")
    first = read_row(folder)
    append_state(folder, RunState.STOPPED, author="test")
    folder.spec.unlink()  # a known row does not read it again
    later = read_row(folder, first)
    assert later is not None
    assert later.state is RunState.STOPPED


def test_the_model_is_the_one_in_the_spec_or_else_the_one_that_the_run_opened(
    tmp_path: Path,
) -> None:
    for model, shown in (("tiny", "tiny"), (None, "smollm2")):
        folder = RunFolder(tmp_path / shown)
        folder.create({"format": 1, "kind": "train", "policy": {"model": model}})
        append_state(folder, RunState.QUEUED, author="test")
        first = read_row(folder)
        append_event(folder, "inputs", author="worker", model="smollm2", suite="digest")
        append_event(folder, "inputs", author="worker", suite="digest")
        later = read_row(folder, first)
        assert later is not None
        assert later.model == shown
        assert stored(later, tmp_path) == later


def test_a_folder_that_is_no_run_has_no_row(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text("[]")
    assert read_row(RunFolder(tmp_path)) is None


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\U0010ffff"])
def test_any_text_of_a_spec_can_be_indexed(tmp_path: Path, text: str) -> None:
    make(tmp_path / "runs", "a-1", environment=text)
    index = Index(tmp_path / "runs")
    (row,) = index.page(Query())
    assert index.page(Query(environment=row.environment)) == [row]
    assert index.page(Query(environment=text)) == [row]
    assert index.named(f"a{text}") == []


def test_the_index_of_a_folder_with_a_question_mark_is_in_that_folder(tmp_path: Path) -> None:
    place = tmp_path / "what?" / "index.sqlite"
    Database(place)
    assert place.is_file()
    assert [each.name for each in tmp_path.iterdir()] == ["what?"]


def test_fifty_writers_of_two_processes_lose_nothing(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    spawn = multiprocessing.get_context("spawn")
    halves = [list(range(25)), list(range(25, 50))]
    writers = [spawn.Process(target=write_from_here, args=(runs, half, 2)) for half in halves]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    index = Index(runs)
    index.refresh()
    rows = list(index.all())
    assert len(rows) == 100
    assert {row.state for row in rows} == {RunState.FAILED}


def test_what_was_read_before_the_tables_were_emptied_is_read_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "index.sqlite")
    database.store([], set(), {"journal": 7}, {})
    with database.writing() as connection:
        connection.execute("DELETE FROM marks")
    database.store([], set(), {"journal": 9}, {"journal": 7})
    with database.reading() as connection:
        assert marks_in(connection) == {}


def damage(place: Path, kind: str) -> None:
    if kind == "deleted":
        place.unlink(missing_ok=True)
    elif kind == "overwritten":
        place.write_bytes(b"no database" * 1000)
    else:
        connection = sqlite3.connect(place, timeout=30)
        with contextlib.suppress(sqlite3.DatabaseError):
            connection.execute("DROP TABLE IF EXISTS runs")
        connection.close()


@pytest.mark.parametrize("kind", ["deleted", "overwritten", "without its table"])
def test_readers_heal_a_file_that_is_damaged_while_they_read(tmp_path: Path, kind: str) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for number in range(5):
        make(runs, f"a-{number}")
    index = Index(runs)
    assert len(index.page(Query())) == 5
    for _ in range(3):
        damage(place_of(runs), kind)
        with ThreadPoolExecutor(8) as readers:
            pages = list(readers.map(lambda _: Index(runs).page(Query()), range(8)))
        assert [len(page) for page in pages] == [5] * 8
        assert len(index.page(Query())) == 5  # also by an index that was open all the time
