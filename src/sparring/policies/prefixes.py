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


def sharing_groups(prompts: Sequence[list[int]]) -> list[list[int]]:
    """Group the positions of distinct prompts by long common prefixes: the agents of a rollout have
    different instructions, and the cases of one agent begin alike.

    Prompts that share less than half of the shortest are split where they first differ, unless
    that leaves most of them alone.
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


def _first_difference(prompts: Sequence[list[int]]) -> int:
    """Return the first position at which not all prompts have the same token; at most that of the
    last token of the shortest."""
    low, high = min(prompts), max(prompts)
    most = min(map(len, prompts)) - 1
    return next((place for place in range(most) if low[place] != high[place]), most)


def has_sliding_window(config: Any) -> bool:
    """Whether a model has sliding-window layers. A window counts cache slots, so padding after a
    shared prefix would push tokens out."""
    layers = getattr(config, "layer_types", None) or ()
    if layers:
        return any("sliding" in str(layer) for layer in layers)
    return getattr(config, "sliding_window", None) is not None
