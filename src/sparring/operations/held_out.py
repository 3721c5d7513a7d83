"""What operators may know of runs on held-out cases: figures, and words that are surely ours.

By what is allowed, not by what is forbidden: whatever a summary comes to hold tomorrow, a case
that is quoted in it stays inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = frozenset(
    {
        "also_environment", "cases_digest", "checkpoint", "environment", "family", "fault", "kind",
        "level", "measure", "model", "run", "sentence", "split", "training", "verdict",
    }
)  # fmt: skip
_NAMES = frozenset({"regressed", "unmoved"})  # lists of measures
_LEFT_OUT = frozenset({"causes", "flips", "reasons_for_failing", "still_fails"})


def figures_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """A summary without a word of any case."""
    return {
        name: told
        for name, value in summary.items()
        if name not in _LEFT_OUT and (told := _figures(value, name)) is not None
    }


def _figures(value: Any, name: str) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return figures_of(value)
    if isinstance(value, list | tuple):
        shown = [_figures(each, name) for each in value]
        return [each for each in shown if each is not None]
    return value if isinstance(value, str) and name in {*_WORDS, *_NAMES} else None
