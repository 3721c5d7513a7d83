from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import peft
import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from sparring.policies.cpu_forward import few_rows

pytestmark = pytest.mark.skipif(
    not torch.backends.mkl.is_available(), reason="rows are reordered for MKL only"
)


@pytest.fixture
def model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=80, num_attention_heads=4, attention_bias=True, **sizes)
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def adapted(model):
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
    adapted = peft.get_peft_model(model, config)
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(weights, std=0.1)
    return adapted.eval()


def logits(model, rows: int, tokens: int = 1) -> torch.Tensor:
    ids = torch.arange(rows * tokens).view(rows, tokens) % 80
    with torch.inference_mode():
        return model(input_ids=ids).logits


def count_products(monkeypatch) -> list[torch.Size]:
    """The shapes of the weights that were multiplied in the other order."""
    seen, multiply = [], torch.mm

    def mm(weights, columns):
        seen.append(weights.shape)
        return multiply(weights, columns)

    monkeypatch.setattr(torch, "mm", mm)
    return seen


@pytest.mark.parametrize("rows", [1, 3, 4, 8, 32, 56, 57])
@pytest.mark.parametrize("name", ["model", "adapted"])
def test_logits_are_those_of_the_plain_layers(name, rows, request):
    model = request.getfixturevalue(name)
    plain = logits(model, rows)
    with few_rows(model):
        fast = logits(model, rows)
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rows", "tokens"), [(1, 1), (3, 1), (57, 1), (8, 8)])
def test_other_numbers_of_rows_take_the_plain_layers(adapted, rows, tokens, monkeypatch):
    seen = count_products(monkeypatch)
    with few_rows(adapted):
        logits(adapted, rows, tokens)
    assert not seen


def test_other_threads_take_the_plain_layers(adapted, monkeypatch):
    seen = count_products(monkeypatch)
    with few_rows(adapted), ThreadPoolExecutor(1) as other:
        other.submit(logits, adapted, 8).result()
        assert not seen
        logits(adapted, 8)
        assert seen


def test_every_linear_layer_and_adapter_is_covered(adapted, monkeypatch):
    seen = count_products(monkeypatch)
    with few_rows(adapted):
        logits(adapted, 8)
    layers, head = 2 * 7, 1  # all but the head have an adapter, whose input side is a product
    assert len(seen) == 2 * layers + head


def test_weights_that_change_inside_the_block_are_used(adapted):
    with few_rows(adapted):
        before = logits(adapted, 8)
        with torch.no_grad():
            for weights in adapted.parameters():
                weights.mul_(1.5)
        after = logits(adapted, 8)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, logits(adapted, 8), rtol=1e-5, atol=1e-6)


def test_afterwards_the_layers_are_as_before(adapted):
    with pytest.raises(KeyError), few_rows(adapted):
        raise KeyError
    assert not any("forward" in layer.__dict__ for layer in adapted.modules())


@pytest.mark.parametrize("change", ["disable_adapter_layers", "merge_adapter"])
def test_adapters_that_are_off_or_merged_count_as_the_model_counts_them(adapted, change):
    getattr(adapted.base_model, change)()
    plain = logits(adapted, 8)
    with few_rows(adapted):
        torch.testing.assert_close(logits(adapted, 8), plain, rtol=1e-5, atol=1e-6)


def test_adapters_with_other_operations_keep_their_own_forward_pass(model):
    adapted = peft.get_peft_model(
        model, peft.LoraConfig(r=4, use_dora=True, target_modules=["q_proj"])
    )
    adapted.eval()
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(weights, std=0.1)
    plain = logits(adapted, 8)
    with few_rows(adapted):
        torch.testing.assert_close(logits(adapted, 8), plain, rtol=1e-5, atol=1e-6)


def test_layers_with_hooks_still_call_them(adapted):
    called = []
    adapters = [each for name, each in adapted.named_modules() if name.endswith("lora_A.default")]
    for each in adapters:
        each.register_forward_hook(lambda *_: called.append(1))
    with few_rows(adapted):
        logits(adapted, 8)
    assert len(called) == len(adapters)


def test_other_precisions_take_the_plain_layers(adapted, model, monkeypatch):
    seen = count_products(monkeypatch)
    with torch.autocast("cpu", dtype=torch.bfloat16), few_rows(adapted):
        logits(adapted, 8)
    with few_rows(adapted), torch.autocast("cpu", dtype=torch.bfloat16):
        logits(adapted, 8)
    model.to(torch.bfloat16)
    with few_rows(model):
        logits(model, 8)
    assert not seen


def test_an_update_inside_the_block_gets_all_gradients(adapted):
    """A batch of cancelled rollouts may still be sampled when the next update begins."""
    ids = torch.arange(8).view(8, 1)
    with few_rows(adapted):
        adapted(input_ids=ids).logits.sum().backward()
    learned = [weights for weights in adapted.parameters() if weights.requires_grad]
    assert learned
    assert all(weights.grad is not None for weights in learned)


def test_adapters_on_weights_are_not_lost(model):
    config = peft.LoraConfig(r=4, target_modules=[], target_parameters=["q_proj.weight"])
    adapted = peft.get_peft_model(model, config).eval()
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(weights, std=0.1)
    plain = logits(adapted, 8)
    with few_rows(adapted):
        torch.testing.assert_close(logits(adapted, 8), plain, rtol=1e-5, atol=1e-6)


def test_all_active_adapters_count_with_their_scales(adapted):
    adapted.add_adapter("other", peft.LoraConfig(r=8, lora_alpha=2, use_rslora=True))
    adapted.base_model.set_adapter(["default", "other"])
    for name, weights in adapted.named_parameters():
        if "lora_B.other" in name:
            nn.init.normal_(weights, std=0.1)
    adapted.eval()
    plain = logits(adapted, 8)
    with few_rows(adapted):
        torch.testing.assert_close(logits(adapted, 8), plain, rtol=1e-5, atol=1e-6)


def test_blocks_may_overlap(adapted):
    plain = logits(adapted, 8)
    first, second = few_rows(adapted), few_rows(adapted)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    torch.testing.assert_close(logits(adapted, 8), plain, rtol=1e-5, atol=1e-6)
    second.__exit__(None, None, None)
    assert not any("forward" in layer.__dict__ for layer in adapted.modules())


def test_arguments_by_name_reach_the_plain_layer(model):
    layer, rows = model.model.layers[0].self_attn.q_proj, torch.ones(8, 64)
    plain = layer(rows)
    with torch.inference_mode(), few_rows(model):
        torch.testing.assert_close(layer(input=rows), plain)
