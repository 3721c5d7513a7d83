"""Finds common prefixes of prompts, and whether a model can compute them once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WORTH_SHARING = 16  # tokens; below that the extra forward pass costs more than it saves


def common_prefix(prompts: Sequence[tuple[int, ...]] | Sequence[list[int]]) -> int:
    """Return the length of the prefix that all prompts share, leaving each at least one token; 0
    if it is too short to be worth sharing."""
    limit = min(map(len, prompts)) - 1
    low, high = min(prompts), max(prompts)  # a prefix of both extremes is a prefix of all
    length = 0
    while length < limit and low[length] == high[length]:
        length += 1
    return length if length >= WORTH_SHARING else 0


def has_sliding_window(config: Any) -> bool:
    """Whether a model has sliding-window layers. A window counts cache slots, so padding after a
    shared prefix would push tokens out."""
    layers = getattr(config, "layer_types", None) or ()
    if layers:
        return any("sliding" in str(layer) for layer in layers)
    return getattr(config, "sliding_window", None) is not None
