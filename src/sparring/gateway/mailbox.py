"""Runs functions on the event loop of another thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Mailbox:
    """Runs functions on one event loop, in the order in which other threads post them.

    Waiting functions share one wakeup, because a wakeup costs a system call on both sides. A
    function must not raise.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def post(self, function: Callable[[], None]) -> None:
        """Have the loop call this function soon; raises RuntimeError if the loop is closed."""
        self._waiting.append(function)
        if self._is_scheduled:
            return
        self._is_scheduled = True
        try:
            self.loop.call_soon_threadsafe(self._empty)
        except RuntimeError:
            self._is_scheduled = False
            self._waiting.clear()
            raise

    def _empty(self) -> None:
        self._is_scheduled = False  # first, so that the next post wakes the loop again
        while self._waiting:
            self._waiting.popleft()()
