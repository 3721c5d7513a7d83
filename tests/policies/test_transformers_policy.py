"""A policy with weights in this process samples in lockstep batches, as the trainer computes."""

from __future__ import annotations

import asyncio
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
from sparring.policies.families import family_named
from sparring.policies.few_rows import MOST_ROWS, speeds_up
from sparring.policies.generation import generate
from sparring.policies.growing_cache import bytes_per_token
from sparring.policies.transformers_policy import TransformersPolicy
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


def test_the_same_requests_are_sampled_alike_again(loaded: TransformersPolicy) -> None:
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
