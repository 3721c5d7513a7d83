"""An update that computes each prompt once.

The rollouts of a group share their prompt, the prompts of different cases share instructions
and tools, and both are most of an agent's tokens. So the common beginning goes through the
model once, the rest of each different prompt once, and the completions on top of their
key/value cache, with gradients kept: the same numbers as row by row, at a fraction of the
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from sparring.policies.prefixes import WORTH_SHARING, common_prefix, has_sliding_window


def why_not(model: Any, *, is_sharded: bool, is_checkpointed: bool) -> str:
    """What keeps this model from sharing prompts in the update; empty where nothing does."""
    if is_checkpointed:
        return "gradient checkpointing computes layers again, without a cache"
    if is_sharded:
        return "the weights are sharded, and each extra forward pass would gather them again"
    if any(each.is_prompt_learning for each in getattr(model, "peft_config", {}).values()):
        return "the adapter puts tokens of its own into the cache"
    config = model.config.get_text_config()
    if has_sliding_window(config):
        return "the model attends within a sliding window"
    layers = DynamicCache(config=config).layers
    if getattr(model, "_is_stateful", False) or any(
        type(each) is not DynamicLayer for each in layers
    ):
        return "the model keeps a state that is not a key/value cache"
    return ""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The different prompts of some rows: their common beginning, and whose is which."""

    different: tuple[tuple[int, ...], ...]
    shared: int
    of_row: tuple[int, ...]

    @classmethod
    def of(cls, ids: torch.Tensor, mask: torch.Tensor) -> Prompts:
        """Of left-padded prompts."""
        rows = [
            tuple(token for token, is_real in zip(*pair, strict=True) if is_real)
            for pair in zip(ids.tolist(), mask.tolist(), strict=True)
        ]
        places = {prompt: place for place, prompt in enumerate(dict.fromkeys(rows))}
        different = tuple(places)
        # The last token of a prompt goes with the completion, whose first token it predicts.
        shared = (
            common_prefix([prompt[:-1] or (-1,) for prompt in different])
            if len(different) > 1
            else 0
        )
        return cls(different, shared, tuple(places[row] for row in rows))

    @property
    def common(self) -> tuple[int, ...]:
        """What all of them begin with, the last token left out."""
        if len(self.different) == 1:
            whole = self.different[0][:-1]
            return whole if len(whole) >= WORTH_SHARING else ()
        return self.different[0][: self.shared]

    @property
    def are_worth_sharing(self) -> bool:
        return len(self.different) < len(self.of_row) or self.shared > 0

    def beginning_with(self, tokens: Sequence[int]) -> Prompts:
        """The same prompts, these tokens being what they have in common."""
        return Prompts(self.different, len(tokens), self.of_row)


class StepPrefix:
    """The common beginning of all prompts of an optimizer step, computed once for all its passes.

    The passes before the last see copies of its keys and values, on which their gradients gather.
    The last pass sees the real ones, adds what has gathered, and takes the sum back through the
    model. So the gradients are those of one large pass, and each pass holds its own rows only.
    """

    def __init__(self, model: Any, tokens: Sequence[int], device: torch.device) -> None:
        self.tokens = tuple(tokens)
        cache = DynamicCache(config=model.config.get_text_config())
        head = _padded_left([self.tokens], device)
        _forward(model, cache, head, head.mask, 0)
        self._layers = [(layer.keys, layer.values) for layer in cache.layers]
        self._copies = [
            tuple(each.detach().requires_grad_(each.requires_grad) for each in pair)
            for pair in self._layers
        ]

    def put_into(self, cache: DynamicCache, *, is_last: bool) -> None:
        for number, (real, copies) in enumerate(zip(self._layers, self._copies, strict=True)):
            keys, values = (
                _with_gathered(one, copy) if is_last else copy
                for one, copy in zip(real, copies, strict=True)
            )
            cache.update(keys, values, number)


