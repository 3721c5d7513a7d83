"""Finds common prefixes of prompts, which are computed once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WORTH_SHARING = 16  # tokens; for a shorter prefix, the extra forward pass costs more than it saves


def common_prefix(prompts: Sequence[tuple[int, ...]] | Sequence[list[int]]) -> int:
    """Return the length of the common prefix, without the last token of any prompt; 0 if it is
    shorter than WORTH_SHARING."""
    limit = min(map(len, prompts)) - 1
    low, high = min(prompts), max(prompts)  # a prefix of both extremes is a prefix of all
    length = 0
    while length < limit and low[length] == high[length]:
        length += 1
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


def _first_difference(prompts: Sequence[list[int]]) -> int:
    """Return the first position at which the prompts differ, or the last position of the shortest
    prompt if they do not differ before it."""
    low, high = min(prompts), max(prompts)
    most = min(map(len, prompts)) - 1
    return next((place for place in range(most) if low[place] != high[place]), most)


def has_sliding_window(config: Any) -> bool:
    """Return whether a model has sliding-window layers. Such models cannot share a prefix: a window
    counts cache slots, so padding after the prefix would push tokens out of the window."""
    layers = getattr(config, "layer_types", None) or ()
    if layers:
        return any("sliding" in str(layer) for layer in layers)
    return getattr(config, "sliding_window", None) is not None
