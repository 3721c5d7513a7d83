"""A key/value cache with preallocated room for further tokens.

The cache of transformers is copied as a whole for every added token, which for a long prompt costs
more than the forward pass. With room after the last token, only the new token is written.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

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
