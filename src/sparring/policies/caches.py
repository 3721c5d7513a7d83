"""Key/value caches of sampling: with room to grow, kept between turns, and shared by prompts.

The cache of transformers is copied as a whole for every added token, which for a long prompt costs
more than the forward pass. With room after the last token, only the new token is written. The
prompt of a turn is usually the prompt of the previous turn, its sampled tokens and new tokens: with
the cache of the previous turn, the model runs only on the new tokens. A prefix that prompts have in
common is computed once for all of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import RolloutKey

_MIN_TOKENS = 32  # a shorter common prefix is computed again
WORTH_SHARING = 16  # tokens; for a shorter prefix, the extra forward pass costs more than it saves
_MIN_ROOM = 64  # tokens


class GrowingLayer(DynamicLayer):
    """A cache layer whose keys and values are views of larger buffers. For inference only, because
    the buffers are written in place."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self._buffers: dict[str, _Buffer] = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values; return those of all tokens so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self._append("keys", self.keys, key_states)
        self.values = self._append("values", self.values, value_states)
        return self.keys, self.values

    # The buffers hold the rows of before. Unless they are freed at once, a batch that loses half of
    # its rows takes one and a half times its memory.

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Select rows, which may repeat."""
        super().reorder_cache(beam_idx)
        self._buffers.clear()

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Select rows."""
        super().batch_select_indices(indices)
        self._buffers.clear()

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row."""
        super().batch_repeat_interleave(repeats)
        self._buffers.clear()

    def _append(self, name: str, current: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """Return `current` followed by `new`. If `current` is not the view returned last, rows were
        selected since, and `current` is copied to a new buffer."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.view is not current or not buffer.has_room_for(new):
            buffer = self._buffers[name] = _Buffer(current, new)
        return buffer.add(new)


