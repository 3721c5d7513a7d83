"""Cases, and the three splits of a suite."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Split(StrEnum):
    """The part of a suite that a case belongs to. Each case is in exactly one split."""

    TRAINING = "training"
    VALIDATION = "validation"
    HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True)
class Case:
    """One input with its expected outcome.

    `input` is a string, or a list of input items of the agents SDK.
    `measures` names measures that apply to this case in addition to the environment's own.
    """

    id: str
    input: str | list[dict[str, Any]]
    expected: Any = None
    split: Split = Split.TRAINING
    measures: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


def examples_before(case: Case) -> list[Any]:
    """Return the input items before a case's last user message: its worked examples."""
    if isinstance(case.input, str):
        return []
    questions = [n for n, item in enumerate(case.input) if item.get("role") == "user"]
    return list(case.input[: questions[-1]]) if questions else []


def question_of(case: Case) -> str:
    """Return the text of a case's last user message."""
    if isinstance(case.input, str):
        return case.input
    questions = [item for item in case.input if item.get("role") == "user"]
    content = questions[-1].get("content") if questions else ""
    return content if isinstance(content, str) else json.dumps(content, default=repr)


def digest_of(cases: Iterable[Case]) -> str:
    """Return a SHA-256 of ids, inputs, expected outcomes and measures; the order is irrelevant."""
    digest = hashlib.sha256()
    for case in sorted(cases, key=lambda each: each.id):
        content = [case.id, case.input, case.expected, case.measures]
        digest.update(json.dumps(content, sort_keys=True, default=repr).encode())
    return digest.hexdigest()
