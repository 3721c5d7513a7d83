"""The forward pass of an update: TRL's, with the prompts that rows share computed once.

The rollouts of a group share their prompt, and the prompts of different cases share instructions
and tools. Most of an agent's tokens are prompt tokens. The common prefix goes through the model
once, then the rest of each distinct prompt once. The completions attend to the resulting key/value
cache, and gradients flow through it. The results equal those of separate rows up to rounding, with
a fraction of the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import trl.kernels.chunked_logprob as tiles
import trl.trainer.utils as trl_utils
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from sparring.policies.caches import WORTH_SHARING, common_prefix, has_sliding_window

_TOKENS_PER_TILE = 128


@contextmanager
def small_tiles_on_cpu(device: torch.device) -> Iterator[None]:
    """Make TRL's fused head score only completions, in small tiles, inside the context if `device`
    is a CPU. The context must contain both the forward and the backward pass.

    With Triton, TRL skips prompt positions. Without it, TRL scores them, to keep shapes constant
    for devices that compile. A CPU does not, and most of an agent's tokens are prompt tokens:
    scoring them takes most of the memory of an update, for values that are masked. TRL's tiles of
    4,096 tokens suit a GPU; a CPU's operations copy their tile, so that one takes gigabytes.
    """
    if device.type != "cpu":
        yield
        return
    use_triton, size = trl_utils._use_triton, tiles.TOKEN_CHUNK_SIZE
    trl_utils._use_triton = lambda _: True
    tiles.TOKEN_CHUNK_SIZE = _TOKENS_PER_TILE
    try:
        yield
    finally:
        trl_utils._use_triton, tiles.TOKEN_CHUNK_SIZE = use_triton, size


def why_prompts_cannot_be_shared(model: Any, *, is_sharded: bool, is_checkpointed: bool) -> str:
    """Return why the update cannot share prompts with this model; empty if it can."""
    if is_checkpointed:
        return "gradient checkpointing recomputes layers without a cache"
    if is_sharded:
        return "the weights are sharded, and each extra forward pass would gather them again"
    if any(each.is_prompt_learning for each in getattr(model, "peft_config", {}).values()):
        return "the adapter adds its own tokens to the cache"
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
    """The distinct prompts of a batch, the length of their common prefix (`shared`), and the index
    of each row's prompt (`of_row`)."""

    distinct: tuple[tuple[int, ...], ...]
    shared: int
    of_row: tuple[int, ...]

    @classmethod
    def of(cls, ids: torch.Tensor, mask: torch.Tensor) -> Prompts:
        """Return the prompts of left-padded rows."""
        rows = [
            tuple(token for token, is_real in zip(*pair, strict=True) if is_real)
            for pair in zip(ids.tolist(), mask.tolist(), strict=True)
        ]
        places = {prompt: place for place, prompt in enumerate(dict.fromkeys(rows))}
        distinct = tuple(places)
        # The last prompt token is computed with the completion, whose first token it predicts.
        shared = (
            common_prefix([prompt[:-1] or (-1,) for prompt in distinct]) if len(distinct) > 1 else 0
        )
        return cls(distinct, shared, tuple(places[row] for row in rows))

    @property
    def common(self) -> tuple[int, ...]:
        """The common prefix, without the last token of a prompt; empty if it is too short to
        share."""
        if len(self.distinct) == 1:
            prefix = self.distinct[0][:-1]
            return prefix if len(prefix) >= WORTH_SHARING else ()
        return self.distinct[0][: self.shared]

    @property
    def are_worth_sharing(self) -> bool:
        """Whether rows share a prompt, or prompts share a prefix."""
        return len(self.distinct) < len(self.of_row) or self.shared > 0

    def beginning_with(self, tokens: Sequence[int]) -> Prompts:
        """Return the same prompts with `tokens`, which all of them begin with, as their common
        prefix."""
        return Prompts(self.distinct, len(tokens), self.of_row)


