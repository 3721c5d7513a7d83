"""`python -m sparring.runs.supervisor RUN_FOLDER EPOCH`: see one run through to its end.

Starts the run's processes, watches them, starts them again where that can help, and writes what
became of the run. It outlives every command line and server. Nothing depends on its own life:
whatever it knows is in the folder, and the next operation that finds it gone starts another.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from sparring.contracts.errors import ServiceFailed, SparringError
from sparring.contracts.services import Service
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_told, write_json
from sparring.runs.causes import Cause, of_failure
from sparring.runs.claims import claim, claimant
from sparring.runs.desk import Desk, Superseded
from sparring.runs.gang import Gang, Placement, mark_of
from sparring.runs.history import History
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import end_all
from sparring.runs.watch import Watch
from sparring.services import free_port

REQUEUE = 75
_LOOK_SECONDS = 0.2
_MOST_BACKOFF = 60.0
_MOST_TAKEOVERS = 20
_FORCED = "ended"
_CODES = {RunState.COMPLETED: 0, RunState.STOPPED: 103}


class Supervisor:
    """One epoch of one run."""

    def __init__(self, folder: RunFolder, epoch: int, *, relaunches_here: bool = True) -> None:
        self._folder = folder
        self._relaunches_here = relaunches_here
        self._desk = Desk(folder, epoch)
        self._spec: dict[str, Any] = {}
        self._limits: dict[str, Any] = {}
        self._gang: Gang | None = None
        self._watch: Watch | None = None
        self._stop_by: float | None = None

    def run(self) -> int:
        """Claim the run and see it through; the exit code says how the run ended."""
        if not claim(self._folder, self._desk.epoch):
            return 0
        try:
            return self._see_through()
        except Superseded:
            return 0

    # ------------------------------------------------------------------ one life

    def _see_through(self) -> int:
        self._desk.tell("claimed")
        if self._desk.look().state.has_ended:
            return 0
        self._spec = self._folder.read_spec()
        self._limits = dict(self._spec.get("supervision") or {})
        self._desk.set_room_aside()
        self._end_predecessors()
        if self._desk.history.takeovers > _MOST_TAKEOVERS:
            return self._give_up()
        if not self._adopt() and (code := self._conclude_for_predecessor()) is not None:
            return code
        while True:
            problem = None
            if self._gang is None:
                if self._desk.history.is_to_stop:
                    return self._finish(RunState.STOPPED, message=_stopped(self._desk.history))
                problem = self._launch()
            cause = problem or self._watch_over()
            self._end_gang()
            if (code := self._conclude(cause)) is not None:
                return code

    def _conclude(self, cause: Cause | None, *, is_own: bool = True) -> int | None:
        """The exit code where the run is over; None where it starts again. After an attempt that is
        not its own, this supervisor is the one that was started to try again."""
        history = self._desk.history
        if cause is None and history.fact == "completed":
            return self._finish(RunState.COMPLETED)
        if cause is None and not history.is_to_stop and not self._relaunches_here:
            cause = Cause("killed", "asked to end by the scheduler")
        if cause is None or (history.is_to_stop and cause.is_retried):
            told = cause.message if cause and cause.kind == _FORCED else _stopped(history)
            return self._finish(RunState.STOPPED, message=told)
        if not self._may_try_again(cause):
            return self._fail(cause)
        self._desk.tell("restart", cause=cause.kind, message=cause.message, attempt=history.attempt)
        self._desk.move(RunState.STARTING)
        self._gang = None
        if is_own and not self._relaunches_here:
            return REQUEUE
        self._pause(min(_MOST_BACKOFF, 0.5 * 2 ** min(history.restarts, 7)))
        return None

    def _may_try_again(self, cause: Cause) -> bool:
        """Within the budget; and what broke by itself only if it had worked before that."""
        most = int(self._limits.get("restarts", 3))
        if not cause.is_retried or self._desk.history.restarts >= most:
            return False
        by_itself = cause.kind in ("exception", "refused", "service")
        return not by_itself or (self._watch is not None and self._watch.has_worked)

    def _conclude_for_predecessor(self) -> int | None:
        """What became of an attempt whose supervisor did not live to tell."""
        history = self._desk.history
        if history.state is RunState.QUEUED or history.attempt <= history.ended_attempt:
            return None
        cause: Cause | None = Cause("killed", "its processes and their supervisor were gone")
        if history.fact:
            failed = history.fact == "failed"
            cause = of_failure(history, "", self._folder.path) if failed else None
        return self._conclude(cause, is_own=False)

    def _give_up(self) -> int:
        """Something kills whoever looks after this run; it would go on for ever."""
        end_all(mark_of(self._folder))
        log = self._folder.path / "logs" / "supervisor.log"
        message = f"its supervisor died {_MOST_TAKEOVERS} times without a new checkpoint; see {log}"
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
        code = int(data.pop("exit_code", _CODES.get(state, 100)))
        if state is RunState.STOPPED and self._desk.history.state is not RunState.QUEUED:
            self._desk.move(RunState.STOPPING)
        self._desk.move(state, exit_code=code, seconds=round(self._desk.seconds, 1), **data)
        self._desk.beat(self._gang)
        self._desk.clear()
        return code

    # ------------------------------------------------------------------ starting

    def _adopt(self) -> bool:
        """Processes of a predecessor that still live go on under this supervisor."""
        history, told = self._desk.history, self._desk.before
        attempt = told.get("attempt")
        if (
            isinstance(attempt, int)
            and attempt == history.attempt > history.ended_attempt
            and not history.fact
        ):
            gang = Gang(self._folder, _placement(attempt, read_told(self._folder.gang)))
            if gang.adopt(told, self._services()):
                self._take(gang)
                return True
        end_all(mark_of(self._folder))
        return False

    def _launch(self) -> Cause | None:
        """A new attempt: services, then ranks. Returns what went wrong, if anything did."""
        self._desk.move(RunState.STARTING)
        attempt = max(self._desk.look().attempt, self._folder.attempts()) + 1
        plan = self._new_plan(attempt)
        placement = _placement(attempt, plan)
        gang = Gang(self._folder, placement, is_bound=not self._relaunches_here)
        self._take(gang)
        try:
            self._folder.log(attempt).parent.mkdir(parents=True, exist_ok=True)
            self._folder.stop_request.unlink(missing_ok=True)
            write_json(self._folder.gang, plan)
            self._desk.tell("attempt", attempt=attempt)
            gang.start_services(self._services(), self._is_unwanted, lambda: self._desk.beat(gang))
            if not self._is_unwanted():
                gang.start_ranks(accept_changes=self._desk.history.accept_changes)
        except ServiceFailed as error:
            lost = gang.lost()  # killed, it may well come up the next time
            was_killed = lost is not None and (lost.code or 0) < 0
            return Cause("killed" if was_killed else "service", str(error), error="ServiceFailed")
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            told = f"its processes cannot be started: {error}"
            return Cause("disk_full" if is_full else "launcher", told, is_retried=not is_full)
        self._desk.beat(gang)
        return None

    def _take(self, gang: Gang) -> None:
        self._gang = gang
        self._watch = Watch(self._desk, gang, self._spec)
        self._stop_by = None

    def _is_unwanted(self) -> bool:
        """Whether somebody wants the run to stop while it is still being started."""
        self._desk.beat_now_and_then(self._gang)
        return self._desk.look().is_to_stop

    def _new_plan(self, attempt: int) -> dict[str, Any]:
        nodes = int(self._spec.get("nodes", 1))
        host, _, port = str(self._spec.get("rendezvous") or "").rpartition(":")
        if nodes > 1 and not host:
            host = socket.gethostname()
        return {
            "format": 1,
            "attempt": attempt,
            "epoch": self._desk.epoch,
            "address": host or "127.0.0.1",
            "port": int(port) if nodes > 1 and port else free_port(),
            "processes": int(self._spec.get("processes", 1)),
            "nodes": nodes,
            "accept_changes": self._desk.history.accept_changes,
        }

    def _services(self) -> list[Service]:
        return [Service(**each) for each in self._spec.get("services") or ()]

    # ------------------------------------------------------------------ watching and ending

    def _watch_over(self) -> Cause | None:
        """Until the attempt is over: None where it ended well, or as it was asked to."""
        gang, watch = self._gang, self._watch
        assert gang is not None
        assert watch is not None
        while True:
            history = self._desk.look()
            if self._desk.beat_now_and_then(gang):
                self._spend()
            if history.is_to_stop and self._stop_by is None:
                self._ask_to_stop(gang)
            if (cause := watch.wrong()) is not None:
                return cause
            if watch.is_done:
                return watch.judged()
            if self._stop_by is not None and time.monotonic() > self._stop_by:
                seconds = f"{self._stop_seconds:g} s"
                return Cause(_FORCED, f"it did not stop within {seconds}, and was ended")
            if watch.is_working and history.state is RunState.STARTING and not history.is_to_stop:
                self._desk.move(RunState.RUNNING)
            gang.wait(_LOOK_SECONDS)

    def _ask_to_stop(self, gang: Gang) -> None:
        self._stop_by = time.monotonic() + self._stop_seconds
        self._desk.move(RunState.STOPPING)
        with contextlib.suppress(OSError):
            write_json(self._folder.stop_request, {"format": 1, "time": time.time()})
        gang.ask_to_stop()

    @property
    def _stop_seconds(self) -> float:
        return float(self._limits.get("stop_seconds", 600.0))

    def _end_gang(self) -> None:
        if self._gang is None:
            return
        self._desk.check()
        hosts = self._watch.hosts if self._watch else None
        if hosts is not None:
            with contextlib.suppress(OSError):
                write_json(self._folder.gang, {**read_told(self._folder.gang), "is_over": True})
        self._desk.beat(self._gang)
        if stubborn := self._gang.end():
            told = f"processes that would not end: {', '.join(stubborn)}"
            self._desk.tell("warning", message=told)
        if hosts is not None:
            hosts.wait_until_ended(10.0, lambda: self._desk.beat_now_and_then(self._gang))

    def _spend(self) -> None:
        """Hours are a budget: when they are used up, the run stops."""
        history = self._desk.history
        hours = history.hours if history.life > 1 else self._spec.get("hours")
        if hours and self._desk.seconds > 3600 * float(hours) and not history.is_to_stop:
            message = f"its budget of {float(hours):g} hours is used up"
            self._desk.tell("warning", message=message)
            self._desk.tell("stop_requested", reason=message)

    def _pause(self, seconds: float) -> None:
        """Before trying again; a wish to stop does not wait."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._is_unwanted():
            time.sleep(_LOOK_SECONDS)

    def _end_predecessors(self) -> None:
        """One that is stopped, or hangs, on this host; on another, its epoch keeps it from harm."""
        for epoch in range(1, self._desk.epoch):
            if (before := claimant(self._folder, epoch)) is not None:
                before.signal(signal.SIGKILL)


def _placement(attempt: int, plan: dict[str, Any]) -> Placement:
    return Placement(
        attempt=attempt,
        processes=int(plan.get("processes", 1)),
        nodes=int(plan.get("nodes", 1)),
        address=str(plan.get("address", "")),
        port=int(plan.get("port", 0)),
    )


def _stopped(history: History) -> str:
    if history.is_to_stop:
        return history.stop_reason or f"stopped by {history.stop_author}"
    return "its process was asked to stop"


def supervise(path: str, epoch: int, *, relaunches_here: bool = True) -> int:
    """In a process of its own, which nothing but SIGKILL ends."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # ignored, they would be in its children as well
    folder = RunFolder(Path(path))
    try:
        code = Supervisor(folder, epoch, relaunches_here=relaunches_here).run()
    except SparringError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if code != REQUEUE:
        from sparring.runs.queue import start_waiting

        start_waiting(folder.path.parent)
    return code


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1], int(sys.argv[2])))
