"""`python -m sparring.runs.supervisor RUN_FOLDER EPOCH`: see one run through to its end.

Starts the run's processes, watches them, starts them again where that can help, and writes what
became of the run. It outlives every command line and server. Nothing depends on its own life:
whatever it knows is in the folder, and the next operation that finds it gone starts another.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparring.contracts.errors import ServiceFailed, SparringError
from sparring.contracts.services import Service
from sparring.run_folder import RunFolder
from sparring.run_folder.events import tell, tell_state
from sparring.run_folder.files import read_json, write_json
from sparring.runs.causes import Cause, Gone, last_lines, memory_kills, of_an_end, of_failure
from sparring.runs.claims import claim, claimant, newest_epoch
from sparring.runs.gang import Gang, Placement, mark_of
from sparring.runs.history import History, Read, read_history
from sparring.runs.hosts import Hosts
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import end_all, identity_of, since_boot
from sparring.runs.stacks import where_it_is
from sparring.runs.vigil import Vigil
from sparring.services import free_port

REQUEUE = 75
_LOOK_SECONDS = 0.2
_BEAT_SECONDS = 1.0
_PROBE_SECONDS = 5.0
_SILENT_SERVICE_SECONDS = 30.0
_UNKNOWN_END_SECONDS = 30.0
_RESERVED = 256 * 1024
_MOST_BACKOFF = 60.0
_MOST_TAKEOVERS = 20
_FORCED = "ended"


class Superseded(Exception):
    """Another supervisor has taken this one's place."""


