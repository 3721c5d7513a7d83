"""Limits the number of rollouts that all batches of a player have in flight."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class Slots:
    """A semaphore of `number` slots with priorities. A free slot goes to the waiting rollout of the
    lowest step, first come first served, so that no batch waits for a later one."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._arrivals = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def slot(self, step: int) -> AsyncIterator[None]:
        """Wait for a slot and hold it for the duration of the block."""
        await self._acquire(step)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, step: int) -> None:
        if self._free:  # a slot is free only if no rollout waits
            self._free -= 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (step, next(self._arrivals), granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # cancelled after the grant
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            _, _, granted = heapq.heappop(self._waiting)
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1
