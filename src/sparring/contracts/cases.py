"""A case, and the three sides a suite is split into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Split(StrEnum):
    """Which work a case may serve. A case never serves two."""

    TRAINING = "training"
    VALIDATION = "validation"
    HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True)
class Case:
    """One input with what is expected of the answer.

    `input` is what the SDK's Runner takes: a text, or a list of input items.
    `measures` names measures that apply to this case besides the environment's own.
    """

    id: str
    input: str | list[dict[str, Any]]
    expected: Any = None
    split: Split = Split.TRAINING
    measures: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