class _WithGathered(torch.autograd.Function):
    """A tensor, whose gradient gets what has gathered on its copy besides."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
        ctx.copy = copy
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        gathered = ctx.copy.grad
        return (gradient if gathered is None else gradient + gathered), None


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The cache of all rows behind their prompts, ready for the completions."""

    cache: DynamicCache
    mask: torch.Tensor
    lengths: torch.Tensor


def _with_gathered(tensor: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
    apply: Callable[..., torch.Tensor] = _WithGathered.apply
    return apply(tensor, copy)


def completion_scores(
    model: Any,
    unwrapped: Any,
    ids: torch.Tensor,
    mask: torch.Tensor,
    keep: int,
    *,
    prefix: StepPrefix | None = None,
    is_last: bool = True,
) -> Any:
    """TRL's head over the last `keep` tokens of each row; None where the rows have nothing in
    common. Prompts pass through `unwrapped`: a wrapper that gathers gradients is to see one
    forward pass for one backward pass. `prefix` is what the other passes of this step share with
    this one, which may be the last of them."""
    prompts = Prompts.of(ids[:, :-keep], mask[:, :-keep])
    if prefix is not None:
        prompts = prompts.beginning_with(prefix.tokens)
    elif not prompts.are_worth_sharing:
        return None
    before = prefill(unwrapped, prompts, ids.device, prefix, is_last=is_last)
    ids, mask = ids[:, -keep - 1 :], mask[:, -keep - 1 :]
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, 0] = -100
    return model(
        input_ids=ids,
        attention_mask=torch.cat([before.mask, mask], dim=1),
        position_ids=before.lengths + torch.arange(keep + 1, device=ids.device),
        past_key_values=before.cache,
        labels=labels,
        fused_lm_head=True,
    )


def prefill(
    model: Any,
    prompts: Prompts,
    device: torch.device,
    prefix: StepPrefix | None = None,
    *,
    is_last: bool = True,
) -> Prefilled:
    """Run the prompts, but for the last token of each, through the model once."""
    cache = DynamicCache(config=model.config.get_text_config())
    if prompts.shared:
        if prefix is not None:
            prefix.put_into(cache, is_last=is_last)
        else:
            head = _padded_left([prompts.different[0][: prompts.shared]], device)
            _forward(model, cache, head, head.mask, 0)
        _spread(cache, torch.zeros(len(prompts.different), dtype=torch.long, device=device))
    rest = _padded_left([prompt[prompts.shared : -1] for prompt in prompts.different], device)
    mask = torch.cat([rest.mask.new_ones(len(rest.mask), prompts.shared), rest.mask], dim=1)
    if rest.ids.shape[1]:
        _forward(model, cache, rest, mask, prompts.shared)
    rows = torch.tensor(prompts.of_row, device=device)
    _spread(cache, rows)
    return Prefilled(cache, mask[rows], mask.sum(dim=1, keepdim=True)[rows])


def _forward(
    model: Any, cache: DynamicCache, padded: _Padded, mask: torch.Tensor, start: int
) -> None:
    model(
        input_ids=padded.ids,
        attention_mask=mask,
        position_ids=(padded.mask.cumsum(dim=1) - 1).clamp(min=0) + start,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )


def _spread(cache: DynamicCache, rows: torch.Tensor) -> None:
    """Give each row its copy. `index_select` adds gradients up faster than indexing does."""
    for layer in cache.layers:
        if layer.is_initialized:
            layer.keys = layer.keys.index_select(0, rows)
            layer.values = layer.values.index_select(0, rows)


@dataclass(frozen=True, slots=True)
class _Padded:
    ids: torch.Tensor
    mask: torch.Tensor


def _padded_left(rows: Sequence[Sequence[int]], device: torch.device) -> _Padded:
    width = max(map(len, rows))
    ids = [[0] * (width - len(row)) + list(row) for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return _Padded(
        torch.tensor(ids, dtype=torch.long, device=device),
        torch.tensor(mask, dtype=torch.long, device=device),
    )
