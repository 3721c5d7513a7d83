"""The index holds what the folders hold, whoever wrote and in whichever order it was read."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.runs.index import Index, Query
from sparring.runs.index_database import place_of
from sparring.runs.lifecycle import RunState


def make(runs: Path, name: str, *states: RunState, environment: str = "bell") -> RunFolder:
    folder = RunFolder(runs / name)
    folder.create({"format": 1, "kind": "train", "environment": environment})
    for state in states or (RunState.QUEUED,):
        append_state(folder, state, author="test")
    return folder


def fresh(runs: Path, tmp_path: Path) -> list[object]:
    """What an index that knows nothing makes of the folders."""
    index = Index(runs, tmp_path / "fresh" / os.urandom(4).hex() / "index.sqlite")
    index.reindex()
    return list(index.all())


@pytest.fixture
def runs(tmp_path):
    place = tmp_path / "runs"
    place.mkdir()
    return place


def test_the_index_finds_changes_that_the_journal_does_not_name(runs, tmp_path):
    index = Index(runs)
    folder = make(runs, "a-1")
    assert [row.id for row in index.page(Query())] == ["a-1"]
    append_event(folder, "state", author="test", state="starting")  # not even the journal knows
    assert index.page(Query())[0].state is RunState.STARTING
    assert list(index.all()) == fresh(runs, tmp_path)


def test_folders_that_come_and_go_by_hand_are_noticed(runs, tmp_path):
    index = Index(runs)
    make(runs, "a-1", RunState.QUEUED, RunState.STOPPED)
    assert len(index.page(Query())) == 1
    shutil.copytree(runs / "a-1", runs / "b-1")
    assert {row.id for row in index.page(Query())} == {"a-1", "b-1"}
    shutil.rmtree(runs / "a-1")
    assert [row.id for row in index.page(Query())] == ["b-1"]
    assert list(index.all()) == fresh(runs, tmp_path)


def test_a_run_that_had_ended_is_seen_to_begin_again(runs):
    index = Index(runs)
    folder = make(runs, "a-1", RunState.QUEUED, RunState.STOPPED)
    assert index.page(Query())[0].state is RunState.STOPPED
    append_state(folder, RunState.QUEUED, author="somebody, on another host")
    assert index.page(Query())[0].state is RunState.QUEUED


def test_pages_follow_one_another_and_filters_hold(runs):
    for number in range(7):
        made = [RunState.QUEUED, RunState.STOPPED] if number % 2 else [RunState.QUEUED]
        make(runs, f"r-{number}", *made, environment="odd" if number % 2 else "even")
    index = Index(runs)
    first = index.page(Query(count=3))
    second = index.page(Query(count=9, after=first[-1].id))
    assert [row.id for row in [*first, *second]] == [f"r-{number}" for number in range(6, -1, -1)]
    stopped = index.page(Query(states=(RunState.STOPPED,)))
    assert {row.id for row in stopped} == {"r-1", "r-3", "r-5"}
    assert {row.id for row in index.page(Query(environment="odd"))} == {"r-1", "r-3", "r-5"}


@pytest.mark.parametrize("damage", ["nonsense", "another version", "gone"])
def test_a_damaged_index_is_built_anew(runs, damage):
    make(runs, "a-1")
    assert len(Index(runs).page(Query())) == 1
    place = place_of(runs)
    for end in ("-wal", "-shm"):
        Path(f"{place}{end}").unlink(missing_ok=True)
    if damage == "nonsense":
        place.write_bytes(b"this is no database, and it is long enough to show it" * 100)
    elif damage == "another version":
        import sqlite3

        with sqlite3.connect(place) as database:
            database.execute("PRAGMA user_version = 99")
        database.close()
    else:
        place.unlink()
    (runs / ".sparring" / "journal.jsonl").unlink()
    assert [row.id for row in Index(runs).page(Query())] == ["a-1"]


def test_an_index_that_is_deleted_while_it_is_open_is_built_anew(runs):
    make(runs, "a-1")
    index = Index(runs)
    assert len(index.page(Query())) == 1
    for end in ("", "-wal", "-shm"):
        Path(f"{place_of(runs)}{end}").unlink(missing_ok=True)
    assert [row.id for row in index.page(Query())] == ["a-1"]


def test_reindexing_believes_a_folder_that_was_restored_to_an_earlier_state(runs):
    index, folder = Index(runs), make(runs, "a-1")
    queued = folder.events.read_bytes()
    append_state(folder, RunState.STOPPED, author="test")
    assert index.page(Query())[0].state is RunState.STOPPED
    folder.events.write_bytes(queued)
    assert index.reindex() == 1
    assert next(iter(index.all())).state is RunState.QUEUED


def test_a_folder_that_is_no_run_does_no_harm(runs):
    (runs / "notes").mkdir()
    (runs / "broken").mkdir()
    (runs / "broken" / "spec.json").write_text("{")
    (runs / "file").write_text("")
    make(runs, "a-1")
    assert [row.id for row in Index(runs).page(Query())] == ["a-1"]


def _write_many(runs: Path, writer: int, count: int) -> None:
    for number in range(count):
        folder = make(runs, f"w{writer}-{number}")
        append_state(folder, RunState.STARTING, author="test", epoch=1)
        if number % 3 == 0:
            Index(runs).page(Query(count=5))
        append_state(folder, RunState.FAILED, author="test", epoch=1)


def test_many_writers_and_readers_lose_nothing(runs, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_many, args=(runs, n, 12)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    index = Index(runs)
    index.refresh()
    rows = list(index.all())
    assert len(rows) == 48
    assert {row.state for row in rows} == {RunState.FAILED}
    assert rows == fresh(runs, tmp_path)


@pytest.mark.parametrize("shape", ["folder", "full folder", "nothing", "garbage", "pipe"])
def test_an_index_of_any_shape_heals(runs, tmp_path, shape):
    make(runs, "one")
    place = tmp_path / "index" / "index.sqlite"
    place.parent.mkdir()
    if shape == "nothing":
        place.touch()
    elif shape == "garbage":
        place.write_bytes(os.urandom(9000))
    elif shape == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
        if shape == "full folder":
            (place / "inside").mkdir()
            (place / "inside" / "file").write_text("x")
    assert [row.id for row in Index(runs, place).page(Query())] == ["one"]


READ_WITHOUT_SPACE = """
import resource, sys
from pathlib import Path
from sparring.runs.index import Index, Query

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file can grow, as on a full disk
index = Index(Path(sys.argv[1]))
print([row.id for row in index.page(Query())], [row.id for row in index.named("a-2")])
"""


@pytest.mark.parametrize("is_there", [True, False])
def test_where_the_index_cannot_be_written_runs_are_read_from_their_folders(runs, is_there):
    make(runs, "a-1")
    if is_there:
        assert len(Index(runs).page(Query())) == 1
    make(runs, "a-2")
    command = [sys.executable, "-c", READ_WITHOUT_SPACE, str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "['a-2', 'a-1'] ['a-2']\n"
    assert "the index of runs cannot be written" in done.stderr
    assert len(Index(runs).page(Query())) == 2  # there is space again


def test_a_file_that_may_not_be_opened_is_replaced_by_memory(runs, tmp_path, caplog):
    make(runs, "a-1")
    place = tmp_path / "file" / "index.sqlite"
    place.parent.write_text("")  # no folder can be made here
    assert [row.id for row in Index(runs, place).page(Query())] == ["a-1"]
    assert "the index of runs cannot be written" in caplog.text


def test_a_run_that_was_deleted_and_made_again_is_the_new_one(runs):
    make(runs, "same", RunState.STARTING, RunState.RUNNING, RunState.COMPLETED)
    assert Index(runs).page(Query())[0].state is RunState.COMPLETED
    shutil.rmtree(runs / "same")
    make(runs, "same", RunState.STARTING)
    (row,) = Index(runs).page(Query())
    assert row.state is RunState.STARTING
    assert [each.id for each in Index(runs).active()] == ["same"]
