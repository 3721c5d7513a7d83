"""A process that works on a run: its hold on the run, its events, its heartbeat, its progress.

A worker's heartbeat holds its process id, a progress counter, and its current activity. A thread
writes it from the start of the process, before heavy imports. The supervisor considers a process
hung when its progress counter stops growing. The thread also ends the process if a newer attempt
has replaced it, or if the run's folder is gone. With several hosts, the run's folder is on a file
server: ranks other than 0 write to a local folder (see `run_folder.events`), and the thread
makes these two checks less often.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.errors import SparringError
from sparring.contracts.rollouts import Rollout
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, heartbeat_file, local_heartbeats, note_change
from sparring.run_folder.files import read_json, write_json

_TRIES = 25


@contextmanager
def hold_run(folder: RunFolder) -> Iterator[None]:
    """Hold the run's lock, because a second writer would corrupt the run.

    Processes that read the run's state also take the lock for an instant, so this function retries
    for half a second, and then raises SparringError.
    """
    with folder.lock.open("a") as file:
        for remaining in range(_TRIES, -1, -1):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not remaining:
                    raise SparringError(
                        f"run {folder.id} is in use by another process; wait for it, or stop it"
                    ) from None
                time.sleep(0.02)
        yield


def report_event(folder: RunFolder, name: str, **data: Any) -> None:
    """Append an event to the run's history, from which the supervisor derives the run's state."""
    attempt = supervised_attempt()
    origin = {} if attempt is None else {"attempt": attempt}
    append_event(folder, name, author="worker", **{**origin, **data})
    if attempt is None and name in ("started", "completed", "stopped", "failed"):
        note_change(folder)  # otherwise the supervisor does this


def supervised_attempt() -> int | None:
    """Return the attempt that this process belongs to; None without a supervisor."""
    value = os.environ.get("SPARRING_ATTEMPT")
    return int(value) if value else None


SUPERSEDED = 75
_BEAT_SECONDS = 0.5
_MINIMUM_SECONDS = 0.05
_LOCAL_BEATS_PER_LOOK = 20
_ROUNDING = 1e-9  # of a reward that is a sum of weighted scores


class Heartbeat:
    """Writes the heartbeat file of one process of a run."""

    def __init__(self, folder: RunFolder, rank: int, attempt: int | None) -> None:
        self._folder = folder
        local = local_heartbeats()
        self._file = heartbeat_file(folder, rank, local)
        self._beats_per_look = 1 if local is None else _LOCAL_BEATS_PER_LOOK
        self._attempt = attempt
        self._doing = "starting"
        self._notes = 0
        self._beats = 0
        self._last_beat = 0.0
        self._step: int | None = None
        self._counters: list[Callable[[], int]] = []
        self._folder_identity: tuple[int, int] | None = None  # known once it has begun
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, daemon=True)

    def begin(self) -> None:
        """Write the first beat and start the thread. The run's folder must exist."""
        self._folder_identity = _identity(self._folder.path)
        self._beat()
        self._thread.start()

    def end(self) -> None:
        """Stop the thread."""
        self._done.set()

    def note(self, doing: str, step: int | None = None) -> None:
        """Count one unit of progress and set the current activity. The beat is written at once,
        unless the last one is less than 0.05 s old, so that the file of a process that dies shows
        its last activity. Before `begin`, nothing is written: the folder may not exist yet."""
        self._doing = doing
        self._notes += 1
        self._step = self._step if step is None else step
        has_begun = self._folder_identity is not None
        if has_begun and time.monotonic() - self._last_beat > _MINIMUM_SECONDS:
            self._beat()

    def watch(self, counter: Callable[[], int]) -> None:
        """Add a counter, such as sampled tokens or played rollouts, to the progress counter."""
        self._counters.append(counter)

    def _keep_beating(self) -> None:
        while not self._done.wait(_BEAT_SECONDS):
            self._beat()
            if self._beats % self._beats_per_look:
                continue
            if self._is_superseded() or self._has_lost_folder():
                os._exit(SUPERSEDED)  # writes of this process would damage a newer attempt

    def _beat(self) -> None:
        self._beats += 1
        self._last_beat = time.monotonic()
        beat: dict[str, Any] = {
            "format": 1,
            "pid": os.getpid(),
            "attempt": self._attempt,
            "beats": self._beats,
            "progress": self._notes + sum(counter() for counter in self._counters),
            "doing": self._doing,
            "step": self._step,
        }
        if self._file.is_relative_to(self._folder.path) and self._has_lost_folder():
            return
        with contextlib.suppress(OSError):
            write_json(self._file, beat, durable=False)

    def _has_lost_folder(self) -> bool:
        """Return whether the run's folder was removed or replaced by another of the same name."""
        try:
            return _identity(self._folder.path) != self._folder_identity
        except FileNotFoundError:
            return True
        except OSError:  # a file server may be unreachable for a moment
            return False

    def _is_superseded(self) -> bool:
        if self._attempt is None:
            return False
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(read_json(self._folder.workers)["attempt"]) > self._attempt
        return False


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


