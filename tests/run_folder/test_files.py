from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from sparring.run_folder.files import (
    append_line,
    dump_line,
    file_lock,
    read_from,
    read_json,
    read_json_or_empty,
    read_lines,
    read_tail,
    wait_for_lock,
    write_json,
    write_text,
)


def is_free(lock: Path) -> bool:
    """Whether another descriptor gets the lock at once."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def test_a_lock_is_held_while_the_body_runs_and_free_after_it(tmp_path: Path) -> None:
    lock = tmp_path / "new" / "folder" / "a.lock"
    with file_lock(lock, 1.0):
        assert not is_free(lock)
    assert is_free(lock)


def test_a_body_that_raises_gives_the_lock_back(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    with pytest.raises(KeyError), file_lock(lock, 1.0):
        raise KeyError
    assert is_free(lock)


def test_after_the_deadline_the_body_runs_without_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    ran: list[float] = []
    with file_lock(lock, 1.0):
        started = time.monotonic()
        with file_lock(lock, 0.05):
            ran.append(time.monotonic() - started)
        assert not is_free(lock)  # the first holder still has it
    assert ran[0] >= 0.05


def test_a_lock_that_is_given_back_is_taken_before_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder closes its descriptor while the other one waits."""
    lock = tmp_path / "a.lock"
    holder, waiter = (os.open(lock, os.O_RDWR | os.O_CREAT) for _ in range(2))
    fcntl.flock(holder, fcntl.LOCK_EX)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        os.close(holder)

    monkeypatch.setattr(time, "sleep", nap)
    wait_for_lock(waiter, 60.0)
    assert len(naps) == 1
    assert not is_free(lock)
    os.close(waiter)


def test_a_torn_line_is_passed_over_and_the_next_one_starts_afresh(tmp_path):
    path = tmp_path / "events.jsonl"
    append_line(path, {"n": 1})
    with path.open("ab") as file:
        file.write(b'{"n": 2, "torn')
    append_line(path, {"n": 3})
    assert [row["n"] for row in read_lines(path)] == [1, 3]


def test_replacing_a_file_leaves_nothing_else_behind(tmp_path):
    path = tmp_path / "summary.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert list(tmp_path.iterdir()) == [path]


def test_the_folder_of_a_new_file_is_made(tmp_path):
    path = tmp_path / "reports" / "report.md"
    write_text(path, "# Run \ud800")
    assert path.read_text() == "# Run ?", "a lone surrogate cannot be written"


def test_a_line_with_a_lone_surrogate_is_read_back_unchanged(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(dump_line({"answer": "\ud800"}))
    assert list(read_lines(path)) == [{"answer": "\ud800"}]


def test_an_unfinished_last_line_is_read_by_the_call_after_it_is_finished(tmp_path):
    path = tmp_path / "events.jsonl"
    append_line(path, {"n": 1}, durable=True)
    with path.open("ab") as file:
        file.write(b'{"n": 2')
    first = read_from(path, 0)
    with path.open("ab") as file:
        file.write(b"}\n")
    second = read_from(path, first.cursor)
    assert (first.values, second.values) == ([{"n": 1}], [{"n": 2}])
    assert second.cursor == path.stat().st_size


def test_lines_that_are_no_objects_are_skipped_and_counted_as_read(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'[1]\nnot json\n{"n": 1}\n' + b"[" * 100_000 + b"\n")
    assert read_from(path, 0).values == [{"n": 1}] == list(read_lines(path))
    assert read_from(path, 0).cursor == path.stat().st_size


def test_a_missing_file_has_no_lines(tmp_path):
    path = tmp_path / "missing"
    assert list(read_lines(path)) == []
    assert (read_from(path, 7).values, read_from(path, 7).cursor) == ([], 7)
    assert read_tail(path, 10) == ""
    assert read_json_or_empty(path) == {}


def test_the_tail_of_a_log_begins_anywhere_even_inside_a_character(tmp_path):
    path = tmp_path / "rank-0.log"
    path.write_text("first\nlast ü")
    assert read_tail(path, 1000) == "first\nlast ü"
    assert read_tail(path, 1) == "\ufffd"


def test_json_that_is_no_object_is_refused_with_its_path(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text("[]")
    with pytest.raises(ValueError, match=r"summary\.json does not hold a JSON object"):
        read_json(path)
    assert read_json_or_empty(path) == {}