class Supervisor:
    """One epoch of one run."""

    def __init__(self, folder: RunFolder, epoch: int, *, relaunches_here: bool = True) -> None:
        self._folder = folder
        self._epoch = epoch
        self._relaunches_here = relaunches_here
        self._spec: dict[str, Any] = {}
        self._limits: dict[str, Any] = {}
        self._read = Read()
        self._gang: Gang | None = None
        self._hosts: Hosts | None = None
        self._vigil: Vigil | None = None
        self._beat_at = self._probed_at = self._answered_at = 0.0
        self._stop_by: float | None = None
        self._odd_since: float | None = None
        self._seconds = 0.0
        self._lived = time.monotonic()
        self._kills_before = memory_kills()
        self._first_step: int | None = None
        self._first_checkpoint = 0

    @property
    def _history(self) -> History:
        return self._read.history

    # ------------------------------------------------------------------ one life

    def run(self) -> int:
        """Claim the run and see it through; the exit code says how the run ended."""
        if not claim(self._folder, self._epoch):
            return 0
        try:
            return self._see_through()
        except Superseded:
            return 0

    def _see_through(self) -> int:
        self._tell("claimed")
        self._look()
        if self._history.state.has_ended:
            return 0
        self._spec = self._folder.read_spec()
        self._limits = dict(self._spec.get("supervision") or {})
        self._seconds = self._seconds_before()
        self._set_room_aside()
        self._end_predecessor()
        if self._history.takeovers > _MOST_TAKEOVERS:
            return self._give_up()
        if not self._adopt() and (code := self._conclude_for_predecessor()) is not None:
            return code
        while True:
            problem = None
            if self._gang is None:
                if self._history.is_to_stop:
                    return self._finish(RunState.STOPPED, message=_stopped(self._history))
                problem = self._launch()
            cause = problem or self._watch()
            self._end_gang()
            if (code := self._conclude(cause)) is not None:
                return code

    def _give_up(self) -> int:
        """Something kills whoever looks after this run; it would go on for ever."""
        end_all(mark_of(self._folder))
        message = (
            f"its supervisor died {_MOST_TAKEOVERS} times without a new checkpoint; see "
            f"{self._folder.path / 'logs' / 'supervisor.log'}"
        )
        return self._finish(RunState.FAILED, cause="launcher", message=message, error="RunFailed")

    def _conclude_for_predecessor(self) -> int | None:
        """What became of an attempt whose supervisor did not live to tell."""
        history = self._history
        if history.state is RunState.QUEUED or history.attempt <= history.ended_attempt:
            return None
        if history.fact == "failed":
            return self._conclude(of_failure(history, "", self._folder.path))
        if history.fact:
            return self._conclude(None)
        return self._conclude(Cause("killed", "its processes and their supervisor were gone"))

    def _conclude(self, cause: Cause | None) -> int | None:
        """The exit code where the run is over; None where it starts again."""
        history = self._history
        if cause is None and history.fact == "completed":
            return self._finish(RunState.COMPLETED)
        if cause is None and not history.is_to_stop and not self._relaunches_here:
            cause = Cause("killed", "asked to end by the scheduler")
        if cause is None or (history.is_to_stop and cause.is_retried):
            told = cause.message if cause and cause.kind == _FORCED else _stopped(history)
            return self._finish(RunState.STOPPED, message=told)
        if not self._may_try_again(cause):
            return self._finish(
                RunState.FAILED,
                cause=cause.kind,
                message=cause.message,
                error=cause.error,
                exit_code=cause.exit_code,
            )
        self._tell("restart", cause=cause.kind, message=cause.message, attempt=history.attempt)
        self._move(RunState.STARTING)
        self._gang = None
        if not self._relaunches_here:
            return REQUEUE
        self._pause(min(_MOST_BACKOFF, 0.5 * 2**history.restarts))
        return None

    def _may_try_again(self, cause: Cause) -> bool:
        """Within the budget; and what broke by itself only if it had worked before that."""
        if not cause.is_retried or self._history.restarts >= int(self._limits.get("restarts", 3)):
            return False
        return cause.kind not in ("exception", "refused", "service") or self._has_worked()

    def _has_worked(self) -> bool:
        now = self._vigil.step if self._vigil else None
        has_stepped = None not in (now, self._first_step) and now != self._first_step
        return has_stepped or self._history.checkpoint > self._first_checkpoint

    # ------------------------------------------------------------------ starting

    def _adopt(self) -> bool:
        """Processes of a predecessor that still live go on under this supervisor."""
        told = self._told_by_predecessor()
        attempt = int(told.get("attempt") or 0)
        is_on = attempt == self._history.attempt > self._history.ended_attempt
        if is_on and not self._history.fact:
            gang = Gang(self._folder, self._placement(attempt, _plan(self._folder)))
            if gang.adopt(told, self._services()):
                self._gang = gang
                self._begin_to_watch(attempt)
                return True
        end_all(mark_of(self._folder))
        return False

    def _launch(self) -> Cause | None:
        """A new attempt: services, then ranks. Returns what went wrong, if anything did."""
        attempt = max(self._history.attempt, self._folder.attempts()) + 1
        self._move(RunState.STARTING)
        self._look()
        self._folder.log(attempt).parent.mkdir(parents=True, exist_ok=True)
        self._folder.stop_request.unlink(missing_ok=True)
        self._kills_before = memory_kills()
        plan = self._new_plan(attempt)
        write_json(self._folder.gang, plan)
        self._tell("attempt", attempt=attempt)
        is_bound = not self._relaunches_here
        self._gang = Gang(self._folder, self._placement(attempt, plan), is_bound=is_bound)
        self._begin_to_watch(attempt)
        try:
            self._gang.start_services(self._services(), self._is_unwanted, self._beat)
            if not self._is_unwanted():
                self._gang.start_ranks(accept_changes=self._history.accept_changes)
        except ServiceFailed as error:
            return Cause("service", str(error), error="ServiceFailed")
        except OSError as error:
            return Cause("launcher", f"its processes cannot be started: {error}")
        self._beat()
        return None

    def _is_unwanted(self) -> bool:
        """Whether somebody wants the run to stop while it is still being started."""
        self._look()
        self._beat_now_and_then()
        return self._history.is_to_stop

    def _new_plan(self, attempt: int) -> dict[str, Any]:
        nodes = int(self._spec.get("nodes", 1))
        host, _, port = str(self._spec.get("rendezvous") or "").rpartition(":")
        if nodes > 1 and not host:
            host = socket.gethostname()
        return {
            "format": 1,
            "attempt": attempt,
            "epoch": self._epoch,
            "address": host or "127.0.0.1",
            "port": int(port) if nodes > 1 and port else free_port(),
            "processes": int(self._spec.get("processes", 1)),
            "nodes": nodes,
            "accept_changes": self._history.accept_changes,
        }

    def _placement(self, attempt: int, plan: dict[str, Any]) -> Placement:
        return Placement(
            attempt=attempt,
            processes=int(plan.get("processes", 1)),
            nodes=int(plan.get("nodes", 1)),
            address=str(plan.get("address", "")),
            port=int(plan.get("port", 0)),
        )

    def _begin_to_watch(self, attempt: int) -> None:
        nodes = int(self._spec.get("nodes", 1))
        ranks = range(int(self._spec.get("processes", 1)) * nodes)
        settings = self._spec.get("settings") or self._spec.get("play") or {}
        hung = float(self._limits.get("hung_seconds", 900.0))
        if "hung_seconds" not in (self._spec.get("sources") or {}):
            hung = max(hung, float(settings.get("rollout_seconds", 0)) + 60.0)
        self._vigil = Vigil(
            self._folder,
            attempt,
            ranks,
            hung_seconds=hung,
            start_seconds=float(self._limits.get("start_seconds", 3600.0)),
        )
        self._hosts = Hosts(self._folder, attempt, nodes) if nodes > 1 else None
        self._first_step = None
        self._first_checkpoint = self._history.checkpoint
        self._stop_by = self._odd_since = None
        self._answered_at = time.monotonic()

    def _services(self) -> list[Service]:
        return [Service(**each) for each in self._spec.get("services") or ()]

    # ------------------------------------------------------------------ watching

    def _watch(self) -> Cause | None:
        """Until the gang is over: None where it ended well, or as it was asked to."""
        gang = self._gang
        assert gang is not None
        while True:
            self._look()
            self._beat_now_and_then()
            if self._stop_by is None and self._history.is_to_stop:
                self._ask_to_stop(gang)
            if (cause := self._wrong(gang)) is not None:
                return cause
            if gang.is_done and (self._hosts is None or self._hosts.ranks_are_done):
                self._look()
                return self._judged(gang)
            if self._stop_by is not None and time.monotonic() > self._stop_by:
                seconds = float(self._limits.get("stop_seconds", 600.0))
                return Cause(_FORCED, f"it did not stop within {seconds:g} s, and was ended")
            gang.wait(_LOOK_SECONDS)

    def _wrong(self, gang: Gang) -> Cause | None:
        """What has gone wrong with a gang that is not done."""
        if (gone := gang.lost()) is not None:
            return self._of_the_lost(gone)
        if self._hosts is not None:
            start_seconds = float(self._limits.get("start_seconds", 3600.0))
            if (cause := self._hosts.lost(start_seconds)) is not None:
                return cause
        if self._odd_end(gang):
            return self._of_the_lost(next(each.gone for each in gang.ranks if each.gone))
        vigil = self._vigil
        assert vigil is not None
        vigil.look()
        if vigil.is_working:
            self._first_step = vigil.step if self._first_step is None else self._first_step
            if self._history.state is RunState.STARTING and not self._history.is_to_stop:
                self._move(RunState.RUNNING)
        if (cause := vigil.hung()) is not None:
            gang.dump_stacks()
            told = f"{cause.message}; {where_it_is(gang.ranks[0].log)}"
            return Cause(cause.kind, told, cause.is_retried)
        return self._silent_service(gang)

    def _of_the_lost(self, gone: Gone) -> Cause:
        """The words of whoever failed, which come before its end, or how it ended."""
        self._look()
        if self._vigil is not None:
            self._vigil.look()
        place = self._vigil.place if self._vigil else ""
        if self._history.fact == "failed" and not gone.name.startswith("service-"):
            return of_failure(self._history, place, self._folder.path)
        was_full = memory_kills() > self._kills_before
        cause = of_an_end(gone, place, self._folder.path, was_out_of_memory=was_full)
        if gone.name.startswith("service-"):
            lines = last_lines(gone.log)
            return Cause("killed", f"{cause.message}; the last lines of its log:\n{lines}")
        return cause

    def _odd_end(self, gang: Gang) -> bool:
        """Some ranks have ended without a word, and the others do not follow."""
        some = any(each.gone for each in gang.ranks) and not gang.is_done
        if not some or self._history.fact:
            self._odd_since = None
            return False
        self._odd_since = self._odd_since or time.monotonic()
        return time.monotonic() - self._odd_since > _UNKNOWN_END_SECONDS

    def _silent_service(self, gang: Gang) -> Cause | None:
        now = time.monotonic()
        if now - self._probed_at < _PROBE_SECONDS:
            return None
        self._probed_at = now
        silent = gang.silent_service()
        if not silent:
            self._answered_at = now
        elif now - self._answered_at > _SILENT_SERVICE_SECONDS:
            seconds = f"{now - self._answered_at:.0f} s"
            return Cause("hung", f"{silent} has not answered for {seconds}")
        return None

    def _judged(self, gang: Gang) -> Cause | None:
        """All ranks have ended, none of them badly as far as their codes tell."""
        fact, place = self._history.fact, self._vigil.place if self._vigil else ""
        if fact == "failed":
            return of_failure(self._history, place, self._folder.path)
        if fact in ("completed", "stopped"):
            return None
        gone = gang.ranks[0].gone or Gone(gang.ranks[0].name, None, gang.ranks[0].log)
        was_full = memory_kills() > self._kills_before
        return of_an_end(gone, place, self._folder.path, was_out_of_memory=was_full)

    # ------------------------------------------------------------------ stopping and ending

    def _ask_to_stop(self, gang: Gang) -> None:
        self._stop_by = time.monotonic() + float(self._limits.get("stop_seconds", 600.0))
        self._move(RunState.STOPPING)
        write_json(self._folder.stop_request, {"format": 1, "time": time.time()})
        gang.ask_to_stop()

    def _end_gang(self) -> None:
        if self._gang is None:
            return
        self._check_epoch()
        if self._hosts is not None:
            write_json(self._folder.gang, {**_plan(self._folder), "is_over": True})
        if stubborn := self._gang.end():
            self._tell("warning", message=f"processes that would not end: {', '.join(stubborn)}")
        if self._hosts is not None:
            self._hosts.wait_until_ended(10.0)

    def _finish(self, state: RunState, **data: Any) -> int:
        codes = {RunState.COMPLETED: 0, RunState.STOPPED: 103}
        code = int(data.pop("exit_code", codes.get(state, 100)))
        if state is RunState.STOPPED and self._history.state is not RunState.QUEUED:
            self._move(RunState.STOPPING)
        self._move(state, exit_code=code, seconds=round(self._worked(), 1), **data)
        self._look()
        self._beat()
        self._folder.stop_request.unlink(missing_ok=True)
        self._folder.reserve.unlink(missing_ok=True)
        return code

    def _pause(self, seconds: float) -> None:
        """Before trying again; a wish to stop does not wait."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._is_unwanted():
            time.sleep(_LOOK_SECONDS)

    # ------------------------------------------------------------------ the folder

    def _look(self) -> None:
        self._read = read_history(self._folder, self._read)
        if self._history.epoch > self._epoch:
            raise Superseded

    def _check_epoch(self) -> None:
        if newest_epoch(self._folder) != self._epoch:
            raise Superseded

    def _move(self, state: RunState, **data: Any) -> None:
        self._check_epoch()
        self._look()
        if self._history.state is state:
            return
        self._surely(
            lambda: tell_state(self._folder, state, author="supervisor", epoch=self._epoch, **data)
        )
        self._look()

    def _tell(self, event: str, **data: Any) -> None:
        self._check_epoch()
        self._surely(
            lambda: tell(self._folder, event, author="supervisor", epoch=self._epoch, **data)
        )

    def _surely(self, write: Callable[[], None]) -> None:
        """Write, also to a disk that is full: room was set aside for that."""
        for remaining in range(30, -1, -1):
            try:
                write()
                return
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not remaining:
                    raise
                self._folder.reserve.unlink(missing_ok=True)
                time.sleep(0.1 if remaining == 30 else 2.0)

    def _set_room_aside(self) -> None:
        with contextlib.suppress(OSError):
            self._folder.reserve.write_bytes(os.urandom(_RESERVED))

    def _beat_now_and_then(self) -> None:
        if time.monotonic() - self._beat_at >= _BEAT_SECONDS:
            self._beat()
            self._spend()

    def _beat(self) -> None:
        self._check_epoch()
        self._beat_at = time.monotonic()
        told: dict[str, Any] = {
            "format": 1,
            "epoch": self._epoch,
            "since_boot": since_boot(),
            "time": time.time(),
            "state": self._history.state.value,
            "seconds": round(self._worked(), 1),
            "attempt": self._history.attempt,
            **identity_of(os.getpid()).to_dict(),
            "processes": [],
        }
        if self._gang is not None:
            told |= self._gang.to_dict()
        with contextlib.suppress(OSError):  # a full disk is for others to fail by
            write_json(self._folder.supervisor, told, durable=False)

    def _spend(self) -> None:
        """Hours are a budget: when they are used up, the run stops."""
        hours = self._spec.get("hours")
        if hours and self._worked() > 3600 * float(hours) and not self._history.is_to_stop:
            message = f"its budget of {float(hours):g} hours is used up"
            self._tell("warning", message=message)
            self._tell("stop_requested", reason=message)

    def _worked(self) -> float:
        return self._seconds + time.monotonic() - self._lived

    def _seconds_before(self) -> float:
        """What earlier supervisors have counted. A new life of the run goes on counting."""
        return float(self._told_by_predecessor().get("seconds") or 0.0)

    def _told_by_predecessor(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            return read_json(self._folder.supervisor)
        return {}

    def _end_predecessor(self) -> None:
        """One that is stopped, or hangs, on this host; on another, its epoch keeps it from harm."""
        for epoch in range(1, self._epoch):
            if (before := claimant(self._folder, epoch)) is not None:
                before.signal(signal.SIGKILL)


def _plan(folder: RunFolder) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return read_json(folder.gang)
    return {}


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
