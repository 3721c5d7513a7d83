"""Attention that reads each key and value once.

If several query heads share a key/value head and there is a mask, transformers copies keys and
values for each query head before it calls PyTorch. A batch of prompts of different lengths needs a
mask, and on a CPU the copies take most of the time of a sampled token. This module instead treats
the query heads of a key/value head as further query positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

_NAME = "sparring_grouped"
_SPECIAL = ("position_bias", "cache", "softcap")  # left to transformers


@contextmanager
def grouped_attention(model: Any) -> Iterator[None]:
    """Use grouped attention inside the block, if the model is on a CPU and uses PyTorch's scaled
    dot-product attention."""
    config = model.config.get_text_config()
    if model.device.type != "cpu" or config._attn_implementation != "sdpa":
        yield
        return
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    rows, heads, length, size = query.shape
    groups = heads // key.shape[1]
    has_mask = attention_mask is not None and attention_mask.shape[1] == 1
    is_special = any(options.get(name) is not None for name in _SPECIAL)
    if groups == 1 or is_special or (length > 1 and not has_mask):
        plain: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **options
        )
        return plain
    if attention_mask is not None and length > 1:
        attention_mask = attention_mask.repeat(1, 1, groups, 1)
    attended = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(rows, key.shape[1], groups * length, size),
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout,
        scale=scaling,
    )
    return attended.reshape(rows, heads, length, -1).transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS.register(_NAME, _attend)
ALL_MASK_ATTENTION_FUNCTIONS.register(_NAME, sdpa_mask)