class StepPrefix:
    """The common prefix of all prompts of an optimizer step, computed once for all its passes.

    All passes except the last use copies of the prefix's keys and values, which accumulate
    gradients. The last pass uses the originals; its backward pass adds the accumulated gradients
    and propagates the sum through the model. So the gradients equal those of one large pass, but
    only the rows of one pass are in memory at a time.
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
        """Fill an empty cache with the originals in the last pass, and with the copies before."""
        for number, (originals, copies) in enumerate(zip(self._layers, self._copies, strict=True)):
            if is_last:
                with_accumulated: Callable[..., torch.Tensor] = _WithAccumulated.apply
                copies = tuple(map(with_accumulated, originals, copies))
            cache.update(*copies, number)


class _WithAccumulated(torch.autograd.Function):
    """The identity on a tensor. Its backward pass adds the gradient of the tensor's copy."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
        ctx.copy = copy
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        accumulated = ctx.copy.grad
        return (gradient if accumulated is None else gradient + accumulated), None


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The key/value cache of all rows after their prompts, with its mask and the prompt lengths."""

    cache: DynamicCache
    mask: torch.Tensor
    lengths: torch.Tensor


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
    """Return the output of TRL's head for the last `keep` tokens of each row.

    Returns None if the rows share nothing. Prompts go through `unwrapped`, because a wrapper that
    synchronises gradients allows only one forward pass per backward pass. `prefix` is shared with
    the other passes of the step; `is_last` is true in the last of these passes.
    """
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
    """Run each distinct prompt, without its last token, through the model once."""
    cache = DynamicCache(config=model.config.get_text_config())
    if prompts.shared:
        if prefix is not None:
            prefix.put_into(cache, is_last=is_last)
        else:
            head = _padded_left([prompts.distinct[0][: prompts.shared]], device)
            _forward(model, cache, head, head.mask, 0)
        _spread(cache, torch.zeros(len(prompts.distinct), dtype=torch.long, device=device))
    rest = _padded_left([prompt[prompts.shared : -1] for prompt in prompts.distinct], device)
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
    """Replace the cache's entries by those at the indices `rows`.

    The backward pass of `index_select` is faster than that of indexing.
    """
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


Plain = Callable[..., Any]  # TRL's method: log-probabilities, entropies and auxiliary loss


@dataclass(slots=True)
class Forward:
    """Scores completions. With `shares_prompts`, `common_prefix` is what all prompts of the batch
    begin with: the parts of an optimizer step compute it once, and the last part ends that."""

    accelerator: Any
    shares_prompts: bool = False
    common_prefix: tuple[int, ...] = ()
    is_last_part: bool = True
    _of_step: StepPrefix | None = field(default=None, init=False)

    def begin_step(self) -> None:
        """Begin an optimizer step: its parts share a new prefix."""
        self._of_step = None

    def scores(
        self,
        plain: Plain,
        model: Any,
        ids: torch.Tensor,
        mask: torch.Tensor,
        keep: int,
        options: dict[str, Any],
    ) -> Any:
        """Return log-probabilities, entropies and auxiliary loss of the last `keep` tokens."""
        with small_tiles_on_cpu(ids.device):
            if self.shares_prompts and not options.get("compute_aux_loss"):
                unwrapped, is_last = self.accelerator.unwrap_model(model), self.is_last_part
                with self.accelerator.autocast():
                    prefix = self._prefix(unwrapped, ids.device)
                    scores = completion_scores(
                        model, unwrapped, ids, mask, keep, prefix=prefix, is_last=is_last
                    )
                if is_last:
                    self._of_step = None
                if scores is not None:
                    entropy = scores.entropy[:, -keep:] if options.get("compute_entropy") else None
                    return scores.log_probs[:, -keep:], entropy, None
            return plain(model, ids, mask, keep, **options)

    def _prefix(self, model: Any, device: torch.device) -> StepPrefix | None:
        """Return the prefix that all parts of this optimizer step share; None if there is none,
        if the step has only one part, or without gradients."""
        if not self.common_prefix or not torch.is_grad_enabled():
            return None
        if self._of_step is None and not self.is_last_part:
            self._of_step = StepPrefix(model, self.common_prefix, device)
        return self._of_step
