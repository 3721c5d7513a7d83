"""The forward pass of an update: prompts computed once, and a head that skips them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import trl.kernels.chunked_logprob as tiles
import trl.trainer.utils as trl_utils
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, Qwen3Config, Qwen3ForCausalLM
from trl.trainer.utils import add_fused_lm_head

from sparring.engine.forward import (
    Prompts,
    StepPrefix,
    completion_scores,
    small_tiles_on_cpu,
    why_prompts_cannot_be_shared,
)

SHAPE = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE)),
}


def made(kind: str, *, lora: bool = False) -> Any:
    torch.manual_seed(0)
    model = MODELS[kind]().double().train()  # so that a difference is a fault, and not rounding
    add_fused_lm_head(model, temperature=0.8, outputs=("log_probs", "entropy"))
    if lora:
        model = get_peft_model(
            model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
        )
        for name, weights in model.named_parameters():
            if "lora_B" in name:  # zero at first, which would leave half of the path untried
                torch.nn.init.normal_(weights, std=0.1)
    return model


def batch(prompts: list[list[int]], completions: list[list[int]]) -> tuple[Any, Any, int]:
    wide, long = max(map(len, prompts)), max(map(len, completions))
    ids = [
        [0] * (wide - len(prompt)) + prompt + completion + [0] * (long - len(completion))
        for prompt, completion in zip(prompts, completions, strict=True)
    ]
    mask = [
        [0] * (wide - len(prompt))
        + [1] * (len(prompt) + len(completion))
        + [0] * (long - len(completion))
        for prompt, completion in zip(prompts, completions, strict=True)
    ]
    return torch.tensor(ids), torch.tensor(mask), long


def row_by_row(model: Any, ids: Any, mask: Any, keep: int) -> Any:
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-keep] = -100
    return model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)


def gradients(model: Any, outputs: Any, keep: int, weights: torch.Tensor) -> dict[str, Any]:
    model.zero_grad()
    ((outputs.log_probs[:, -keep:] + 0.1 * outputs.entropy[:, -keep:]) * weights).sum().backward()
    return {
        name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None
    }


def tokens(count: int, seed: int) -> list[int]:
    drawn = torch.Generator().manual_seed(seed)
    return torch.randint(1, 97, (count,), generator=drawn).tolist()


HEAD = tokens(40, 1)
GROUPS = {
    "one group": [HEAD] * 4,
    "two groups with a common beginning": [[*HEAD, 5]] * 3 + [[*HEAD, 6, 7, 8]] * 3,
    "two groups with nothing in common": [tokens(30, 2)] * 2 + [tokens(20, 3)] * 2,
    "different cases, same instructions": [HEAD + tokens(n, n) for n in (3, 5, 7)],
    "a group and a row that was not played": [HEAD] * 3 + [[9]],
    "one prompt that is the beginning of another": [HEAD] * 2 + [[*HEAD, 4]] * 2,
    "prompts of one token": [[9]] * 3,
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("group", GROUPS)
def test_scores_and_gradients_are_those_of_row_by_row(kind, lora, group):
    prompts = GROUPS[group]
    completions = [tokens(3 + 2 * number, 50 + number) for number in range(len(prompts))]
    model = made(kind, lora=lora)
    ids, mask, keep = batch(prompts, completions)
    weights = torch.randn(len(prompts), keep, generator=torch.Generator().manual_seed(3))
    plain = row_by_row(model, ids, mask, keep)
    wanted = gradients(model, plain, keep, weights)

    shared = completion_scores(model, model, ids, mask, keep)
    found = gradients(model, shared, keep, weights)

    is_real = mask[:, -keep:].bool()
    assert torch.allclose(
        shared.log_probs[:, -keep:][is_real], plain.log_probs[:, -keep:][is_real], atol=1e-5
    )
    assert torch.allclose(
        shared.entropy[:, -keep:][is_real], plain.entropy[:, -keep:][is_real], atol=1e-5
    )
    assert found.keys() == wanted.keys()
    largest = max(each.abs().max() for each in wanted.values())
    for name, each in wanted.items():
        assert (found[name] - each).abs().max() <= 1e-6 * largest, name


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("passes", [2, 4])
def test_several_passes_over_one_prefix_give_the_gradients_of_a_single_pass(lora, passes):
    model = made("llama", lora=lora)
    prompts = [[*HEAD, 5]] * 4 + [[*HEAD, 6, 7, 8]] * 4
    ids, mask, keep = batch(prompts, [tokens(5 + n % 3, 50 + n) for n in range(8)])
    weights = torch.randn(8, keep, generator=torch.Generator().manual_seed(3))
    whole = gradients(model, row_by_row(model, ids, mask, keep), keep, weights)
    model.zero_grad()
    common = Prompts.of(ids[:, :-keep], mask[:, :-keep]).common
    prefix = StepPrefix(model, common, ids.device)
    scores = []
    for number, rows in enumerate(torch.arange(8).chunk(passes)):
        found = completion_scores(
            model, model, ids[rows], mask[rows], keep, prefix=prefix, is_last=number == passes - 1
        )
        scores.append(found.log_probs[:, -keep:].detach())
        values = found.log_probs[:, -keep:] + 0.1 * found.entropy[:, -keep:]
        (values * weights[rows]).sum().backward()
    plain = row_by_row(model, ids, mask, keep).log_probs[:, -keep:]
    assert torch.allclose(torch.cat(scores), plain, atol=1e-5)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            largest = whole[name].abs().max().clamp(min=1e-6)
            assert (parameter.grad - whole[name]).abs().max() / largest < 1e-6, name


def test_rows_with_nothing_in_common_are_left_to_the_plain_path():
    ids, mask, keep = batch([tokens(30, 1), tokens(30, 2)], [[1], [2]])
    assert completion_scores(None, None, ids, mask, keep) is None


prompts = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=24), min_size=1, max_size=6)


@settings(deadline=None)
@given(prompts)
def test_every_row_finds_its_own_prompt_again(rows):
    ids, mask, keep = batch(rows, [[1]] * len(rows))
    found = Prompts.of(ids[:, :-keep], mask[:, :-keep])
    assert [list(found.distinct[place]) for place in found.of_row] == rows
    heads = {prompt[: found.shared] for prompt in found.distinct}
    assert len(heads) == 1
    assert all(len(prompt) > found.shared for prompt in found.distinct)


class Prefix:
    is_prompt_learning = True


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"is_checkpointed": True}, "gradient checkpointing"),
        ({"is_sharded": True}, "sharded"),
        ({"config": MistralConfig(**SHAPE, sliding_window=8)}, "sliding window"),
        ({"peft_config": {"default": Prefix()}}, "adapter"),
        ({"_is_stateful": True}, "state"),
    ],
)
def test_a_model_whose_prompts_cannot_be_shared_gets_the_reason(changed, reason):
    model = made("llama")
    flags = {"is_sharded": False, "is_checkpointed": False}
    assert why_prompts_cannot_be_shared(model, **flags) == ""
    for name, value in changed.items():
        if name in flags:
            flags[name] = value
        else:
            setattr(model, name, value)
    assert reason in why_prompts_cannot_be_shared(model, **flags)


KEEP = 90  # with four rows, more than two tiles


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_tiles_give_the_gradients_of_the_whole_vocabulary(lora):
    model = made("llama", lora=lora)
    ids, mask, keep = batch([tokens(20, 1)] * 4, [tokens(KEEP - n, 50 + n) for n in range(4)])
    weights = torch.randn(4, keep, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    weights = weights * mask[:, -keep:]

    model.zero_grad()
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -keep - 1 : -1] / 0.8
    whole = logits.log_softmax(-1).gather(2, ids[:, -keep:, None]).squeeze(2)
    (whole * weights).sum().backward()
    wanted = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}

    model.zero_grad()
    with small_tiles_on_cpu(ids.device):
        assert tiles.TOKEN_CHUNK_SIZE < 4 * KEEP
        found = row_by_row(model, ids, mask, keep).log_probs[:, -keep:]
        (found * weights).sum().backward()

    is_real = mask[:, -keep:].bool()
    assert torch.allclose(found[is_real].double(), whole[is_real], atol=1e-6)
    for name, parameter in model.named_parameters():
        if name in wanted:
            largest = wanted[name].abs().max().clamp(min=1e-6)
            assert (parameter.grad - wanted[name]).abs().max() / largest < 1e-6, name


def test_trl_is_left_as_it_was_whatever_happens():
    before = trl_utils._use_triton, tiles.TOKEN_CHUNK_SIZE
    with pytest.raises(RuntimeError), small_tiles_on_cpu(torch.device("cpu")):
        raise RuntimeError
    assert (trl_utils._use_triton, tiles.TOKEN_CHUNK_SIZE) == before
