"""What has gone wrong with an attempt, by exit codes, reports, heartbeats and silence."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.contracts.training import TrainSpec
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import write_json
from sparring.runs import hang_detector, hosts, process_monitor
from sparring.runs.claims import claim
from sparring.runs.epoch_writer import EpochWriter
from sparring.runs.lifecycle import RunState
from sparring.runs.process_monitor import ProcessMonitor
from sparring.runs.processes import identity_of
from sparring.runs.worker_group import Member, Placement, WorkerGroup


class Attempt:
    """The first attempt of a run, whose processes are a few commands of the shell."""

    def __init__(self, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.create({"format": 1, "kind": "train"})
        append_state(folder, RunState.QUEUED, author="test")
        assert claim(folder, 1)
        self.folder = folder
        self.writer = EpochWriter(folder, 1)
        self.writer.append_event("attempt", attempt=1)
        self.writer.look()
        self.workers = WorkerGroup(folder, Placement(attempt=1))
        self.ahead = 0.0
        self._started: list[subprocess.Popen[bytes]] = []
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + self.ahead)
        monkeypatch.setattr(process_monitor, "time", clock)
        monkeypatch.setattr(hang_detector, "time", clock)

    def start(self, name: str, command: str, *, is_over: bool = True) -> subprocess.Popen[bytes]:
        log = self.folder.log(1, name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(["sh", "-c", command], stdout=output, start_new_session=True)
        self._started.append(process)
        member = Member(name, identity_of(process.pid), log, process)
        (self.workers.services if name.startswith("service") else self.workers.ranks).append(member)
        if is_over:
            process.wait()
        return process

    def monitor(self, **spec: Any) -> ProcessMonitor:
        return ProcessMonitor(
            self.writer, self.workers, TrainSpec.model_validate({"target": "x.py:X", **spec})
        )

    def report(self, event: str, **fields: Any) -> None:
        append_event(self.folder, event, author="worker", attempt=1, **fields)

    def beat(self, number: int, step: int = 4, doing: str = "playing") -> None:
        beat = {"attempt": 1, "beats": number, "progress": number, "doing": doing, "step": step}
        write_json(self.folder.rank_heartbeat(0), beat, durable=False)

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempt]:
    made = Attempt(RunFolder(tmp_path / "run"), monkeypatch)
    yield made
    made.close()


WAIT = "exec sleep 60"


def test_an_attempt_that_works_has_no_problem(attempt: Attempt) -> None:
    attempt.start("worker", WAIT, is_over=False)
    monitor = attempt.monitor()
    attempt.beat(1)
    assert monitor.find_problem() is None
    assert monitor.is_working
    assert not monitor.is_done


def test_a_bad_exit_is_explained_by_the_log_and_a_report_goes_before_it(attempt: Attempt) -> None:
    attempt.start("worker", "echo why it broke; exit 7")
    monitor = attempt.monitor()
    untold = monitor.find_problem()
    assert untold is not None
    assert untold.kind == "exception"
    assert "worker ended with exit code 7" in untold.message
    assert "why it broke" in untold.message
    attempt.report("failed", message="beta is wrong", kind="SettingError", exit_code=2)
    problem = monitor.find_problem()
    assert problem is not None
    assert (problem.kind, problem.message, problem.exit_code) == ("refused", "beta is wrong", 2)


def test_a_service_that_ends_is_lost_and_its_log_is_quoted(attempt: Attempt) -> None:
    attempt.start("worker", WAIT, is_over=False)
    attempt.start("service-shop", "echo port taken; exit 0")
    attempt.report("failed", message="connection refused", kind="ValueError")
    cause = attempt.monitor().find_problem()
    assert cause is not None
    assert (cause.kind, cause.is_retried) == ("killed", True)
    assert "service-shop ended with exit code 0" in cause.message
    assert "port taken" in cause.message


def test_ranks_that_exit_with_0_and_report_completion_have_no_cause(attempt: Attempt) -> None:
    attempt.start("worker", "exit 0")
    monitor = attempt.monitor()
    attempt.report("completed")
    assert monitor.find_problem() is None
    assert monitor.is_done
    assert monitor.final_cause() is None


def test_ranks_that_exit_with_0_without_a_report_have_a_cause(attempt: Attempt) -> None:
    attempt.start("worker", "exit 0")
    cause = attempt.monitor().final_cause()
    assert cause is not None
    assert "worker ended with exit code 0 before it began" in cause.message


def test_ranks_that_reported_a_failure_have_its_cause_whatever_their_code(attempt: Attempt) -> None:
    attempt.start("worker", "exit 0")
    attempt.report("failed", message="the reward collapsed", kind="GuardStop", exit_code=104)
    cause = attempt.monitor().final_cause()
    assert cause is not None
    assert (cause.kind, cause.exit_code, cause.is_retried) == ("guard", 104, False)


def test_a_run_that_stopped_before_its_ranks_began_has_no_cause(attempt: Attempt) -> None:
    assert attempt.monitor().final_cause() is None


def test_a_rank_that_ends_without_a_report_is_lost_after_30_seconds(attempt: Attempt) -> None:
    attempt.start("rank-0", "exit 0")
    attempt.start("rank-1", WAIT, is_over=False)
    monitor = attempt.monitor()
    assert monitor.find_problem() is None
    attempt.ahead = 29
    assert monitor.find_problem() is None
    attempt.ahead = 31
    cause = monitor.find_problem()
    assert cause is not None
    assert "rank-0 ended with exit code 0" in cause.message
    attempt.report("completed")
    attempt.writer.look()
    assert monitor.find_problem() is None


def test_the_cause_of_a_hang_has_the_place_and_the_frames_in_the_log(attempt: Attempt) -> None:
    attempt.start("worker", WAIT, is_over=False)
    attempt.workers.dump_stacks = lambda: None  # type: ignore[method-assign] # it sleeps
    given = {"supervision": {"hang_timeout": 50}, "sources": {"hang_timeout": "the test"}}
    monitor = attempt.monitor(**given)
    attempt.beat(1)
    assert monitor.find_problem() is None
    attempt.ahead = 51
    cause = monitor.find_problem()
    assert cause is not None
    assert cause.kind == "hung"
    assert cause.message.startswith("hung at step 4, while playing: ")
    assert "it wrote no stacks" in cause.message


def test_a_limit_of_hanging_that_nobody_set_is_longer_than_a_rollout(attempt: Attempt) -> None:
    attempt.start("worker", WAIT, is_over=False)
    attempt.workers.dump_stacks = lambda: None  # type: ignore[method-assign] # it sleeps
    monitor = attempt.monitor(settings={"rollout_timeout": 5000}, supervision={"hang_timeout": 50})
    attempt.beat(1)
    assert monitor.find_problem() is None
    attempt.ahead = 5050
    assert monitor.find_problem() is None
    attempt.ahead = 5070
    assert monitor.find_problem() is not None


def test_an_attempt_has_worked_once_its_step_changes_or_a_checkpoint_is_saved(
    attempt: Attempt,
) -> None:
    attempt.start("worker", WAIT, is_over=False)
    monitor = attempt.monitor()
    for number in (1, 2):
        attempt.beat(number, step=4)
        monitor.find_problem()
        assert not monitor.has_worked
    attempt.beat(3, step=5)
    monitor.find_problem()
    assert monitor.has_worked
    fresh = attempt.monitor()
    assert not fresh.has_worked
    attempt.report("checkpoint", step=1)
    attempt.writer.look()
    assert fresh.has_worked


def test_a_service_that_does_not_answer_is_given_half_a_minute(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt.start("worker", WAIT, is_over=False)
    silent = ["service-shop"]
    monkeypatch.setattr(attempt.workers, "silent_service", lambda: "".join(silent))
    monitor = attempt.monitor()
    attempt.beat(1)
    for attempt.ahead in (6, 20):
        assert monitor.find_problem() is None
    silent.clear()
    attempt.ahead = 28
    assert monitor.find_problem() is None
    silent.append("service-shop")
    attempt.ahead = 50
    assert monitor.find_problem() is None
    attempt.ahead = 60
    cause = monitor.find_problem()
    assert cause is not None
    assert (cause.kind, cause.message) == ("hung", "service-shop has not answered for 32 s")


def test_a_lost_host_is_the_cause_before_the_failures_it_leads_to(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_LOOK_SECONDS", 0.0)
    attempt.workers = WorkerGroup(attempt.folder, Placement(attempt=1, nodes=2))
    attempt.start("rank-0", WAIT, is_over=False)
    monitor = attempt.monitor(supervision={"start_timeout": 1e-9})
    attempt.report("failed", message="connection reset", kind="RuntimeError")
    cause = monitor.find_problem()
    assert cause is not None
    assert (cause.kind, cause.message) == ("host_lost", "host 1 has not joined within 1e-09 s")
    lost = {"name": "rank-1", "code": 1, "log": "log"}
    write_json(attempt.folder.host(1), {"attempt": 1, "beats": 1, "lost": lost})
    problem = monitor.find_problem()
    assert problem is not None
    assert "connection reset" in problem.message
    assert not monitor.is_done
