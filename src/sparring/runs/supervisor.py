"""`python -m sparring.runs.supervisor RUN_FOLDER EPOCH`: supervises one run until it ends.

Starts the run's processes, monitors them, restarts them if a restart can help, and records how the
run ended. It keeps running after the command or server that started it has ended. It may die at
any time: its state is in the run's folder, and the next operation that reads the run starts another
supervisor, unless the launcher is `manual`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput, ServiceFailed, SparringError
from sparring.contracts.specs import RunSpec
from sparring.contracts.training import TrainSpec
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_run_spec
from sparring.run_folder.files import read_json_or_empty, write_json
from sparring.runs.causes import Cause, cause_of_failure
from sparring.runs.claims import claim, claimant
from sparring.runs.epoch_writer import EpochWriter, Superseded
from sparring.runs.history import History
from sparring.runs.lifecycle import RunState
from sparring.runs.process_monitor import ProcessMonitor
from sparring.runs.processes import end_all
from sparring.runs.worker_group import Placement, WorkerGroup, mark_of
from sparring.services import free_port

HOST_NAME = "SPARRING_HOST"  # the variable with the name by which other hosts reach this host
REQUEUE = 75  # EX_TEMPFAIL: the scheduler should launch the run again
_POLL_SECONDS = 0.2
_MAX_BACKOFF = 60.0
_MAX_TAKEOVERS = 20
_FORCED_STOP = "ended"  # kind of the cause if a stop request times out
_EXIT_CODES = {RunState.COMPLETED: 0, RunState.STOPPED: 103}


class Supervisor:
    """Supervises one run for one epoch.

    With `relaunches_here`, this process restarts a failed attempt. Otherwise it exits with REQUEUE,
    and the scheduler launches the run again. `job` is the id of the scheduler's job.
    """

    def __init__(
        self, folder: RunFolder, epoch: int, *, relaunches_here: bool = True, job: str = ""
    ) -> None:
        self._folder = folder
        self._job = job
        self._relaunches_here = relaunches_here
        self._writer = EpochWriter(folder, epoch)
        self._spec: RunSpec
        self._workers: WorkerGroup | None = None
        self._monitor: ProcessMonitor | None = None
        self._stop_by: float | None = None

    def run(self) -> int:
        """Claim the run, supervise it until it ends or must be requeued, and return the exit code.
        Return 0 if there is nothing to supervise."""
        if not claim(self._folder, self._writer.epoch, self._job):
            return 0
        try:
            return self._supervise()
        except Superseded:
            return 0

    # ------------------------------------------------------------------ supervising

    def _supervise(self) -> int:
        self._writer.append_event("claimed")
        if self._writer.look().state.has_ended:
            return 0
        self._end_predecessors()
        try:
            self._spec = read_run_spec(self._folder)
        except InvalidInput as error:
            name = type(error).__name__
            return self._fail(Cause("refused", str(error), error=name, exit_code=error.exit_code))
        self._writer.reserve_space()
        if self._writer.history.takeovers > _MAX_TAKEOVERS:
            return self._give_up()
        if not self._adopt() and (code := self._conclude_for_predecessor()) is not None:
            return code
        while True:
            problem = None
            if self._workers is None:
                if self._writer.history.is_stop_requested:
                    return self._finish(
                        RunState.STOPPED, message=_stop_message(self._writer.history)
                    )
                problem = self._launch()
            cause = problem or self._wait_for_end()
            self._end_workers()
            if (code := self._conclude(cause)) is not None:
                return code

    def _conclude(self, cause: Cause | None, *, is_own_attempt: bool = True) -> int | None:
        """End or restart the run after an attempt. Returns the exit code, or None to restart here.

        If an attempt of a previous supervisor (`is_own_attempt` is false) is restarted, it is
        restarted here, because the scheduler has already launched the run again.
        """
        history = self._writer.look()
        if history.attempt.has_completed:  # whatever happened to its processes afterwards
            return self._finish(RunState.COMPLETED)
        if cause is None and not history.is_stop_requested and not self._relaunches_here:
            cause = Cause("killed", "ended by the scheduler")
        if cause is None or (history.is_stop_requested and cause.is_retried):
            message = (
                cause.message if cause and cause.kind == _FORCED_STOP else _stop_message(history)
            )
            return self._finish(RunState.STOPPED, message=message)
        if not self._can_restart(cause):
            return self._fail(cause)
        self._writer.append_event(
            "restart", cause=cause.kind, message=cause.message, attempt=history.attempt.number
        )
        self._writer.move(RunState.STARTING)
        self._workers = None
        if is_own_attempt and not self._relaunches_here:
            return REQUEUE
        self._pause(min(_MAX_BACKOFF, 0.5 * 2 ** min(history.restarts, 7)))
        return None

    def _can_restart(self, cause: Cause) -> bool:
        """Whether a restart can help and the limit of restarts allows it. After an exception, a
        refusal or a service's failure, an attempt is restarted only if it had finished a step or
        saved a checkpoint."""
        limit = self._spec.supervision.restarts
        if not cause.is_retried or self._writer.history.restarts >= limit:
            return False
        is_own_failure = cause.kind in ("exception", "refused", "service")
        has_worked = self._monitor is not None and self._monitor.has_worked
        return not is_own_failure or has_worked or self._writer.history.has_saved

    def _conclude_for_predecessor(self) -> int | None:
        """Conclude the last attempt if its supervisor died before it could do so."""
        history = self._writer.history
        if history.state is RunState.QUEUED or history.attempt.has_ended:
            return None
        message = "the run's processes and its supervisor ended without reporting a result"
        cause: Cause | None = Cause("killed", message)
        if history.attempt.result:
            failure = history.attempt.failure
            cause = cause_of_failure(failure, "", self._folder.path) if failure else None
        return self._conclude(cause, is_own_attempt=False)

    def _give_up(self) -> int:
        """Fail a run whose supervisors die repeatedly; otherwise they would be replaced forever."""
        end_all(mark_of(self._folder))
        log = self._folder.path / "logs" / "supervisor.log"
        message = f"the supervisor died {_MAX_TAKEOVERS} times without a new checkpoint; see {log}"
        return self._fail(Cause("launcher", message))

    def _fail(self, cause: Cause) -> int:
        return self._finish(
            RunState.FAILED,
            cause=cause.kind,
            message=cause.message,
            error=cause.error,
            exit_code=cause.exit_code,
        )

    def _finish(self, state: RunState, **data: Any) -> int:
        code = int(data.pop("exit_code", _EXIT_CODES.get(state, 100)))
        if state is RunState.STOPPED and self._writer.history.state is not RunState.QUEUED:
            self._writer.move(RunState.STOPPING)
        self._writer.move(state, exit_code=code, seconds=round(self._writer.seconds, 1), **data)
        self._writer.beat(self._workers)
        self._writer.clear()
        return code

    # ------------------------------------------------------------------ starting

    def _adopt(self) -> bool:
        """Adopt the live processes of the previous supervisor. Return whether all ranks and
        services could be adopted; if not, end all processes."""
        history, report = self._writer.history, self._writer.last_report
        attempt = report.get("attempt")
        if (
            isinstance(attempt, int)
            and attempt == history.attempt.number
            and not history.attempt.has_ended
            and not history.attempt.result
        ):
            description = {**read_json_or_empty(self._folder.workers), "attempt": attempt}
            workers = WorkerGroup(self._folder, Placement.from_dict(description))
            if workers.adopt(report, self._spec.services):
                self._writer.count_time_without()
                self._set_workers(workers)
                return True
        end_all(mark_of(self._folder))
        return False

    def _launch(self) -> Cause | None:
        """Start a new attempt: services, helpers, then ranks. Return the cause of a failure."""
        self._writer.move(RunState.STARTING)
        attempt = max(self._writer.look().attempt.number, self._folder.attempts()) + 1
        description = self._describe_attempt(attempt)
        placement = Placement.from_dict(description)
        workers = WorkerGroup(self._folder, placement, is_bound=not self._relaunches_here)
        self._set_workers(workers)
        try:
            self._folder.log(attempt).parent.mkdir(parents=True, exist_ok=True)
            self._folder.stop_request.unlink(missing_ok=True)
            write_json(self._folder.workers, description)
            self._writer.append_event("attempt", attempt=attempt)
            workers.start_services(
                self._spec.services, self._is_stop_requested, lambda: self._writer.beat(workers)
            )
            if not self._is_stop_requested():
                workers.start_helpers(self._spec)
                workers.start_ranks(accept_changes=self._writer.history.accept_changes)
        except ServiceFailed as error:
            lost = workers.lost()  # if the service was killed, a restart may help
            was_killed = lost is not None and (lost.code or 0) < 0
            return Cause("killed" if was_killed else "service", str(error), error="ServiceFailed")
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            message = f"the run's processes cannot be started: {error}"
            return Cause("disk_full" if is_full else "launcher", message, is_retried=not is_full)
        self._writer.beat(workers)
        return None

    def _set_workers(self, workers: WorkerGroup) -> None:
        self._workers = workers
        self._monitor = ProcessMonitor(self._writer, workers, self._spec)
        self._stop_by = None

    def _is_stop_requested(self) -> bool:
        """Whether a stop was requested. Also writes a due heartbeat, because callers poll this."""
        self._writer.beat_if_due(self._workers)
        return self._writer.look().is_stop_requested

    def _describe_attempt(self, attempt: int) -> dict[str, Any]:
        """Return the content of `workers.json`, which other hosts read to join the attempt."""
        training = self._spec if isinstance(self._spec, TrainSpec) else None
        nodes = training.nodes if training else 1
        host, _, port = ((training and training.rendezvous) or "").rpartition(":")
        if nodes > 1 and not host:
            host = os.environ.get(HOST_NAME) or socket.gethostname()
        return {
            "format": 1,
            "attempt": attempt,
            "epoch": self._writer.epoch,
            "address": host or "127.0.0.1",
            "port": int(port) if nodes > 1 and port else free_port(),
            "processes": training.processes if training else 1,
            "nodes": nodes,
            "accept_changes": self._writer.history.accept_changes,
        }

    # ------------------------------------------------------------------ monitoring and ending

    def _wait_for_end(self) -> Cause | None:
        """Monitor the attempt until it ends. Return the cause of a failure; None if the attempt
        completed or stopped."""
        workers, monitor = self._workers, self._monitor
        assert workers is not None
        assert monitor is not None
        while True:
            history = self._writer.look()
            if self._writer.beat_if_due(workers):
                self._enforce_hours()
            if history.is_stop_requested and self._stop_by is None:
                self._request_stop(workers)
            for message in workers.helpers.look():
                self._writer.append_event("warning", message=message)
            if (cause := monitor.find_problem()) is not None:
                return cause
            if monitor.is_done:
                return monitor.final_cause()
            if self._stop_by is not None and time.monotonic() > self._stop_by:
                seconds = self._spec.supervision.stop_timeout
                message = f"the run did not stop within {seconds:g} s and was killed"
                return Cause(_FORCED_STOP, message)
            is_starting = history.state is RunState.STARTING and not history.is_stop_requested
            if monitor.is_working and is_starting:
                self._writer.move(RunState.RUNNING)
            workers.wait(_POLL_SECONDS)

    def _request_stop(self, workers: WorkerGroup) -> None:
        self._stop_by = time.monotonic() + self._spec.supervision.stop_timeout
        self._writer.move(RunState.STOPPING)
        with contextlib.suppress(OSError):
            write_json(self._folder.stop_request, {"format": 1, "time": time.time()})
        workers.request_stop()

    def _end_workers(self) -> None:
        if self._workers is None:
            return
        self._writer.check()
        hosts = self._monitor.hosts if self._monitor else None
        if hosts is not None:
            with contextlib.suppress(OSError):
                write_json(
                    self._folder.workers,
                    {**read_json_or_empty(self._folder.workers), "is_over": True},
                )
        self._writer.beat(self._workers)
        if remaining := self._workers.end():
            message = f"these processes did not end after SIGKILL: {', '.join(remaining)}"
            self._writer.append_event("warning", message=message)
        if hosts is not None:
            hosts.wait_until_ended(10.0, lambda: self._writer.beat_if_due(self._workers))

    def _enforce_hours(self) -> None:
        """Request a stop when the budget of hours is used up."""
        history = self._writer.history
        hours = history.hours if history.life > 1 else self._spec.hours
        if hours and self._writer.seconds > 3600 * float(hours) and not history.is_stop_requested:
            message = f"the run has used up its budget of {float(hours):g} hours"
            self._writer.append_event("warning", message=message)
            self._writer.append_event("stop_requested", reason=message)

    def _pause(self, seconds: float) -> None:
        """Wait before a restart; a stop request ends the wait."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._is_stop_requested():
            time.sleep(_POLL_SECONDS)

    def _end_predecessors(self) -> None:
        """Kill earlier supervisors of this run on this host, which may be suspended or hung. Those
        on other hosts exit at their next write, because their epoch is no longer current."""
        for epoch in range(1, self._writer.epoch):
            if (predecessor := claimant(self._folder, epoch)) is not None:
                predecessor.signal(signal.SIGKILL)


def _stop_message(history: History) -> str:
    if history.stop is not None:
        return history.stop.reason or f"stopped by {history.stop.author}"
    return "a process of the run received a stop signal"


def supervise(path: str, epoch: int, *, relaunches_here: bool = True, job: str = "") -> int:
    """Supervise a run in this process and return the exit code. SIGTERM, SIGINT and SIGHUP are
    ignored. `job` is the id of the scheduler's job that this process belongs to."""
    for stop_signal in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(stop_signal, lambda *_: None)  # child processes would inherit SIG_IGN
    folder = RunFolder(Path(path))
    try:
        code = Supervisor(folder, epoch, relaunches_here=relaunches_here, job=job).run()
    except SparringError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if code != REQUEUE:
        from sparring.runs.queue import reconcile_folder

        try:
            reconcile_folder(folder.path.parent)
        except SparringError as error:
            print(error, file=sys.stderr)  # the run's own result is already in its folder
    return code


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1], int(sys.argv[2])))
