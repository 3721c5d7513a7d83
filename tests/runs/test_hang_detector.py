"""A process that is alive but stalled is told from one that works, by its counters alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.run_folder.heartbeats import read_heartbeats
from sparring.runs import hang_detector
from sparring.runs.hang_detector import HangDetector


class Clock:
    """The real clock, moved on by hand."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(hang_detector, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


def beat(folder: RunFolder, rank: int = 0, **fields: Any) -> None:
    told = {"attempt": 1, "beats": 1, "progress": 1, "doing": "playing", "step": 4, **fields}
    write_json(folder.rank_heartbeat(rank), told, durable=False)


def look(found: HangDetector, folder: RunFolder) -> None:
    found.note_heartbeats(read_heartbeats(folder, range(2), None))


def detector(ranks: int = 1) -> HangDetector:
    return HangDetector(1, range(ranks), hung_seconds=100, start_seconds=1000)


def test_a_rank_that_beats_without_progress_is_alive_but_stalled(
    tmp_path: Path, clock: Clock
) -> None:
    folder = RunFolder(tmp_path)
    found = detector()
    beat(folder)
    look(found, folder)
    clock.ahead = 90
    beat(folder, beats=2)
    look(found, folder)
    assert found.cause_of_hang() is None
    clock.ahead = 110
    beat(folder, beats=3)
    look(found, folder)
    cause = found.cause_of_hang()
    assert cause is not None
    assert (cause.kind, cause.is_retried) == ("hung", True)
    assert cause.message == (
        "hung at step 4, while playing: the run is alive but stalled; no progress for 100 s"
    )


def test_progress_begins_the_wait_anew(tmp_path: Path, clock: Clock) -> None:
    folder = RunFolder(tmp_path)
    found = detector()
    for progress in range(5):
        clock.ahead += 90
        beat(folder, beats=progress, progress=progress)
        look(found, folder)
        assert found.cause_of_hang() is None


def test_of_several_ranks_the_silent_one_is_named(tmp_path: Path, clock: Clock) -> None:
    folder = RunFolder(tmp_path)
    found = detector(ranks=2)
    beat(folder, 0)
    beat(folder, 1)
    look(found, folder)
    clock.ahead = 110
    beat(folder, 0, beats=2)
    look(found, folder)
    cause = found.cause_of_hang()
    assert cause is not None
    assert "rank 1 sends no heartbeat" in cause.message


def test_one_rank_that_makes_progress_keeps_the_others(tmp_path: Path, clock: Clock) -> None:
    folder = RunFolder(tmp_path)
    found = detector(ranks=2)
    beat(folder, 0)
    beat(folder, 1)
    look(found, folder)
    clock.ahead = 110
    beat(folder, 0, beats=2, progress=2)
    look(found, folder)
    assert found.cause_of_hang() is None


def test_loading_may_take_longer_than_a_step(tmp_path: Path, clock: Clock) -> None:
    folder = RunFolder(tmp_path)
    found = detector(ranks=2)
    beat(folder, 0)
    beat(folder, 1, doing="loading")
    look(found, folder)
    assert not found.is_working
    clock.ahead = 900
    assert found.cause_of_hang() is None
    clock.ahead = 1100
    cause = found.cause_of_hang()
    assert cause is not None
    assert "no progress for 1000 s" in cause.message


def test_every_rank_must_have_begun(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    found = detector(ranks=2)
    assert not found.is_working
    beat(folder, 0)
    look(found, folder)
    assert not found.is_working
    beat(folder, 1)
    look(found, folder)
    assert found.is_working
    assert found.step == 4


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({}, "at step 4, while playing"),
        ({"step": None, "doing": "loading"}, "while loading"),
        ({"step": None, "doing": ""}, "before it began"),
    ],
)
def test_the_place_is_the_step_and_what_is_done_there(
    tmp_path: Path, fields: dict[str, Any], place: str
) -> None:
    folder = RunFolder(tmp_path)
    beat(folder, **fields)
    found = detector()
    look(found, folder)
    assert found.place == place


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"attempt":1,"beats":"x","progress":1}'])
def test_a_heartbeat_that_cannot_be_read_is_none(tmp_path: Path, clock: Clock, text: str) -> None:
    folder = RunFolder(tmp_path)
    found = detector()
    beat(folder)
    look(found, folder)
    folder.rank_heartbeat(0).write_text(text)
    clock.ahead = 110
    look(found, folder)
    assert found.place == "at step 4, while playing"
    assert found.cause_of_hang() is not None


def test_a_heartbeat_of_another_attempt_does_not_count(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    beat(folder, attempt=7)
    found = detector()
    look(found, folder)
    assert found.step is None
    assert not found.is_working
