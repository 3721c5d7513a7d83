"""The record that shows when somebody has been at it."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparring.contracts.errors import ActivityLogBusy, OverBudget
from sparring.operations import activity_log as module
from sparring.operations.activity_log import START, ActivityLog

SPAWN = multiprocessing.get_context("spawn")


def written(folder: Path, count: int) -> ActivityLog:
    chain = ActivityLog(folder)
    for number in range(count):
        chain.append({"who": "coach", "verb": f"verb {number}"})
    return chain


def rewrite(chain: ActivityLog, change) -> None:
    lines = chain.path.read_bytes().splitlines(keepends=True)
    chain.path.write_bytes(b"".join(change(lines)))


def test_entries_follow_one_another_and_are_read_from_the_end(tmp_path):
    chain = written(tmp_path, 5)
    assert [each["number"] for each in chain.backwards()] == [5, 4, 3, 2, 1]
    first = json.loads(chain.path.read_text().splitlines()[0])
    assert first["before"] == START
    assert chain.verify().faults == ()
    assert chain.verify().entries == 5


def test_an_empty_record_is_whole(tmp_path):
    checked = ActivityLog(tmp_path).verify()
    assert (checked.entries, checked.faults) == (0, ())


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("an edit", lambda lines: [line.replace(b"verb 2", b"verb 9") for line in lines]),
        ("a gap", lambda lines: lines[:2] + lines[3:]),
        ("another order", lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]]),
        ("a cut end", lambda lines: lines[:-1]),
        ("a cut beginning", lambda lines: lines[1:]),
        ("nothing left", lambda lines: []),
        ("one twice", lambda lines: [*lines, lines[-1]]),
        ("words in between", lambda lines: [*lines[:2], b"hello\n", *lines[2:]]),
        ("no digest", lambda lines: [*lines[:-1], b'{"number": 6, "who": "nobody"}\n']),
    ],
)
def test_every_edit_of_the_chain_is_a_fault(tmp_path, what, change):
    chain = written(tmp_path, 6)
    rewrite(chain, change)
    assert chain.verify().faults, what


def test_a_second_value_under_one_name_shows(tmp_path):
    chain = written(tmp_path, 3)
    rewrite(
        chain, lambda lines: [lines[0].replace(b"{", b'{"who":"somebody else",', 1), *lines[1:]]
    )
    assert "was changed" in chain.verify().faults[0].message


@pytest.mark.parametrize("what", ["removed", "emptied"])
def test_an_end_cut_together_with_the_note_of_it_shows(tmp_path, what):
    chain = written(tmp_path, 6)
    rewrite(chain, lambda lines: lines[:-2])
    note = chain.path.with_suffix(".head.json")
    note.unlink() if what == "removed" else note.write_text("{}")
    assert "head file" in chain.verify().faults[0].message


def test_an_added_line_without_an_end_makes_the_chain_torn(tmp_path):
    chain = written(tmp_path, 2)
    with chain.path.open("ab") as file:
        file.write(b"and then")
    assert chain.verify().is_torn


@given(st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changed_byte_shows(tmp_path_factory, data):
    chain = written(tmp_path_factory.mktemp("chain"), 3)
    whole = bytearray(chain.path.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda each: each != whole[place]))
    whole[place] = byte
    chain.path.write_bytes(bytes(whole))
    assert chain.verify().faults


def test_a_line_that_a_killed_process_left_half_written_is_no_fault(tmp_path):
    chain = written(tmp_path, 3)
    with chain.path.open("ab") as file:
        file.write(b'{"format":1,"number":4,"who":"co')
    assert chain.verify().faults == ()
    chain.append({"who": "coach", "verb": "after"})
    assert [each["number"] for each in chain.backwards()] == [4, 3, 2, 1]
    assert chain.verify().faults == ()


def test_an_end_that_was_written_after_the_note_of_it_is_whole(tmp_path):
    """Killed between the entry and the note of the last one."""
    chain = written(tmp_path, 3)
    note = chain.path.with_suffix(".head.json")
    before = note.read_bytes()
    chain.append({"who": "coach", "verb": "last"})
    note.write_bytes(before)
    assert chain.verify().faults == ()


def test_a_check_before_an_entry_sees_the_chain_under_its_lock(tmp_path):
    chain = written(tmp_path, 2)

    def never(found: ActivityLog) -> None:
        raise OverBudget(f"{len(list(found.backwards()))} are enough")

    with pytest.raises(OverBudget, match="2 are enough"):
        chain.append({"who": "coach"}, never)
    assert chain.verify().entries == 2


def test_a_chain_whose_lock_is_held_for_too_long_is_busy(tmp_path, monkeypatch):
    chain = written(tmp_path, 1)
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.1)
    with chain._locked(), pytest.raises(ActivityLogBusy, match="without being logged"):
        ActivityLog(tmp_path).append({"who": "late"})


def _append_many(runs: str, count: int) -> None:
    chain = ActivityLog(Path(runs))
    for number in range(count):
        chain.append({"who": f"{os.getpid()}", "verb": f"{number}", "padding": "x" * 300})


@pytest.mark.timeout(120)
def test_a_chain_stays_whole_while_its_writers_are_killed(tmp_path):
    path = ActivityLog(tmp_path).path
    chance = random.Random(8)
    there = 0
    for _ in range(6):
        writers = [
            SPAWN.Process(target=_append_many, args=(str(tmp_path), 10_000)) for _ in range(2)
        ]
        for each in writers:
            each.start()
        while not path.exists() or path.stat().st_size <= there:
            time.sleep(0.005)
        time.sleep(chance.uniform(0.02, 0.3))
        for each in writers:
            os.kill(each.pid, signal.SIGKILL)
            each.join()
        there = path.stat().st_size
        checked = ActivityLog(tmp_path).verify()
        assert checked.faults == ()
    assert checked.entries > 6
    assert len(list(ActivityLog(tmp_path).backwards())) == checked.entries