@dataclass(slots=True)
class Progress:
    """Counts of the rollouts played so far."""

    total: int
    rollouts: int = 0
    sampled_tokens: int = 0
    passed: int = 0

    def count(self, rollout: Rollout) -> None:
        """Add one rollout."""
        self.rollouts += 1
        self.sampled_tokens += rollout.tokens.sampled
        self.passed += rollout.reward is not None and rollout.reward > 1 - _ROUNDING


@dataclass(slots=True)
class PlayClock:
    """Estimates the seconds left of a play. `block` rollouts are played at once and end at about
    the same time, so the pace is known once a whole block has ended. `limit` is the number of
    seconds after which the play ends in any case, and `rest` the work after it, in rollouts."""

    block: int = 1
    limit: float | None = None
    rest: float = 0.0
    _start: tuple[float, int] | None = None
    _blocks: int = 0
    _pace: float = 0.0  # seconds per rollout, over the blocks that have ended

    def start(self, rollouts: int) -> None:
        """Start the clock, unless it runs. `rollouts` is the number played by earlier attempts."""
        self._start = self._start or (time.monotonic(), rollouts)

    def left(self, rollouts: int, total: int) -> float | None:
        """Return the seconds left after this number of rollouts; None if they are unknown."""
        if self._start is None:
            return None
        since, earlier = self._start
        elapsed, played = time.monotonic() - since, rollouts - earlier
        if played // self.block > self._blocks:
            self._blocks, self._pace = played // self.block, elapsed / played
        if not self._blocks:
            return None
        # A block that takes longer than the ones before it lowers the pace while it is played.
        pace = max(self._pace, elapsed / ((self._blocks + 1) * self.block))
        left = 0.0
        if rollouts < total:
            left = max(0.0, pace * (total - earlier) - elapsed)
            left = left if self.limit is None else min(left, self.limit - elapsed)
        left += pace * self.rest
        return round(left, 1) if left > 0 else None


class ProgressHeartbeat:
    """Writes the run's progress every 0.5 s. `earlier_tokens` counts tokens of earlier attempts.
    `left` replaces the clock's estimate once something else than playing is left to do."""

    def __init__(
        self,
        folder: RunFolder,
        progress: Progress,
        tokens_drawn: Callable[[], int],
        clock: PlayClock | None = None,
    ) -> None:
        self._folder = folder
        self._progress = progress
        self._tokens_drawn = tokens_drawn
        self._clock = clock or PlayClock()
        self._is_over = False
        self.earlier_tokens = 0
        self.left: float | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write progress within the context. A stop request cancels the calling task; logged
        rollouts stay, and the run can be resumed."""
        beats = asyncio.create_task(self._keep_beating(asyncio.current_task()))
        try:
            yield
        finally:
            beats.cancel()
            self._is_over = True
            self._try_to_write()

    async def _keep_beating(self, work: asyncio.Task[Any] | None) -> None:
        while True:
            self._try_to_write()
            if self._folder.stop_request.exists() and work is not None:
                work.cancel()
                work = None  # a second cancellation would interrupt the end of the worlds
            await asyncio.sleep(_BEAT_SECONDS)

    def _try_to_write(self) -> None:
        with contextlib.suppress(OSError):  # the next beat writes again
            self.write()

    def write(self) -> None:
        """Write the progress file now."""
        progress = self._progress
        drawn = self.earlier_tokens + self._tokens_drawn()
        beat = {
            "format": 1,
            "pid": os.getpid(),
            "time": time.time(),
            "rollouts": progress.rollouts,
            "total": progress.total,
            "sampled_tokens": max(progress.sampled_tokens, drawn),
            "passed": progress.passed,
            "seconds_left": self.left
            if self._is_over
            else self._clock.left(progress.rollouts, progress.total),
        }
        write_json(self._folder.heartbeat, beat, durable=False)

    def start_clock(self) -> None:
        """Estimate the remaining time from the rollouts counted after this call."""
        self._clock.start(self._progress.rollouts)
