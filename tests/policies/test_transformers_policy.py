"""A policy with weights in this process samples in lockstep batches, as the trainer computes."""

from __future__ import annotations

import asyncio
import random
import threading
from array import array
from pathlib import Path
from typing import Any

import pytest
import torch

from sparring.contracts.policies import (
    Finish,
    Sample,
    SampleKey,
    SampleRequest,
    Sampling,
    is_played_in_lockstep,
)
from sparring.contracts.rollouts import RolloutKey
from sparring.policies import transformers_policy
from sparring.policies.caches import bytes_per_token
from sparring.policies.cpu_forward import MOST_ROWS, speeds_up
from sparring.policies.families import family_named
from sparring.policies.generation import generate
from sparring.policies.transformers_policy import LockstepBatches, TransformersPolicy
from tests.families import FORGETFUL


@pytest.fixture(scope="module")
def loaded(tiny_folder: Path) -> TransformersPolicy:
    return TransformersPolicy.load(str(tiny_folder), device="cpu")


def request(index: int = 0, most: int = 4, temperature: float = 0.0) -> SampleRequest:
    key = SampleKey(RolloutKey(0, 0, "c", index), 0)
    return SampleRequest(key, array("i", [5, 6, 7]), Sampling(temperature, most))


def played(policy: TransformersPolicy, requests: list[SampleRequest]) -> list[Sample]:
    """As rollouts that ask once and leave."""

    async def play(each: SampleRequest) -> Sample:
        try:
            return await policy.sample(each)
        finally:
            policy.leave()

    async def play_all() -> list[Sample]:
        for _ in requests:
            policy.join()
        return list(await asyncio.gather(*map(play, requests)))

    return asyncio.run(play_all())


def test_a_loaded_model_is_recognised_and_ready_to_sample(
    loaded: TransformersPolicy, tiny_folder: Path
) -> None:
    assert loaded.name == str(tiny_folder)
    assert loaded.codec.family is family_named("qwen3")
    assert loaded.model.dtype is torch.float32
    assert not loaded.model.training
    assert is_played_in_lockstep(loaded)


def test_a_dtype_and_a_family_that_are_given_are_used(tiny_folder: Path) -> None:
    policy = TransformersPolicy.load(
        str(tiny_folder), family=FORGETFUL, dtype="bfloat16", device="cpu"
    )
    assert policy.model.dtype is torch.bfloat16
    assert policy.codec.family is FORGETFUL


def test_a_model_in_training_mode_is_taken_out_of_it(loaded: TransformersPolicy) -> None:
    policy = TransformersPolicy(loaded.model.train(), loaded.tokenizer)
    assert not policy.model.training
    assert policy.name == "in-process"


@pytest.mark.parametrize("size", [1, 2, 128])
def test_each_request_gets_its_own_sample_whatever_the_batch_size(
    loaded: TransformersPolicy, size: int
) -> None:
    policy = TransformersPolicy(loaded.model, loaded.tokenizer, batch_size=size)
    samples = played(policy, [request(n, most=n + 1) for n in range(5)])
    longest = samples[-1].ids
    for n, sample in enumerate(samples):
        assert sample.ids == longest[: n + 1]
        assert len(sample.ids) == n + 1 or sample.finish is Finish.STOP


