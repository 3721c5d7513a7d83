"""A supervisor writes only while its epoch is current, also onto a full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import read_json, read_lines, write_json
from sparring.runs import epoch_writer
from sparring.runs.claims import claim
from sparring.runs.epoch_writer import EpochWriter, Superseded
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import since_boot
from sparring.runs.worker_group import Placement, WorkerGroup


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create({"format": 1, "kind": "train"})
    append_state(made, RunState.QUEUED, author="test")
    assert claim(made, 1)
    return made


WRITES: list[Callable[[EpochWriter], Any]] = [
    lambda writer: writer.append_event("warning", message="late"),
    lambda writer: writer.move(RunState.STARTING),
    lambda writer: writer.beat(None),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_supervisor_that_was_replaced_writes_nothing(
    folder: RunFolder, write: Callable[[EpochWriter], Any]
) -> None:
    writer = EpochWriter(folder, 1)
    assert claim(folder, 2)
    before = folder.events.read_bytes()
    with pytest.raises(Superseded):
        write(writer)
    assert folder.events.read_bytes() == before
    assert not folder.supervisor.exists()


@pytest.mark.parametrize("write", WRITES)
def test_a_run_that_was_deleted_is_not_written_to(
    folder: RunFolder, write: Callable[[EpochWriter], Any]
) -> None:
    writer = EpochWriter(folder, 1)
    folder.spec.unlink()
    with pytest.raises(Superseded):
        write(writer)


def test_an_event_of_a_newer_epoch_is_enough_to_be_replaced(folder: RunFolder) -> None:
    writer = EpochWriter(folder, 1)
    append_event(folder, "claimed", author="supervisor", epoch=2)
    with pytest.raises(Superseded):
        writer.look()


def test_events_carry_their_author_and_epoch(folder: RunFolder) -> None:
    EpochWriter(folder, 1).append_event("warning", message="slow")
    last = list(read_lines(folder.events))[-1]
    assert (last["event"], last["author"], last["epoch"]) == ("warning", "supervisor", 1)


def test_a_move_to_the_present_state_is_not_written(folder: RunFolder) -> None:
    writer = EpochWriter(folder, 1)
    writer.move(RunState.STARTING)
    count = len(list(read_lines(folder.events)))
    writer.move(RunState.STARTING)
    assert len(list(read_lines(folder.events))) == count
    assert writer.history.state is RunState.STARTING


def test_a_heartbeat_is_written_at_most_once_a_second(folder: RunFolder) -> None:
    writer = EpochWriter(folder, 1)
    writer.look()
    workers = WorkerGroup(folder, Placement(attempt=3))
    assert writer.beat_if_due(workers)
    assert not writer.beat_if_due(workers)
    beat = read_json(folder.supervisor)
    assert (beat["pid"], beat["epoch"], beat["attempt"]) == (os.getpid(), 1, 3)
    assert (beat["state"], beat["processes"]) == ("queued", [])


@pytest.mark.parametrize(("written", "earlier"), [(120, 120), ("x", 0), (-5, 0), (None, 0)])
def test_seconds_go_on_from_the_last_supervisors(
    folder: RunFolder, written: Any, earlier: float
) -> None:
    write_json(folder.supervisor, {"seconds": written})
    writer = EpochWriter(folder, 1)
    assert earlier <= writer.seconds < earlier + 60
    assert writer.last_report == {"seconds": written}


class FullDisk:
    """Refuses to write events while the reserve is there."""

    def __init__(self, folder: RunFolder, number: int) -> None:
        self.folder, self.number = folder, number

    def __call__(self, *given: Any, **data: Any) -> None:
        if self.folder.reserve.exists() or self.number == errno.EIO:
            raise OSError(self.number, os.strerror(self.number))
        append_event(*given, **data)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_the_reserve_is_released_and_the_event_written(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    writer = EpochWriter(folder, 1)
    writer.reserve_space()
    assert folder.reserve.stat().st_size >= 100_000
    monkeypatch.setattr(epoch_writer, "append_event", FullDisk(folder, number))
    writer.append_event("warning", message="the last word")
    assert list(read_lines(folder.events))[-1]["message"] == "the last word"
    assert not folder.reserve.exists()


def test_another_error_of_the_disk_is_raised_and_keeps_the_reserve(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = EpochWriter(folder, 1)
    writer.reserve_space()
    monkeypatch.setattr(epoch_writer, "append_event", FullDisk(folder, errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        writer.append_event("warning", message="no")
    assert folder.reserve.exists()


def test_at_the_end_only_files_that_are_needed_later_remain(folder: RunFolder) -> None:
    writer = EpochWriter(folder, 1)
    writer.reserve_space()
    write_json(folder.stop_request, {"format": 1})
    writer.clear()
    assert not folder.reserve.exists()
    assert not folder.stop_request.exists()
    assert folder.events.exists()
    writer.clear()


def test_the_log_quotes_no_held_out_case(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = EpochWriter(folder, 1)
    message = "the cases cannot be loaded\ncase 7: the secret question"
    writer.append_event("restart", error="CasesBroken", message=message)
    printed = capsys.readouterr().out
    assert "the cases cannot be loaded" in printed
    assert "secret" not in printed
    writer.append_event("restart", error="ValueError", message="first\nsecond")
    assert "second" in capsys.readouterr().out


def test_the_time_without_a_supervisor_counts_if_its_processes_worked_on(
    folder: RunFolder,
) -> None:
    half = since_boot() / 2
    write_json(folder.supervisor, {"seconds": 120, "since_boot": half})
    writer = EpochWriter(folder, 1)
    writer.count_time_without()
    assert 120 + half <= writer.seconds < 180 + half
