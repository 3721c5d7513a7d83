"""A supervisor ends a run in the state that its processes deserve, whatever they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import read_json, read_lines, write_json
from sparring.runs import supervisor
from sparring.runs.claims import claim
from sparring.runs.history import History, read_history
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import identity_of
from sparring.runs.supervisor import REQUEUE, Supervisor, supervise

# In place of python: `$3` is the run's folder.
COMPLETE = """printf '{"event":"completed","attempt":%s}\\n' $SPARRING_ATTEMPT >> $3/events.jsonl"""
CHECKPOINT = """printf '{"event":"checkpoint","step":1}\\n' >> $3/events.jsonl"""
ON_TERM = "trap 'exit 103' TERM; echo up; while :; do sleep 0.01; done"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_MAX_BACKOFF", 0.0)
    monkeypatch.setattr(supervisor, "_POLL_SECONDS", 0.01)


class Run:
    """A queued run, whose worker is a script of the shell."""

    def __init__(self, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.python = folder.path.parent / "python"
        monkeypatch.setattr(sys, "executable", str(self.python))

    def queue(self, worker: str, **spec: Any) -> Run:
        self.python.write_text(f"#!/bin/sh\n{worker}\n")
        self.python.chmod(0o755)
        self.folder.create({"format": 1, "kind": "train", "target": "shop.py:Shop", **spec})
        append_state(self.folder, RunState.QUEUED, author="test")
        return self

    def supervise(self, epoch: int = 1, **options: Any) -> int:
        return Supervisor(self.folder, epoch, **options).run()

    @property
    def history(self) -> History:
        return read_history(self.folder).history

    def events(self, name: str) -> list[dict[str, Any]]:
        return [each for each in read_lines(self.folder.events) if each["event"] == name]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(RunFolder(tmp_path / "run"), monkeypatch)


def test_a_worker_that_completes_completes_the_run(run: Run) -> None:
    assert run.queue(COMPLETE).supervise() == 0
    assert (run.history.state, run.history.attempt.number) == (RunState.COMPLETED, 1)
    assert read_json(run.folder.supervisor)["state"] == "completed"
    assert not run.folder.reserve.exists()


def test_a_worker_that_is_killed_after_it_completed_has_completed(run: Run) -> None:
    assert run.queue(f"{COMPLETE}; kill -9 $$").supervise() == 0
    assert (run.history.state, run.history.attempt.number) == (RunState.COMPLETED, 1)


def test_a_check_of_a_training_on_many_processes_is_one_process(run: Run) -> None:
    planned = {"sampling": {"servers": 2}, "players": 1}
    run.queue(COMPLETE, kind="check", processes=4, nodes=2, settings=planned)
    assert run.supervise() == 0
    assert run.history.state is RunState.COMPLETED
    assert [each.name for each in run.folder.log(1).parent.iterdir()] == ["worker.log"]


def test_an_epoch_that_is_taken_is_left_alone(run: Run) -> None:
    run.queue(COMPLETE)
    assert claim(run.folder, 1)
    before = run.folder.events.read_bytes()
    assert run.supervise() == 0
    assert run.folder.events.read_bytes() == before


def test_a_run_that_has_ended_is_not_started_again(run: Run) -> None:
    run.queue(COMPLETE).supervise()
    write_json(run.folder.epochs / "000001.json", {})  # not this process: it would be killed
    assert run.supervise(2) == 0
    assert run.history.attempt.number == 1


def test_an_error_of_the_worker_before_its_first_step_fails_the_run_at_once(run: Run) -> None:
    assert run.queue("echo no such file; exit 1").supervise() == 100
    assert (run.history.state, run.history.cause) == (RunState.FAILED, "exception")
    assert "no such file" in run.history.message
    assert run.history.attempt.number == 1


def test_an_error_after_a_checkpoint_is_tried_again(run: Run) -> None:
    worker = f"if [ $SPARRING_ATTEMPT = 1 ]; then {CHECKPOINT}; exit 1; fi; {COMPLETE}"
    assert run.queue(worker).supervise() == 0
    assert (run.history.state, run.history.attempt.number) == (RunState.COMPLETED, 2)
    assert [each["cause"] for each in run.events("restart")] == ["exception"]


def test_a_killed_worker_is_restarted_as_often_as_the_limit_says(run: Run) -> None:
    run.queue("kill -9 $$", supervision={"restarts": 2})
    assert run.supervise() == 100
    assert (run.history.state, run.history.cause) == (RunState.FAILED, "killed")
    assert run.history.attempt.number == 3


def test_a_failed_attempt_exits_with_75_where_a_scheduler_relaunches(run: Run) -> None:
    assert run.queue("kill -9 $$").supervise(relaunches_here=False) == REQUEUE
    assert run.history.state is RunState.STARTING
    assert len(run.events("restart")) == 1


def test_a_stop_that_was_requested_in_the_queue_starts_nothing(run: Run) -> None:
    run.queue(COMPLETE)
    append_event(run.folder, "stop_requested", author="ada")
    assert run.supervise() == 103
    assert (run.history.state, run.history.message) == (RunState.STOPPED, "stopped by ada")
    assert run.history.attempt.number == 0


ASK = """printf '{"event":"stop_requested","author":"ada"}\\n' >> $3/events.jsonl"""


def test_a_stop_request_reaches_the_worker_and_stops_the_run(run: Run) -> None:
    assert run.queue(f"{ASK}; {ON_TERM}").supervise() == 103
    assert (run.history.state, run.history.message) == (RunState.STOPPED, "stopped by ada")


def test_a_worker_that_does_not_stop_is_killed_when_its_time_is_up(run: Run) -> None:
    deaf = f"trap '' TERM; {ASK}; while :; do sleep 0.01; done"
    assert run.queue(deaf, supervision={"stop_timeout": 0.1}).supervise() == 103
    assert run.history.state is RunState.STOPPED
    assert run.history.message == "the run did not stop within 0.1 s and was killed"


def test_a_run_stops_when_its_hours_are_used_up(run: Run) -> None:
    assert run.queue(ON_TERM, hours=1e-9).supervise() == 103
    assert run.history.state is RunState.STOPPED
    assert "has used up its budget of 1e-09 hours" in run.history.message


def test_a_run_whose_processes_cannot_be_started_fails_with_the_reason(run: Run) -> None:
    run.queue(COMPLETE, supervision={"restarts": 0})
    run.python.unlink()
    assert run.supervise() == 100
    assert (run.history.state, run.history.cause) == (RunState.FAILED, "launcher")
    assert "the run's processes cannot be started" in run.history.message


@pytest.fixture
def sleeper() -> Any:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


def begun_by(run: Run, process: subprocess.Popen[bytes]) -> None:
    """The run is running, under a supervisor that is this process."""
    for state in (RunState.STARTING, RunState.RUNNING):
        append_state(run.folder, state, author="supervisor", epoch=1)
    append_event(run.folder, "attempt", author="supervisor", epoch=1, attempt=1)
    write_json(run.folder.epochs / "000001.json", identity_of(process.pid).to_dict())


def test_a_predecessor_is_killed_and_its_lost_attempt_restarted(
    run: Run, sleeper: subprocess.Popen[bytes]
) -> None:
    run.queue(COMPLETE)
    begun_by(run, sleeper)
    assert run.supervise(2) == 0
    assert sleeper.wait() == -signal.SIGKILL
    assert (run.history.state, run.history.attempt.number) == (RunState.COMPLETED, 2)
    (restart,) = run.events("restart")
    assert "its supervisor ended without reporting a result" in restart["message"]


def test_a_completion_reported_after_the_supervisor_died_counts(
    run: Run, sleeper: subprocess.Popen[bytes]
) -> None:
    run.queue("exit 9")
    begun_by(run, sleeper)
    append_event(run.folder, "completed", author="worker", attempt=1)
    assert run.supervise(2) == 0
    assert (run.history.state, run.history.attempt.number) == (RunState.COMPLETED, 1)


def test_processes_that_outlived_their_supervisor_are_adopted(
    run: Run, sleeper: subprocess.Popen[bytes]
) -> None:
    run.queue("exit 9", supervision={"stop_timeout": 0.1})
    begun_by(run, subprocess.Popen(["true"]))
    row = {"name": "worker", "log": str(run.folder.log(1)), **identity_of(sleeper.pid).to_dict()}
    write_json(run.folder.supervisor, {"attempt": 1, "processes": [row]})
    append_event(run.folder, "stop_requested", author="ada")
    assert run.supervise(2) == 103
    assert sleeper.wait() in (-signal.SIGTERM, -signal.SIGKILL)
    assert run.history.attempt.number == 1


def test_a_run_whose_supervisors_keep_dying_is_given_up(run: Run) -> None:
    run.queue(COMPLETE)
    for epoch in range(1, 21):
        append_event(run.folder, "claimed", author="supervisor", epoch=epoch)
    assert run.supervise(21) == 100
    assert (run.history.state, run.history.cause) == (RunState.FAILED, "launcher")
    assert "the supervisor died 20 times" in run.history.message


def test_a_spec_that_cannot_be_read_is_an_error_with_its_code(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        run.queue(COMPLETE)
        write_json(run.folder.spec, {"format": 99})
        assert supervise(str(run.folder.path), 1) == 2
        assert "upgrade Sparring" in capsys.readouterr().err
        os.kill(os.getpid(), signal.SIGTERM)  # ignored: only SIGKILL ends a supervisor
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