def test_the_caches_of_a_batch_stay_within_a_limit_on_a_cpu(
    loaded: TransformersPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [request(n, most=8, temperature=1.0) for n in range(7)]
    together = played(loaded, requests)
    sizes: list[int] = []

    def counted(model: Any, batch: Any, *rest: Any) -> Any:
        sizes.append(len(batch))
        return generate(model, batch, *rest)

    longest = max(len(each.prompt) for each in requests) + 8
    limit = 3 * longest * bytes_per_token(loaded.model)
    monkeypatch.setattr(transformers_policy, "_CPU_LIMIT", limit)
    monkeypatch.setattr(transformers_policy, "generate", counted)
    assert [each.ids for each in played(loaded, requests)] == [each.ids for each in together]
    assert sizes == [3, 3, 1]
    monkeypatch.setattr(transformers_policy, "_CPU_LIMIT", 1)
    sizes.clear()
    assert len(played(loaded, requests)) == 7
    assert sizes == [1] * 7


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_batches_are_split_where_small_ones_are_faster(
    loaded: TransformersPolicy, monkeypatch: pytest.MonkeyPatch, autocast: torch.dtype | None
) -> None:
    sizes: list[int] = []

    def counted(model: Any, batch: Any, *rest: Any) -> Any:
        sizes.append(len(batch))
        return generate(model, batch, *rest)

    monkeypatch.setattr(transformers_policy, "generate", counted)
    policy = TransformersPolicy(loaded.model, loaded.tokenizer, autocast=autocast)
    played(policy, [request(n, most=1) for n in range(MOST_ROWS + 4)])
    assert sizes == ([60] if autocast or not speeds_up(loaded.model) else [30, 30])


def test_drawn_tokens_are_counted(loaded: TransformersPolicy) -> None:
    policy = TransformersPolicy(loaded.model, loaded.tokenizer, batch_size=2)
    samples = played(policy, [request(n, temperature=1.0) for n in range(3)])
    assert policy.tokens_drawn == sum(len(sample.ids) for sample in samples)


def test_equal_requests_are_sampled_alike(loaded: TransformersPolicy) -> None:
    requests = [request(n, temperature=1.0) for n in range(6)]
    assert played(loaded, requests) == played(loaded, requests)


def test_autocast_samples_in_the_precision_of_the_trainer(
    loaded: TransformersPolicy, tiny_folder: Path
) -> None:
    seen: list[torch.dtype] = []
    policy = TransformersPolicy(loaded.model, loaded.tokenizer, autocast=torch.bfloat16)
    hook = loaded.model.model.layers[0].self_attn.q_proj.register_forward_hook(
        lambda _module, _given, found: seen.append(found.dtype)
    )
    played(policy, [request(most=1)])
    played(loaded, [request(most=1)])
    hook.remove()
    assert seen == [torch.bfloat16, torch.float32]


def turn_of(case: str, turn: int) -> SampleRequest:
    return SampleRequest(SampleKey(RolloutKey(0, 0, case, 0), turn), array("i", [1]), Sampling())


def sample() -> Sample:
    return Sample(array("i", [1]), array("f", [0.0]), Finish.STOP)


async def play(batches: LockstepBatches, case: str, turns: int, rng: random.Random) -> None:
    try:
        for turn in range(turns):
            await asyncio.sleep(rng.random() * 0.01)
            await batches.sample(turn_of(case, turn))
    finally:
        batches.leave()


def composition(seed: int) -> list[list[tuple]]:
    """The keys of every batch, for rollouts whose tools take random times."""
    seen: list[list[tuple]] = []

    def generate(requests):
        seen.append([each.key.order() for each in requests])
        return [sample() for _ in requests]

    async def run() -> None:
        batches, rng = LockstepBatches(generate), random.Random(seed)
        for _ in range(6):
            batches.join()
        await asyncio.gather(*(play(batches, f"case{n}", 1 + n % 3, rng) for n in range(6)))

    asyncio.run(run())
    return seen


def test_the_composition_of_lockstep_batches_does_not_depend_on_timing():
    assert composition(1) == composition(2) == composition(3)
    assert [len(batch) for batch in composition(1)] == [6, 4, 2]


def test_a_failure_of_generation_reaches_everyone_who_waits():
    def generate(requests):
        raise RuntimeError("out of memory")

    async def run() -> list:
        batches = LockstepBatches(generate)
        batches.join()
        batches.join()
        return await asyncio.gather(
            batches.sample(turn_of("a", 0)), batches.sample(turn_of("b", 0)), return_exceptions=True
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
        pending = asyncio.create_task(batches.sample(turn_of("a", 0)))
        await asyncio.to_thread(begun.wait, 10)
        pending.cancel()
        idle = asyncio.create_task(batches.idle())
        await asyncio.sleep(0)
        assert not idle.done()
        released.set()
        await idle
        assert ended == [1]

    asyncio.run(run())


def test_a_rollout_that_is_cancelled_while_waiting_holds_nobody_up():
    async def run() -> Sample:
        batches = LockstepBatches(lambda requests: [sample() for _ in requests])
        batches.join()
        batches.join()
        batches.join()
        first = asyncio.create_task(batches.sample(turn_of("a", 0)))
        second = asyncio.create_task(batches.sample(turn_of("b", 0)))
        await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        batches.leave()
        batches.leave()
        return await asyncio.wait_for(second, 1)

    assert asyncio.run(run()).finish is Finish.STOP
