import asyncio
import random
import threading
from array import array

import pytest

from sparring.contracts.policies import Finish, Sample, SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.policies.lockstep import LockstepBatches


def request(case: str, turn: int) -> SampleRequest:
    return SampleRequest(SampleKey(RolloutKey(0, 0, case, 0), turn), array("i", [1]), Sampling())


def sample() -> Sample:
    return Sample(array("i", [1]), array("f", [0.0]), Finish.STOP)


async def play(waves: LockstepBatches, case: str, turns: int, rng: random.Random) -> None:
    try:
        for turn in range(turns):
            await asyncio.sleep(rng.random() * 0.01)
            await waves.sample(request(case, turn))
    finally:
        waves.leave()


def composition(seed: int) -> list[list[tuple]]:
    """The keys of every wave, for rollouts whose tools take random times."""
    seen: list[list[tuple]] = []

    def generate(requests):
        seen.append([each.key.order() for each in requests])
        return [sample() for _ in requests]

    async def run() -> None:
        waves, rng = LockstepBatches(generate), random.Random(seed)
        for _ in range(6):
            waves.join()
        await asyncio.gather(*(play(waves, f"case{n}", 1 + n % 3, rng) for n in range(6)))

    asyncio.run(run())
    return seen


def test_the_composition_of_waves_does_not_depend_on_timing():
    assert composition(1) == composition(2) == composition(3)
    assert [len(batch) for batch in composition(1)] == [6, 4, 2]


def test_a_failure_of_generation_reaches_everyone_who_waits():
    def generate(requests):
        raise RuntimeError("out of memory")

    async def run() -> list:
        waves = LockstepBatches(generate)
        waves.join()
        waves.join()
        return await asyncio.gather(
            waves.sample(request("a", 0)), waves.sample(request("b", 0)), return_exceptions=True
        )

    assert [str(error) for error in asyncio.run(run())] == ["out of memory"] * 2


def test_idle_waits_for_a_batch_whose_rollouts_were_cancelled():
    begun, released, ended = threading.Event(), threading.Event(), []

    def generate(requests):
        begun.set()
        released.wait(10)
        ended.append(len(requests))
        return [sample() for _ in requests]

    async def run() -> None:
        batches = LockstepBatches(generate)
        batches.join()
        asked = asyncio.create_task(batches.sample(request("a", 0)))
        await asyncio.to_thread(begun.wait, 10)
        asked.cancel()
        idle = asyncio.create_task(batches.idle())
        await asyncio.sleep(0)
        assert not idle.done()
        released.set()
        await idle
        assert ended == [1]

    asyncio.run(run())


def test_a_rollout_that_is_cancelled_while_waiting_holds_nobody_up():
    async def run() -> Sample:
        waves = LockstepBatches(lambda requests: [sample() for _ in requests])
        waves.join()
        waves.join()
        waves.join()
        first = asyncio.create_task(waves.sample(request("a", 0)))
        second = asyncio.create_task(waves.sample(request("b", 0)))
        await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        waves.leave()
        waves.leave()
        return await asyncio.wait_for(second, 1)

    assert asyncio.run(run()).finish is Finish.STOP
