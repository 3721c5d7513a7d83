"""Events are appended and survive; with several hosts, most heartbeats are local."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.events import (
    LOCAL_HEARTBEATS,
    append_event,
    append_state,
    heartbeat_file,
    local_heartbeats,
    note_change,
    read_heartbeats,
)
from sparring.run_folder.files import read_lines, write_json


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


def test_on_one_host_every_rank_writes_to_the_run_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert [heartbeat_file(folder, rank, None) for rank in (0, 3)] == [
        folder.rank_heartbeat(0),
        folder.rank_heartbeat(3),
    ]


def test_on_several_hosts_only_the_first_rank_does(tmp_path: Path) -> None:
    folder, local = RunFolder(tmp_path / "run"), tmp_path / "local"
    assert heartbeat_file(folder, 0, local) == folder.rank_heartbeat(0)
    assert heartbeat_file(folder, 3, local).parent == local


def test_the_environment_names_the_local_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCAL_HEARTBEATS, raising=False)
    assert local_heartbeats() is None
    monkeypatch.setenv(LOCAL_HEARTBEATS, "/somewhere/local")
    assert local_heartbeats() == Path("/somewhere/local")


def test_a_rank_without_a_heartbeat_has_an_empty_one(tmp_path: Path) -> None:
    folder, local = RunFolder(tmp_path / "run"), tmp_path / "local"
    write_json(heartbeat_file(folder, 1, local), {"beats": 4}, durable=False)
    assert read_heartbeats(folder, range(3), local) == {0: {}, 1: {"beats": 4}, 2: {}}
