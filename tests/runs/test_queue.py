"""Runs wait for their turn, start in order, and are looked after by whoever comes along."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.events import tell, tell_state
from sparring.runs import queue
from sparring.runs.history import read_history
from sparring.runs.index import Index
from sparring.runs.launching import Watched
from sparring.runs.lifecycle import RunState


@pytest.fixture
def launched(monkeypatch):
    """Which runs were started, instead of starting them."""
    started: list[str] = []

    def launch(folder: RunFolder) -> dict[str, object]:
        started.append(folder.id)
        return {}

    def is_watched(folder: RunFolder) -> Watched:
        return Watched.YES if folder.id in started else Watched.NO

    monkeypatch.setattr(queue, "launch", launch)
    monkeypatch.setattr(queue, "is_watched", is_watched)
    return started


def wait_in(runs: Path, name: str, most: int | None) -> RunFolder:
    folder = RunFolder(runs / name)
    folder.create({"format": 1, "kind": "train", "environment": "bell"})
    tell_state(folder, RunState.QUEUED, author="test", runs_at_once=most)
    return folder


def move(folder: RunFolder, *states: RunState) -> None:
    for state in states:
        tell_state(folder, state, author="supervisor", epoch=1)


def test_runs_start_in_order_as_far_as_there_is_room(tmp_path, launched):
    folders = [wait_in(tmp_path, f"run-{number}", 2) for number in range(4)]
    queue.start_waiting(tmp_path)
    assert launched == ["run-0", "run-1"]
    queue.start_waiting(tmp_path)  # they are on their way: nothing is started twice
    assert launched == ["run-0", "run-1"]
    move(folders[0], RunState.STARTING, RunState.COMPLETED)
    queue.start_waiting(tmp_path)
    assert launched == ["run-0", "run-1", "run-2"]


def test_one_that_does_not_fit_keeps_those_behind_it_waiting(tmp_path, launched):
    busy = wait_in(tmp_path, "a-busy", None)
    move(busy, RunState.STARTING, RunState.RUNNING)
    launched.append("a-busy")
    wait_in(tmp_path, "b-large", 1)
    wait_in(tmp_path, "c-small", 9)
    queue.start_waiting(tmp_path)
    assert launched == ["a-busy"]


def test_one_that_was_asked_to_stop_while_it_waited_is_not_started(tmp_path, launched):
    folder = wait_in(tmp_path, "run", 1)
    tell(folder, "stop_requested", author="ada")
    queue.start_waiting(tmp_path)
    assert launched == []
    assert read_history(folder).history.state is RunState.STOPPED


def test_a_run_without_a_supervisor_gets_one_and_the_others_are_left_alone(tmp_path, launched):
    lost, watched, done = (wait_in(tmp_path, name, None) for name in ("lost", "watched", "done"))
    for folder in (lost, watched):
        move(folder, RunState.STARTING, RunState.RUNNING)
    move(done, RunState.STARTING, RunState.COMPLETED)
    launched.append("watched")
    queue.reconcile(Index(tmp_path))
    assert launched == ["watched", "lost"]


def test_a_process_of_python_that_vanished_without_a_word_has_failed(tmp_path, launched):
    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1, "kind": "train"})
    tell(folder, "started", author="worker", pid=1)
    queue.reconcile(Index(tmp_path))
    history = read_history(folder).history
    assert (history.state, history.message) == (RunState.FAILED, "its process ended without a word")
    assert launched == []


def test_what_cannot_be_launched_fails_with_the_reason(tmp_path, monkeypatch):
    def launch(_: RunFolder) -> None:
        raise OSError("no such program: sbatch")

    monkeypatch.setattr(queue, "launch", launch)
    folder = wait_in(tmp_path, "run", None)
    queue.start_waiting(tmp_path)
    history = read_history(folder).history
    assert (history.state, history.cause) == (RunState.FAILED, "launcher")
    assert "sbatch" in history.message
