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

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend all open timeouts for the duration of the block."""
        clock = asyncio.get_running_loop().time
        started = clock()
        paused = [
            (timeout, when - started)
            for timeout in self._open
            if not timeout.expired() and (when := timeout.when()) is not None
        ]
        for timeout, _ in paused:
            timeout.reschedule(None)
        try:
            yield
        finally:
            for timeout, remaining in paused:
                if timeout in self._open and not timeout.expired():
                    timeout.reschedule(clock() + remaining)
