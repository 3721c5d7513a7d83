"""Limits the rollouts that are played at the same time, over all batches of a player."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class Slots:
    """At most `number` rollouts at once. A free slot goes to the rollout of the earliest step that
    waits, and among those to the first that came, so that no batch waits for a later one."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._arrivals = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def slot(self, step: int) -> AsyncIterator[None]:
        """Wait for a slot, and hold it while inside."""
        await self._acquire(step)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, step: int) -> None:
        if self._free:  # then nobody waits
            self._free -= 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (step, next(self._arrivals), granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # granted and cancelled at once
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            _, _, granted = heapq.heappop(self._waiting)
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1