class _Buffer:
    def __init__(self, current: torch.Tensor, new: torch.Tensor) -> None:
        self._length = current.shape[-2] if current.numel() else 0
        total = self._length + new.shape[-2]
        room = max(_MIN_ROOM, total // 8)
        self._tensor = new.new_empty(*new.shape[:-2], total + room, new.shape[-1])
        if self._length:
            self._tensor[..., : self._length, :] = current
        self.view = current

    def has_room_for(self, new: torch.Tensor) -> bool:
        return bool(self._length + new.shape[-2] <= self._tensor.shape[-2])

    def add(self, new: torch.Tensor) -> torch.Tensor:
        end = self._length + new.shape[-2]
        self._tensor[..., self._length : end, :] = new
        self._length = end
        self.view = self._tensor[..., :end, :]
        return self.view


def growing_cache(config: Any) -> DynamicCache:
    """Create a cache for a model. Layers that keep all tokens become GrowingLayers."""
    cache = DynamicCache(config=config)
    cache.layers = [
        GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache


def bytes_per_token(model: Any) -> int:
    """Return the size in bytes of the keys and values of one token in all layers."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * width * model.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The keys and values of `ids`, for each layer as [heads, tokens, width]."""

    ids: array[int]
    keys: list[torch.Tensor]
    values: list[torch.Tensor]

    @property
    def size(self) -> int:
        """The size of keys and values in bytes."""
        tensors = (*self.keys, *self.values)
        return sum(each.numel() * each.element_size() for each in tensors)


@dataclass(frozen=True, slots=True)
class TurnCopy:
    """Copies one row of a batch's cache to a turn, layer by layer."""

    rollout: RolloutKey
    turn: StoredTurn
    row: int
    places: torch.Tensor

    def add(self, layer: Any) -> None:
        """Copy the row's keys and values in the next layer."""
        self.turn.keys.append(layer.keys[self.row].index_select(1, self.places))
        self.turn.values.append(layer.values[self.row].index_select(1, self.places))


class TurnCache:
    """Stores the last turns of rollouts: several for a rollout whose conversation branches. The
    content depends on the rollouts alone, not on timing."""

    def __init__(self, budget: int) -> None:
        """`budget` is the maximum size in bytes; a turn that would exceed it is not stored."""
        self._budget = budget
        self._size = 0
        self._turns: dict[RolloutKey, list[StoredTurn]] = {}

    def take(self, request: SampleRequest) -> tuple[StoredTurn, int] | None:
        """Remove and return the stored turn with the longest common prefix with the request's
        prompt, and the length of the prefix. None if the prefix is shorter than 32 tokens."""
        turns = self._turns.get(request.key.rollout, [])
        shared = [_shared_length(turn.ids, request.prompt) for turn in turns]
        best = max(range(len(turns)), key=shared.__getitem__, default=None)
        if best is None or shared[best] < _MIN_TOKENS:
            return None
        turn = turns.pop(best)
        self._size -= turn.size
        return turn, shared[best]

    def plan(
        self, rows: Iterable[tuple[int, SampleRequest, array[int]]], cache: Any, mask: Any
    ) -> list[TurnCopy]:
        """Return a copy for each of these rows of a batch that fits into the budget: of the prompt
        and all sampled tokens except the last, for which the model has not been run. The caller
        adds the layers, so that it can free each of them before the next is copied."""
        bytes_per_token = sum(map(_bytes_per_token, cache.layers))
        size, copies = self._size, []
        for row, request, sampled in rows:
            ids = request.prompt + sampled[:-1]
            if size + len(ids) * bytes_per_token <= self._budget:
                size += len(ids) * bytes_per_token
                places = mask[row].nonzero().squeeze(1)[: len(ids)]
                turn = StoredTurn(ids, [], [])
                copies.append(TurnCopy(request.key.rollout, turn, row, places))
        return copies

    def store(self, copies: Iterable[TurnCopy]) -> None:
        """Store the turns of copies to which all layers were added."""
        for each in copies:
            self._turns.setdefault(each.rollout, []).append(each.turn)
            self._size += each.turn.size

    def keep_only(self, rollouts: Collection[RolloutKey]) -> None:
        """Drop the turns of all other rollouts, which have ended."""
        for key in [key for key in self._turns if key not in rollouts]:
            self._size -= sum(turn.size for turn in self._turns.pop(key))

    def clear(self) -> None:
        """Drop all turns."""
        self._turns.clear()
        self._size = 0


def can_store(cache: Any) -> bool:
    """Return whether every layer of a cache keeps the keys and values of all tokens."""
    return all(type(layer) in (GrowingLayer, DynamicLayer) for layer in cache.layers)


def _bytes_per_token(layer: Any) -> int:
    tensors = (layer.keys, layer.values)
    return sum(each.shape[1] * each.shape[3] * each.element_size() for each in tensors)


def _shared_length(stored: array[int], prompt: array[int]) -> int:
    """Return the length of the common prefix, without the last token of the prompt."""
    most = min(len(stored), len(prompt) - 1)
    if stored[:most] == prompt[:most]:
        return most
    return next(n for n in range(most) if stored[n] != prompt[n])


def common_prefix(prompts: Sequence[tuple[int, ...]] | Sequence[list[int]]) -> int:
    """Return the length of the common prefix, without the last token of any prompt; 0 if it is
    shorter than WORTH_SHARING."""
    length = _first_difference(prompts)
    return length if length >= WORTH_SHARING else 0


def sharing_groups(prompts: Sequence[list[int]]) -> list[list[int]]:
    """Group the indices of distinct prompts by long common prefixes. The prompts of one agent begin
    with the same instructions; other agents have other instructions.

    A group of more than three prompts that share less than half of the shortest prompt is split at
    the first difference, unless the parts would have fewer than two prompts on average.
    """
    groups, waiting = [], [list(range(len(prompts)))]
    while waiting:
        group = waiting.pop()
        own = [prompts[position] for position in group]
        shared = common_prefix(own) if len(own) > 1 else 0
        parts: dict[int, list[int]] = {}
        if len(own) > 3 and 2 * shared < min(map(len, own)):
            differ = _first_difference(own)
            for position in group:
                parts.setdefault(prompts[position][differ], []).append(position)
        if 1 < len(parts) <= len(group) // 2:
            waiting += parts.values()
        else:
            groups.append(group)
    return sorted(groups)


def _first_difference(prompts: Sequence[tuple[int, ...]] | Sequence[list[int]]) -> int:
    """Return the first position at which the prompts differ, or the last position of the shortest
    prompt if they do not differ before it."""
    low, high = min(prompts), max(prompts)  # a prefix of both extremes is a prefix of all
    most = min(map(len, prompts)) - 1
    return next((place for place in range(most) if low[place] != high[place]), most)


def has_sliding_window(config: Any) -> bool:
    """Return whether a model has sliding-window layers. Such models cannot share a prefix: a window
    counts cache slots, so padding after the prefix would push tokens out of the window."""
    layers = getattr(config, "layer_types", None) or ()
    if layers:
        return any("sliding" in str(layer) for layer in layers)
    return getattr(config, "sliding_window", None) is not None
