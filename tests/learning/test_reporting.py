"""What a training run writes while it works: metrics, a heartbeat, and the time that is left."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.training import TrainSettings
from sparring.learning import reporting
from sparring.learning.batches import BatchPlan, resolve_batches
from sparring.learning.reporting import Reporter
from sparring.run_folder import RunFolder


class Clock:
    """The seconds that a test says have passed."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now / 2

    def time(self) -> float:
        return 1e9


class Noted:
    """Stands in for the trackers."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.is_finished = False

    def log(self, step: int, figures: Mapping[str, Any]) -> None:
        self.logged.append((step, dict(figures)))

    def finish(self) -> None:
        self.is_finished = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(reporting, "time", made)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def plan(steps: int = 10, checkpoint_steps: int = 4) -> BatchPlan:
    settings = TrainSettings(max_steps=steps, checkpoint_steps=checkpoint_steps)
    return resolve_batches(settings, training_cases=100)


def reporter(folder: RunFolder, **options: Any) -> Reporter:
    made = options.pop("plan", None) or plan()
    return Reporter(folder, made, options.pop("trackers", Noted()), **options)


def metrics(folder: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in folder.metrics.read_text().splitlines()]


def heartbeat(folder: RunFolder) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(folder.heartbeat.read_text())
    return read


def test_a_step_is_one_row_with_its_attempt_and_its_time(folder: RunFolder, clock: Clock) -> None:
    trackers = Noted()
    reports = reporter(folder, attempt=3, trackers=trackers)
    clock.now += 4
    reports.step(1, {"loss": 0.5})
    figures = {"loss": 0.5, "seconds": 4.0, "cpu_seconds": 2.0}
    assert metrics(folder) == [{"attempt": 3, "step": 1, **figures}]
    assert trackers.logged == [(1, figures)]


def test_a_row_for_several_steps_has_the_time_of_one(folder: RunFolder, clock: Clock) -> None:
    reports = reporter(folder)
    clock.now += 12
    reports.step(4, {})
    assert (metrics(folder)[0]["seconds"], metrics(folder)[0]["cpu_seconds"]) == (3.0, 1.5)


def test_a_validation_has_names_of_its_own_and_is_not_part_of_a_step(
    folder: RunFolder, clock: Clock
) -> None:
    reports = reporter(folder)
    clock.now += 30
    reports.validation(0, {"reward": 0.25})
    clock.now += 2
    reports.step(1, {"reward": 0.5})
    assert metrics(folder)[0] == {"attempt": 1, "step": 0, "validation/reward": 0.25}
    assert metrics(folder)[1]["seconds"] == 2.0
    assert heartbeat(folder)["validation"] == 0.25
    assert heartbeat(folder)["validated_at"] == 0


def test_the_time_left_counts_the_steps_and_the_validations_ahead(
    folder: RunFolder, clock: Clock
) -> None:
    reports = reporter(folder, plan=plan(steps=10, checkpoint_steps=4))
    clock.now += 30
    reports.validation(0, {})
    clock.now += 2
    reports.step(1, {})
    # Nine steps of 2 s, and validations at steps 4, 8 and 10.
    assert heartbeat(folder)["seconds_left"] == 9 * 2 + 3 * 30


def test_after_the_last_step_of_a_run_without_validation_no_time_is_left(
    folder: RunFolder, clock: Clock
) -> None:
    reports = reporter(folder, plan=plan(steps=10))
    clock.now += 20
    reports.step(10, {})
    assert heartbeat(folder)["seconds_left"] == 0


def test_the_time_left_follows_the_recent_steps(folder: RunFolder, clock: Clock) -> None:
    reports = reporter(folder, plan=plan(steps=100, checkpoint_steps=100))
    for step in range(1, 21):
        clock.now += 50 if step <= 10 else 1
        reports.step(step, {})
    assert heartbeat(folder)["seconds_left"] == 80


def test_the_heartbeat_says_who_writes_it_and_how_far_it_is(
    folder: RunFolder, clock: Clock
) -> None:
    reports = reporter(folder, tokens_drawn=lambda: 77)
    clock.now += 1
    reports.step(2, {"loss": 0.5})
    written = heartbeat(folder)
    wanted = {"format": 1, "pid": os.getpid(), "tokens_drawn": 77, "step": 2, "steps": 10}
    assert wanted.items() <= written.items()
    assert written["metrics"]["loss"] == 0.5


def test_progress_begins_with_the_plan_and_its_notes_and_grows(
    folder: RunFolder, clock: Clock
) -> None:
    settings = TrainSettings(max_steps=2, per_device_train_batch_size=5)
    changed = resolve_batches(settings, training_cases=100)
    assert changed.notes
    seen: list[list[str]] = []
    reports = reporter(folder, plan=changed, on_progress=lambda each: seen.append([*each["said"]]))
    reports.say("a warning")
    assert seen == [[f"run run: {changed}", *changed.notes, "a warning"]]


def test_a_run_that_resumes_counts_from_its_step(folder: RunFolder, clock: Clock) -> None:
    shown: list[int] = []
    trackers = Noted()
    reports = reporter(
        folder, trackers=trackers, on_progress=lambda each: shown.append(each["step"])
    )
    clock.now += 500  # loading the model is not part of a step
    reports.begin(6)
    try:
        clock.now += 3
        reports.step(7, {})
    finally:
        reports.end()
    assert shown == [6, 7]
    assert metrics(folder)[0]["seconds"] == 3.0
    assert trackers.is_finished


def test_a_heartbeat_is_written_between_steps(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = threading.Event()
    calls: list[int] = []

    def drawn() -> int:
        calls.append(1)
        if len(calls) == 2:
            twice.set()
        return len(calls)

    monkeypatch.setattr(reporting, "_HEARTBEAT_SECONDS", 0.01)
    reports = reporter(folder, tokens_drawn=drawn)
    reports.begin(0)
    try:
        assert twice.wait(10)
    finally:
        reports.end()
    assert heartbeat(folder)["tokens_drawn"] == len(calls)


def test_the_last_heartbeat_is_written_at_the_end_also_of_a_run_that_never_began(
    folder: RunFolder,
) -> None:
    trackers = Noted()
    reporter(folder, trackers=trackers).end()
    assert heartbeat(folder)["step"] == 0
    assert trackers.is_finished
