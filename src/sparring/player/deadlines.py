"""Deadlines of one rollout, which stand still while it waits for a wave.

How long a wave takes depends on the machine and on the other rollouts in it. Counting it
would let the speed of the machine decide which rollouts are cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class Deadlines:
    """The timeouts that are open in one rollout, innermost last."""

    def __init__(self) -> None:
        self._open: list[asyncio.Timeout] = []

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Like `asyncio.timeout`; ask the timeout itself whether it expired."""
        async with asyncio.timeout(seconds) as timeout:
            self._open.append(timeout)
            try:
                yield timeout
            finally:
                self._open.remove(timeout)

    @contextmanager
    def paused(self) -> Iterator[None]:
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
            for timeout, left in paused:
                if timeout in self._open and not timeout.expired():
                    timeout.reschedule(clock() + left)
