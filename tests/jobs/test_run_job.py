"""Every kind of run has the same life: started, then completed, stopped or failed, once."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput, SparringError
from sparring.contracts.specs import EvalSpec
from sparring.contracts.summaries import Summary
from sparring.jobs.__main__ import STOPPED, main
from sparring.jobs.run_job import FAILED, Attempt, Job, run_job
from sparring.jobs.worker import Heartbeat, hold_run
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, read_lines

SUMMARY = Summary(kind="eval", run="run", environment="shop")
TASK: Any = object()


class Work(Job[Summary]):
    """Does what the test tells it, and needs no task."""

    def __init__(self, error: BaseException | None = None, *, is_stopped: bool = False) -> None:
        self._error = error
        self._is_stopped = is_stopped

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def run(self) -> Summary:
        if self._error is not None:
            raise self._error
        return SUMMARY


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create(EvalSpec(target="shop.py:Shop").model_dump(mode="json"))
    return made


def attempt(folder: RunFolder, rank: int = 0) -> Attempt:
    return Attempt(folder, Heartbeat(folder, rank, None), rank)


def events(folder: RunFolder) -> list[str]:
    return [str(line["event"]) for line in read_lines(folder.events)]


def test_a_run_that_ends_has_its_summary_before_it_counts_as_completed(folder: RunFolder) -> None:
    ended = run_job(attempt(folder), TASK, lambda *_: Work())
    assert (ended.summary, ended.is_stopped) == (SUMMARY, False)
    assert read_json(folder.summary) == SUMMARY.as_json()
    started, completed = read_lines(folder.events)
    assert (started["event"], completed["event"]) == ("started", "completed")
    assert (started["pid"], started["host"]) == (os.getpid(), socket.gethostname())


def test_a_job_that_stopped_after_a_checkpoint_has_a_summary_too(folder: RunFolder) -> None:
    assert run_job(attempt(folder), TASK, lambda *_: Work(is_stopped=True)).is_stopped
    assert events(folder) == ["started", "stopped"]
    assert folder.summary.is_file()


def test_an_interrupt_stops_the_run_and_is_raised_again(folder: RunFolder) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_job(attempt(folder), TASK, lambda *_: Work(KeyboardInterrupt()))
    assert events(folder) == ["started", "stopped"]
    assert not folder.summary.exists()


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (InvalidInput("no such case"), "no such case", InvalidInput.exit_code),
        (ZeroDivisionError("by nothing"), "ZeroDivisionError: by nothing", FAILED),
    ],
    ids=["ours", "other"],
)
def test_a_failure_names_its_cause_and_leaves_no_half_of_a_checkpoint(
    folder: RunFolder, error: Exception, message: str, code: int
) -> None:
    partial = folder.checkpoints / ".step-2.partial"
    partial.mkdir(parents=True)
    with pytest.raises(type(error)):
        run_job(attempt(folder), TASK, lambda *_: Work(error))
    _, failed = read_lines(folder.events)
    assert (failed["event"], failed["kind"]) == ("failed", type(error).__name__)
    assert (failed["message"], failed["exit_code"]) == (message, code)
    assert not partial.exists()


def test_a_run_that_is_held_by_another_process_is_left_alone(folder: RunFolder) -> None:
    with hold_run(folder), pytest.raises(SparringError, match="in use by another process"):
        run_job(attempt(folder), TASK, lambda *_: Work())
    assert events(folder) == []


def test_another_rank_writes_its_failure_with_its_number_and_nothing_else(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with hold_run(folder):  # by rank 0
        run_job(attempt(folder, rank=1), TASK, lambda *_: Work())
        assert events(folder) == []
        with pytest.raises(OSError, match="gone"):
            run_job(attempt(folder, rank=1), TASK, lambda *_: Work(OSError("gone")))
    (failed,) = read_lines(folder.events)
    assert (failed["event"], failed["rank"]) == ("failed", 1)


@pytest.mark.parametrize(
    ("error", "code"),
    [(None, 0), (KeyboardInterrupt(), STOPPED), (InvalidInput("no"), 2), (OSError("no"), FAILED)],
)
def test_the_exit_code_of_the_process_says_how_the_run_ended(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, error: BaseException | None, code: int
) -> None:
    def run(given: Attempt) -> Any:
        return run_job(given, TASK, lambda *_: Work(error))

    monkeypatch.setattr("sparring.jobs.__main__.run_job", run)
    assert main(str(folder.path)) == code
