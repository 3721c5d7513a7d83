"""Scores in small tiles are those of the whole vocabulary at once, forward and backward."""

from __future__ import annotations

import pytest
import torch
import trl.kernels.chunked_logprob as tiles
import trl.trainer.utils as trl_utils

from sparring.engine.cpu_head import small_tiles_on_cpu
from tests.engine.test_shared_prompts import batch, made, row_by_row, tokens

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
