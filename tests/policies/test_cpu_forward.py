from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen3Config, Qwen3ForCausalLM

from sparring.policies.caches import growing_cache
from sparring.policies.cpu_forward import grouped_attention


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=50, **sizes, **heads)).eval()


def scored(model, parts: list[int], padding: list[int]) -> torch.Tensor:
    """The logits of made-up rows, padded on the left, that pass through in `parts`."""
    cache, found, start = growing_cache(model.config), [], 0
    ids = torch.arange(len(padding) * sum(parts)).view(len(padding), -1) % 50
    whole = torch.ones_like(ids)
    for row, missing in enumerate(padding):
        whole[row, :missing] = 0
    for part in parts:
        end = start + part
        out = model(
            input_ids=ids[:, start:end],
            attention_mask=whole[:, :end],
            position_ids=(whole.cumsum(dim=1) - 1).clamp(min=0)[:, start:end],
            past_key_values=cache,
        )
        found.append(out.logits)
        start = end
    return torch.cat(found, dim=1)[whole.bool()]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
)
def test_grouped_attention_computes_what_transformers_computes(model, parts, padding):
    parts = [4, *parts]
    with torch.inference_mode():
        plain = scored(model, parts, padding)
        with grouped_attention(model):
            grouped = scored(model, parts, padding)
    torch.testing.assert_close(grouped, plain, rtol=1e-5, atol=1e-6)


def test_no_key_is_copied_for_a_sampled_token(model, monkeypatch):
    """Prompts of different lengths have a mask, with which transformers copies keys."""
    from transformers.integrations import sdpa_attention

    copied = []
    copy = sdpa_attention.repeat_kv
    monkeypatch.setattr(
        sdpa_attention, "repeat_kv", lambda *given: copied.append(given) or copy(*given)
    )
    with torch.inference_mode():
        scored(model, [3, 1], [0, 1])
        assert copied
        copied.clear()
        with grouped_attention(model):
            scored(model, [3, 1], [0, 1])
    assert not copied


def test_the_model_is_left_as_it_was(model):
    with grouped_attention(model):
        assert model.config._attn_implementation != "sdpa"
        with grouped_attention(model):
            pass
        assert model.config._attn_implementation != "sdpa"
    assert model.config._attn_implementation == "sdpa"


def test_another_attention_is_not_replaced(model):
    model.set_attn_implementation("eager")
    try:
        with grouped_attention(model):
            assert model.config._attn_implementation == "eager"
    finally:
        model.set_attn_implementation("sdpa")
