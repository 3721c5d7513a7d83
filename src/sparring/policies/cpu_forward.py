"""Faster forward passes for sampling on a CPU.

Attention reads each key and value once. If several query heads share a key/value head and there is
a mask, transformers copies keys and values for each query head before it calls PyTorch. A batch of
prompts of different lengths needs a mask, and on a CPU the copies take most of the time of a
sampled token. This module instead treats the query heads of a key/value head as further query
positions.

Linear layers run on one row per rollout. For 4 to 56 rows, the matrix library computes
`weights @ rows.T` up to three times faster than `rows @ weights.T`, which is the same product. The
small operations of a LoRA adapter become two products that are added in place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

_FEWEST_ROWS = 4  # for fewer rows, PyTorch's order is faster
MOST_ROWS = 56  # for more, too
_SMALLEST_SIDE = 64  # smaller weights, such as those of adapters, gain nothing by themselves
_LORA = "peft.tuners.lora.layer.Linear"  # compared by name, because peft may be missing
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


@contextmanager
def few_rows(model: Any) -> Iterator[None]:
    """Replace the forward passes of linear layers inside the block, for batches of few rows. The
    model must be in evaluation mode. Where a replaced layer needs gradients or another precision,
    and in other threads, it runs as before."""
    layers = list(model.modules()) if speeds_up(model) else []
    thread = threading.get_ident()
    replaced: list[nn.Module] = []
    try:
        for layer in layers:
            if (product := _product_of(layer)) is not None:
                layer.forward = _for_few_rows(product, layer, thread)
                replaced.append(layer)
        yield
    finally:
        for layer in replaced:
            layer.__dict__.pop("forward", None)  # a block in another thread may have removed it


def speeds_up(model: Any) -> bool:
    """Return whether `few_rows` changes anything: for float32 weights on a CPU, with MKL."""
    has_library: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return has_library and model.device.type == "cpu" and model.dtype == torch.float32


@dataclass(frozen=True, slots=True)
class _Adapter:
    down: torch.Tensor
    up: torch.Tensor
    scale: float


@dataclass(frozen=True, slots=True)
class _Product:
    """The weights of a linear layer and of its active adapters."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    adapters: tuple[_Adapter, ...] = ()

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the layer's output for a matrix of rows."""
        columns = rows.t()
        output = torch.mm(self.weight, columns)
        for each in self.adapters:
            output.addmm_(each.up, torch.mm(each.down, columns), alpha=each.scale)
        if self.bias is not None:
            output += self.bias[:, None]
        return output.t().contiguous()


def _for_few_rows(product: _Product, layer: nn.Module, thread: int) -> Callable[..., Any]:
    plain, kind = layer.forward, type(layer)  # adapters on weights change the type for a while
    outputs, inputs = product.weight.shape

    def is_few(rows: torch.Tensor) -> bool:
        count = rows.numel() // inputs
        return _FEWEST_ROWS <= count <= MOST_ROWS and rows.dtype == torch.float32

    def forward(*args: Any, **options: Any) -> Any:
        is_usual = len(args) == 1 and not options and type(layer) is kind
        is_other = torch.is_grad_enabled() or torch.is_autocast_enabled("cpu")
        is_other = is_other or threading.get_ident() != thread  # such as a pass of the trainer
        if not is_usual or is_other or not is_few(args[0]):
            return plain(*args, **options)
        rows = args[0]
        return product.of(rows.reshape(-1, inputs)).view(*rows.shape[:-1], outputs)

    return forward


def _product_of(layer: nn.Module) -> _Product | None:
    """Return the weights of a linear layer or of one with LoRA adapters; None for other layers, for
    adapters with additional operations, and for layers that something else observes."""
    if type(layer) is nn.Linear:
        weight = layer.weight.detach()
        is_plain = type(weight) is torch.Tensor and weight.dtype == torch.float32
        if not is_plain or min(weight.shape) < _SMALLEST_SIDE or _is_observed(layer):
            return None
        return _Product(weight, None if layer.bias is None else layer.bias.detach())
    if f"{type(layer).__module__}.{type(layer).__qualname__}" == _LORA:
        return _adapted_product(layer)
    return None


def _adapted_product(layer: Any) -> _Product | None:
    base = _product_of(layer.base_layer)
    if base is None or _is_observed(layer) or layer.merged or layer.disable_adapters:
        return None
    adapters = []
    for name in layer.active_adapters:
        if name not in layer.lora_A:
            continue
        parts = (layer.lora_A[name], layer.lora_B[name])
        has_more = name in layer.lora_variant or any(part.bias is not None for part in parts)
        down, up = (part.weight.detach() for part in parts)
        if has_more or any(map(_is_observed, parts)) or {down.dtype, up.dtype} != {torch.float32}:
            return None
        adapters.append(_Adapter(down, up, float(layer.scaling[name])))
    return _Product(base.weight, base.bias, (*base.adapters, *adapters))


def _is_observed(layer: nn.Module) -> bool:
    """Whether a hook or a replaced forward pass expects to be called."""
    return bool("forward" in layer.__dict__ or layer._forward_hooks or layer._forward_pre_hooks)
