"""Writes the progress file of a run that plays rollouts; cancels the work on a stop request."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sparring.contracts.rollouts import Rollout
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json

_BEAT_SECONDS = 0.5
_ROUNDING = 1e-9  # of a reward that is a sum of weighted scores


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


class ProgressHeartbeat:
    """Writes the run's progress every 0.5 s. `earlier_tokens` counts tokens of earlier attempts."""

    def __init__(
        self, folder: RunFolder, progress: Progress, tokens_drawn: Callable[[], int]
    ) -> None:
        self._folder = folder
        self._progress = progress
        self._tokens_drawn = tokens_drawn
        self.earlier_tokens = 0
        self.doing = ""
        self._start: tuple[float, int] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write progress within the context. A stop request cancels the calling task; logged
        rollouts stay, and the run can be resumed."""
        beats = asyncio.create_task(self._keep_beating(asyncio.current_task()))
        try:
            yield
        finally:
            beats.cancel()
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
            "doing": self.doing,
            "seconds_left": self._seconds_left(),
        }
        write_json(self._folder.heartbeat, beat, durable=False)

    def restart_estimate(self) -> None:
        """Base the estimate of the time left on rollouts that are counted after this call."""
        self._start = None

    def _seconds_left(self) -> float | None:
        """Return the seconds left at the pace of this process; None until it has counted a
        rollout."""
        progress, now = self._progress, time.monotonic()
        if self._start is None:
            self._start = now, progress.rollouts
        since, before = self._start
        played = progress.rollouts - before
        if not played:
            return None
        return round((now - since) / played * (progress.total - progress.rollouts), 1)
