"""Waiting for a lockstep batch does not count against a deadline. The clock here is virtual."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from sparring.player.deadlines import Deadlines


class VirtualTime(asyncio.SelectorEventLoop):
    """A loop that jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__()
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout: float | None) -> Any:
            self._now += timeout or 0.0
            return select(0)

        selector.select = jump

    def time(self) -> float:
        return self._now


def played(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        return runner.run(work)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_work_within_its_deadline_is_left_alone() -> None:
    async def work() -> bool:
        async with Deadlines().within(10) as deadline:
            await asyncio.sleep(9)
        return deadline.expired()

    assert played(work()) is False


def test_work_that_takes_too_long_ends_at_its_deadline_and_the_timeout_knows() -> None:
    async def work() -> tuple[bool, float]:
        with pytest.raises(TimeoutError):
            async with Deadlines().within(10) as deadline:
                await asyncio.sleep(60)
        return deadline.expired(), now()

    expired, ended = played(work())
    assert expired
    assert ended == pytest.approx(10)


def test_a_pause_of_any_length_leaves_the_remaining_time_as_it_was() -> None:
    async def work() -> float:
        deadlines = Deadlines()
        try:
            async with deadlines.within(10):
                await asyncio.sleep(4)
                with deadlines.paused():
                    await asyncio.sleep(1000)
                await asyncio.sleep(60)
        except TimeoutError:
            return now()
        return 0.0

    assert played(work()) == pytest.approx(1010)


def test_a_pause_suspends_all_open_deadlines() -> None:
    async def work() -> tuple[bool, bool, float]:
        deadlines = Deadlines()
        with contextlib.suppress(TimeoutError):
            async with deadlines.within(10) as outer, deadlines.within(5) as inner:
                with deadlines.paused():
                    await asyncio.sleep(100)
                await asyncio.sleep(60)
        return outer.expired(), inner.expired(), now()

    outer, inner, ended = played(work())
    assert (outer, inner) == (False, True)
    assert ended == pytest.approx(105)


def test_a_deadline_that_was_left_during_a_pause_is_not_set_again() -> None:
    async def work() -> bool:
        deadlines = Deadlines()
        async with deadlines.within(5) as deadline:
            pause = deadlines.paused()
            pause.__enter__()
        pause.__exit__(None, None, None)
        await asyncio.sleep(100)
        return deadline.expired()

    assert played(work()) is False


def test_pauses_that_overlap_end_with_the_last_of_them() -> None:
    """Two agents of one rollout wait for batches: one from 0 to 8, the other from 4 to 40."""
    deadlines = Deadlines()

    async def wait(start: float, end: float) -> None:
        await asyncio.sleep(start)
        with deadlines.paused():
            await asyncio.sleep(end - start)

    async def work() -> float:
        with contextlib.suppress(TimeoutError):
            async with deadlines.within(10):
                await asyncio.gather(wait(0, 8), wait(4, 40))
                await asyncio.sleep(60)
        return now()

    assert played(work()) == pytest.approx(50)
