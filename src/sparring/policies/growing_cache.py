"""A key/value cache with room to grow.

The cache of transformers is copied whole for every token that is added. Over a long prompt that
costs more than the model itself; with room behind the last token, only the new one is written.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

_LEAST_ROOM = 64  # tokens


class GrowingLayer(DynamicLayer):
    """Keys and values are views of buffers that are longer than they are. For inference only:
    what is written in place has no gradient."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self._grown: dict[str, _Buffer] = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self._added("keys", self.keys, key_states)
        self.values = self._added("values", self.values, value_states)
        return self.keys, self.values

    def _added(self, name: str, held: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """`held` is the view that was given out last, or else what rows were selected to."""
        buffer = self._grown.get(name)
        if buffer is None or buffer.view is not held or not buffer.has_room_for(new):
            buffer = self._grown[name] = _Buffer(held, new)
        return buffer.add(new)


class _Buffer:
    def __init__(self, held: torch.Tensor, new: torch.Tensor) -> None:
        self._length = held.shape[-2] if held.numel() else 0
        whole = self._length + new.shape[-2]
        room = max(_LEAST_ROOM, whole // 8)
        self._tensor = new.new_empty(*new.shape[:-2], whole + room, new.shape[-1])
        if self._length:
            self._tensor[..., : self._length, :] = held
        self.view = held

    def has_room_for(self, new: torch.Tensor) -> bool:
        return bool(self._length + new.shape[-2] <= self._tensor.shape[-2])

    def add(self, new: torch.Tensor) -> torch.Tensor:
        end = self._length + new.shape[-2]
        self._tensor[..., self._length : end, :] = new
        self._length = end
        self.view = self._tensor[..., :end, :]
        return self.view


def growing_cache(config: Any) -> DynamicCache:
    """The cache of a model, with room wherever its layers keep all tokens."""
    cache = DynamicCache(config=config)
    cache.layers = [
        GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache
