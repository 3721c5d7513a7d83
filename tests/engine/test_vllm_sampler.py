"""vLLM in training needs a GPU; these hold what must be true of our side of it."""

from __future__ import annotations

import asyncio
import threading
from array import array

import pytest

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import Finish, SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.engine.vllm_sampler import VllmSampler


class CollectiveGeneration:
    """Like TRL's: returns only when every rank has called, and slices what it made of all
    ranks' prompts by the number of this rank's."""

    def __init__(self, ranks: int, stop: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=10)
        self.stop = stop
        self.calls = [0] * ranks
        self.prompts: list[list[list[int]]] = [[] for _ in range(ranks)]

    def of_rank(self, rank: int):
        outer = self

        class Generation:
            def generate(self, prompts, images, num_generations):
                outer.calls[rank] += 1
                outer.prompts[rank] = prompts
                outer.barrier.wait()
                together = [prompt for each in outer.prompts for prompt in each]
                outer.barrier.wait()
                mine = together[rank * len(prompts) : (rank + 1) * len(prompts)]
                ids = [[prompt[-1], 6, outer.stop] for prompt in mine]
                return prompts, ids, [[[-0.1]] * 3 for _ in prompts], None

        return Generation()


class LargestOfRanks:
    """The largest of one number per rank."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=10)
        self.numbers = [0] * ranks

    def of_rank(self, rank: int):
        def append_event(mine: int) -> int:
            self.numbers[rank] = mine
            self.barrier.wait()
            answer = max(self.numbers)
            self.barrier.wait()
            return answer

        return append_event


def request(turn: int, most: int = 8, last: int = 2) -> SampleRequest:
    key = SampleKey(RolloutKey(0, 0, "c", last), turn)
    return SampleRequest(key, array("i", [1, last]), Sampling(1.0, most))


def test_ranks_with_other_waves_call_equally_often_and_get_their_own_words(codecs):
    codec = codecs["qwen3"]
    generation, largest_of_ranks = CollectiveGeneration(2, codec.end_of_turn), LargestOfRanks(2)

    wrong: list[int] = []

    def play(rank: int, rollouts: int, turns: int) -> None:
        sampler = VllmSampler(generation.of_rank(rank), codec, largest_of_ranks.of_rank(rank))

        async def rollout(last: int) -> None:
            for turn in range(turns):
                sample = await sampler.sample(request(turn, last=last))
                if sample.finish is not Finish.STOP or sample.ids[0] != last:
                    wrong.append(last)
            sampler.leave()

        async def all_of_them() -> None:
            for _ in range(rollouts):
                sampler.join()
            await asyncio.gather(*(rollout(100 * rank + n) for n in range(rollouts)))

        asyncio.run(all_of_them())
        sampler.finish_round()

    shares = ((0, 5, 1), (1, 2, 4))
    ranks = [threading.Thread(target=play, args=share) for share in shares]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(timeout=20)
        assert not each.is_alive()
    assert generation.calls == [4, 4]
    assert not wrong, "a rank got another's words"


def test_a_sample_is_cut_to_what_the_request_has_left(codecs):
    sampler = VllmSampler(
        CollectiveGeneration(1, codecs["qwen3"].end_of_turn).of_rank(0),
        codecs["qwen3"],
        lambda mine: mine,
    )
    sample = asyncio.run(sampler.sample(request(0, most=2)))
    assert sample.ids.tolist() == [2, 6]
    assert sample.finish is Finish.LENGTH


def test_a_token_without_log_probability_is_never_learned_from(codecs):
    class Generation:
        def generate(self, prompts, images, num_generations):
            return prompts, [[5]], [[[None]]], None

    sampler = VllmSampler(Generation(), codecs["qwen3"], lambda mine: mine)
    with pytest.raises(InfrastructureError):
        asyncio.run(sampler.sample(request(0)))
