"""Events are appended with their author, and a change of state is noted in the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state, note_change
from sparring.run_folder.files import read_lines


def test_an_event_has_its_format_time_author_and_data(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "one")
    append_event(folder, "warning", author="worker", message="slow")
    append_event(folder, "note", author="owner")
    first, second = read_lines(folder.events)
    assert first.pop("time") > 0
    assert first == {"format": 1, "event": "warning", "author": "worker", "message": "slow"}
    assert (second["event"], second["author"]) == ("note", "owner")


def test_only_a_change_of_state_is_noted_in_the_journal(tmp_path: Path) -> None:
    one, two = (RunFolder(tmp_path / "runs" / name) for name in ("one", "two"))
    append_event(one, "note", author="worker")
    append_state(two, "queued", author="owner", epoch=3)
    append_state(one, "queued", author="owner")
    (event,) = read_lines(two.events)
    assert (event["event"], event["state"], event["epoch"]) == ("state", "queued", 3)
    assert [row["run"] for row in read_lines(one.journal)] == ["two", "one"]


def test_a_journal_that_cannot_be_written_does_not_lose_the_state(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.journal.mkdir(parents=True)
    append_state(folder, "running", author="supervisor")
    note_change(folder)
    assert [event["state"] for event in read_lines(folder.events)] == ["running"]


def test_events_that_others_act_on_are_on_disk_before_anything_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.create({"format": 1, "kind": "train"})
    for event in ("state", "checkpoint", "completed", "failed", "stopped"):
        synced.clear()
        append_event(folder, event, author="test")
        assert synced, event
    synced.clear()
    append_event(folder, "note", author="test")
    assert not synced
