"""Slots: never more than their number, the earliest step first."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from sparring.player.slots import Slots

plays = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.booleans()), max_size=12)


@given(st.integers(1, 4), plays)
def test_no_more_than_the_number_play_and_all_that_are_not_cancelled_do(
    number: int, wanted: list[tuple[int, int, bool]]
) -> None:
    inside, most, done = 0, 0, []

    async def play(slots: Slots, place: int, step: int, rounds: int) -> None:
        nonlocal inside, most
        async with slots.slot(step):
            inside += 1
            most = max(most, inside)
            for _ in range(rounds):
                await asyncio.sleep(0)
            inside -= 1
            done.append(place)

    async def run() -> None:
        slots = Slots(number)
        tasks = [
            asyncio.create_task(play(slots, place, step, rounds))
            for place, (step, rounds, _) in enumerate(wanted)
        ]
        doomed = [task for task, (_, _, dies) in zip(tasks, wanted, strict=True) if dies]
        for task in doomed:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(number):  # every slot is free again
            await asyncio.wait_for(slots._acquire(0), 1)

    asyncio.run(run())
    assert most <= number
    assert sorted(done) == [place for place, (_, _, dies) in enumerate(wanted) if not dies]


def test_a_free_slot_goes_to_the_earliest_step() -> None:
    order: list[int] = []

    async def play(slots: Slots, step: int) -> None:
        async with slots.slot(step):
            order.append(step)
            await asyncio.sleep(0)

    async def run() -> None:
        slots = Slots(1)
        await asyncio.gather(*(play(slots, step) for step in (5, 7, 6, 5, 4)))

    asyncio.run(run())
    assert order == [5, 4, 5, 6, 7]


def test_a_rollout_that_is_cancelled_when_it_gets_a_slot_gives_it_back() -> None:
    async def run() -> None:
        slots = Slots(1)
        holder = slots.slot(0)
        await holder.__aenter__()
        waiting = asyncio.create_task(slots._acquire(0))
        await asyncio.sleep(0)
        await holder.__aexit__(None, None, None)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(slots._acquire(0), 1)

    asyncio.run(run())
