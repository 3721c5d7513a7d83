"""Keeps an agent's connections open while any batch of its rollouts is being played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager


class SharedOpening:
    """Enters a context for the first user and exits it after the last.

    A dedicated task enters and exits the context: connections must be closed by the task that
    opened them, and overlapping batches end in any order.
    """

    def __init__(self, context: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._context = context
        self._users = 0
        self._over = asyncio.Event()
        self._opened: asyncio.Future[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Keep the context open for the duration of the block. An exception raised on entering the
        context is raised here."""
        if not self._users:
            loop = asyncio.get_running_loop()
            self._over, self._opened = asyncio.Event(), loop.create_future()
            self._keeper = loop.create_task(self._keep(self._keeper, self._opened, self._over))
        opened, keeper, over = self._opened, self._keeper, self._over
        self._users += 1
        try:
            assert opened is not None
            await asyncio.shield(opened)
            yield
        finally:
            self._users -= 1
            if not self._users:
                over.set()
                assert keeper is not None
                await asyncio.shield(keeper)

    async def _keep(
        self,
        before: asyncio.Task[None] | None,
        opened: asyncio.Future[None],
        over: asyncio.Event,
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        try:
            async with self._context():
                opened.set_result(None)
                await over.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)
