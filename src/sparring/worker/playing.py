"""What a run tells while it plays: a heartbeat, and whether somebody wants it to stop."""

from __future__ import annotations

import asyncio
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


@dataclass(slots=True)
class Progress:
    """How far playing has come."""

    total: int
    rollouts: int = 0
    sampled_tokens: int = 0
    passed: int = 0

    def count(self, rollout: Rollout) -> None:
        self.rollouts += 1
        self.sampled_tokens += rollout.tokens.sampled
        self.passed += rollout.reward == 1.0


class Beats:
    """Writes the heartbeat of a run that plays."""

    def __init__(
        self, folder: RunFolder, progress: Progress, tokens_drawn: Callable[[], int]
    ) -> None:
        self._folder = folder
        self._progress = progress
        self._tokens_drawn = tokens_drawn
        self.kept_tokens = 0
        self.doing = ""
        self._began: tuple[float, int] | None = None

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """While inside, whoever asks the run to stop has the work cancelled: what was logged
        stays, and the run can go on."""
        beat = asyncio.create_task(self._beat(asyncio.current_task()))
        try:
            yield
        finally:
            beat.cancel()
            self.write()

    async def _beat(self, work: asyncio.Task[Any] | None) -> None:
        while True:
            self.write()
            if self._folder.stop_request.exists() and work is not None:
                work.cancel()
            await asyncio.sleep(_BEAT_SECONDS)

    def write(self) -> None:
        progress = self._progress
        drawn = self.kept_tokens + self._tokens_drawn()
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

    def _seconds_left(self) -> float | None:
        """At the pace since playing began in this process; None where nothing is played yet."""
        progress, now = self._progress, time.monotonic()
        if self._began is None:
            self._began = now, progress.rollouts
        since, before = self._began
        played = progress.rollouts - before
        if not played:
            return None
        return round((now - since) / played * (progress.total - progress.rollouts), 1)
