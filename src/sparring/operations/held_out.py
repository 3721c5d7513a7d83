"""Filters what operators see of runs on held-out cases: numbers, and texts that quote no case.

Texts have an allow list: a text field that is added to a summary stays hidden until it is listed
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.json import SummaryJson
from sparring.contracts.kinds import KINDS
from sparring.run_folder import RunFolder

_TEXT_FIELDS = frozenset(
    {
        "against_base", "also_environment", "artefact", "cases_digest", "checkpoint", "environment",
        "family", "fault", "kind", "level", "likeness", "measure", "model", "proof",
        "proof_verdict", "run", "sentence", "server", "split", "to", "training", "verdict",
        "warning",
    }
)  # fmt: skip
_MEASURE_LISTS = frozenset({"regressed", "unmoved"})
_HIDDEN = frozenset({"causes", "flips", "left_out", "reasons_for_failing", "still_fails"})


def is_held_out(folder: RunFolder) -> bool:
    """Return whether a run may play held-out cases; true if neither kind nor split rules it out."""
    spec = folder.read_spec()
    kind = KINDS.get(str(spec.get("kind")))
    if kind is not None and not kind.plays_held_out:
        return False
    return spec.get("split") not in (Split.TRAINING.value, Split.VALIDATION.value)


def figures_of(summary: Mapping[str, Any]) -> SummaryJson:
    """Return a summary without the values that could quote a case."""
    return {
        name: shown
        for name, value in summary.items()
        if name not in _HIDDEN and (shown := _figures(value, name)) is not None
    }


def _figures(value: Any, name: str) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return figures_of(value)
    if isinstance(value, list | tuple):
        shown = [_figures(each, name) for each in value]
        return [each for each in shown if each is not None]
    return value if isinstance(value, str) and name in {*_TEXT_FIELDS, *_MEASURE_LISTS} else None
