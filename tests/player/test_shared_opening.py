"""What an agent needs is opened for the first batch and closed after the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sparring.player.shared_opening import SharedOpening


class Connection:
    def __init__(self, error: Exception | None = None) -> None:
        self.log: list[str] = []
        self.tasks: list[object] = []
        self._error = error

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        self.tasks.append(asyncio.current_task())
        if self._error is not None:
            raise self._error
        self.log.append("open")
        try:
            yield
        finally:
            await asyncio.sleep(0)
            self.log.append("closed")
            self.tasks.append(asyncio.current_task())


def test_batches_that_overlap_share_one_opening() -> None:
    connection = Connection()

    async def batch(opening: SharedOpening, ready: asyncio.Event, over: asyncio.Event) -> None:
        async with opening.used():
            ready.set()
            await over.wait()
            assert connection.log == ["open"]

    async def run() -> None:
        opening = SharedOpening(connection)
        events = [(asyncio.Event(), asyncio.Event()) for _ in range(2)]
        tasks = [asyncio.create_task(batch(opening, *each)) for each in events]
        for ready, _ in events:
            await ready.wait()
        events[0][1].set()
        await tasks[0]
        assert connection.log == ["open"]
        events[1][1].set()
        await tasks[1]

    asyncio.run(run())
    assert connection.log == ["open", "closed"]
    assert connection.tasks[0] is connection.tasks[1]


def test_a_batch_that_comes_while_another_closes_opens_anew() -> None:
    connection = Connection()

    async def run() -> None:
        opening = SharedOpening(connection)

        async def batch() -> None:
            async with opening.used():
                await asyncio.sleep(0)

        first = asyncio.create_task(batch())
        while "closed" not in connection.log:
            await asyncio.sleep(0)
            if opening._over.is_set():
                await batch()
        await first

    asyncio.run(run())
    assert connection.log == ["open", "closed"] * (len(connection.log) // 2)
    assert len(connection.log) >= 4


def test_an_error_of_opening_reaches_every_batch_and_the_next_one_tries_again() -> None:
    connection = Connection(ValueError("no server"))

    async def run() -> None:
        opening = SharedOpening(connection)
        for _ in range(2):
            with pytest.raises(ValueError, match="no server"):
                async with opening.used():
                    pass

    asyncio.run(run())
    assert len(connection.tasks) == 2
