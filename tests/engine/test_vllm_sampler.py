"""vLLM in training needs a GPU; these hold what must be true of our side of it."""

from __future__ import annotations

import asyncio
import threading
from array import array

import pytest

from sparring.contracts.errors import MachineryFailure
from sparring.contracts.policies import Finish, SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.engine.vllm_sampler import VllmSampler


class CollectiveGeneration:
    """Like TRL's: returns only when every rank has called."""

    def __init__(self, ranks: int, stop: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=10)
        self.stop = stop
        self.calls = [0] * ranks

    def of_rank(self, rank: int):
        outer = self

        class Generation:
            def generate(self, prompts, images, num_generations):
                outer.calls[rank] += 1
                outer.barrier.wait()
                ids = [[5, 6, outer.stop] for _ in prompts]
                return prompts, ids, [[[-0.1]] * 3 for _ in prompts], None

        return Generation()


class Exchange:
    """An all-gather of one flag per rank."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=10)
        self.flags = [False] * ranks

    def of_rank(self, rank: int):
        def tell(busy: bool) -> bool:
            self.flags[rank] = busy
            self.barrier.wait()
            answer = any(self.flags)
            self.barrier.wait()
            return answer

        return tell


def request(turn: int, most: int = 8) -> SampleRequest:
    key = SampleKey(RolloutKey(0, 0, "c", 0), turn)
    return SampleRequest(key, array("i", [1, 2]), Sampling(1.0, most))


def test_ranks_with_different_numbers_of_waves_call_equally_often(codecs):
    codec = codecs["qwen3"]
    generation, exchange = CollectiveGeneration(2, codec.end_of_turn), Exchange(2)

    def play(rank: int, turns: int) -> None:
        sampler = VllmSampler(generation.of_rank(rank), codec, exchange.of_rank(rank))

        async def rollout() -> None:
            sampler.join()
            for turn in range(turns):
                assert (await sampler.sample(request(turn))).finish is Finish.STOP
            sampler.leave()

        asyncio.run(rollout())
        sampler.finish_round()

    ranks = [threading.Thread(target=play, args=(rank, turns)) for rank, turns in ((0, 1), (1, 4))]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(timeout=20)
        assert not each.is_alive()
    assert generation.calls == [4, 4]


def test_a_sample_is_cut_to_what_the_request_has_left(codecs):
    sampler = VllmSampler(
        CollectiveGeneration(1, codecs["qwen3"].end_of_turn).of_rank(0),
        codecs["qwen3"],
        lambda busy: busy,
    )
    sample = asyncio.run(sampler.sample(request(0, most=2)))
    assert sample.ids.tolist() == [5, 6]
    assert sample.finish is Finish.LENGTH


def test_a_token_without_log_probability_is_never_learned_from(codecs):
    class Generation:
        def generate(self, prompts, images, num_generations):
            return prompts, [[5]], [[[None]]], None

    sampler = VllmSampler(Generation(), codecs["qwen3"], lambda busy: busy)
    with pytest.raises(MachineryFailure):
        asyncio.run(sampler.sample(request(0)))
