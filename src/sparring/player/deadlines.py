"""Deadlines of one rollout, paused while it waits for a lockstep batch.

The duration of a batch depends on the machine and on the other rollouts in the batch. If the wait
counted, the speed of the machine would decide which rollouts time out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class Deadlines:
    """The open timeouts of one rollout, innermost last."""

    def __init__(self) -> None:
        self._open: list[asyncio.Timeout] = []
        self._remaining: dict[asyncio.Timeout, float] = {}  # of those that are suspended
        self._pauses = 0

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Limit the block to `seconds`, as `asyncio.timeout` does, and yield the timeout. Time
        inside `paused` does not count."""
        async with asyncio.timeout(seconds) as timeout:
            self._open.append(timeout)
            try:
                yield timeout
            finally:
                self._open.remove(timeout)
                self._remaining.pop(timeout, None)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend all open timeouts for the duration of the block. If blocks overlap, because parts
        of the rollout wait at once, the timeouts resume when the last one ends."""
        clock = asyncio.get_running_loop().time
        for timeout in self._open:
            if not timeout.expired() and (when := timeout.when()) is not None:
                self._remaining[timeout] = when - clock()
                timeout.reschedule(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                for timeout, remaining in self._remaining.items():
                    if not timeout.expired():
                        timeout.reschedule(clock() + remaining)
                self._remaining.clear()
