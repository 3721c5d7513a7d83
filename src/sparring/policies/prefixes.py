"""What prompts have in common, and whether a model lets it be computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WORTH_SHARING = 16  # tokens; below that the extra forward pass costs more than it saves


def common_prefix(prompts: Sequence[tuple[int, ...]] | Sequence[list[int]]) -> int:
    """How many first tokens all prompts share, leaving each at least one of its own; 0 where
    they are too few to be worth it."""
    limit = min(map(len, prompts)) - 1
    low, high = min(prompts), max(prompts)  # what the extremes share, all share
    length = 0
    while length < limit and low[length] == high[length]:
        length += 1
    return length if length >= WORTH_SHARING else 0


def has_sliding_window(config: Any) -> bool:
    """A window counts cache slots, so padding behind a shared prefix would push tokens out."""
    layers = getattr(config, "layer_types", None) or ()
    if layers:
        return any("sliding" in str(layer) for layer in layers)
    return getattr(config, "sliding_window", None) is not None
