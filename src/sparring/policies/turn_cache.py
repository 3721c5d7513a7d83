"""Keeps the key/value caches of rollouts between their turns, within a memory budget.

The prompt of a turn is usually the prompt of the previous turn, its sampled tokens and new tokens.
With the cache of the previous turn, the model runs only on the new tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DynamicLayer

from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import RolloutKey
from sparring.policies.growing_cache import GrowingLayer

_MIN_TOKENS = 32  # a shorter common prefix is computed again


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
