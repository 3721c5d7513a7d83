"""Which side a case falls on: a pure function of its id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import SuiteError

DEFAULT_SHARES: Mapping[Split, float] = {
    Split.TRAINING: 0.8,
    Split.VALIDATION: 0.1,
    Split.HELD_OUT: 0.1,
}


@dataclass(frozen=True, slots=True)
class Splitter:
    """Splits by id alone, so that adding cases never moves one across.

    The cuts run held-out, validation, training: raising the training share, the usual
    change, moves cases out of the other two and never a held-out case into validation.
    """

    held_out: float
    validation: float

    @classmethod
    def of(cls, shares: Mapping[str, float] | None) -> Splitter:
        named = shares or DEFAULT_SHARES
        if unknown := [name for name in named if name not in list(Split)]:
            raise SuiteError(
                f"`shares` names {', '.join(unknown)}; the splits are "
                "training, validation, held-out"
            )
        given = {Split(name): float(share) for name, share in named.items()}
        total = sum(given.values())
        if any(share < 0 for share in given.values()) or abs(total - 1.0) > 1e-6:
            raise SuiteError(
                f"the shares of the splits must be positive and add up to 1, not {total:g}: "
                f"{ {name.value: share for name, share in given.items()} }"
            )
        return cls(given.get(Split.HELD_OUT, 0.0), given.get(Split.VALIDATION, 0.0))

    def side(self, case_id: str) -> Split:
        digest = hashlib.sha256(b"split:" + case_id.encode()).digest()
        place = int.from_bytes(digest[:8], "big") / 2**64
        if place < self.held_out:
            return Split.HELD_OUT
        if place < self.held_out + self.validation:
            return Split.VALIDATION
        return Split.TRAINING

    def share(self, split: Split) -> float:
        if split is Split.HELD_OUT:
            return self.held_out
        if split is Split.VALIDATION:
            return self.validation
        return 1.0 - self.held_out - self.validation


def question_digest(value: Any) -> str:
    """What an input asks last, whatever comes before it, and however it is spaced."""
    asked = value
    if isinstance(value, list):
        users = [each for each in value if isinstance(each, dict) and each.get("role") == "user"]
        asked = users[-1].get("content") if users else value
    return input_digest(" ".join(asked.split()).casefold() if isinstance(asked, str) else asked)


def input_digest(value: Any) -> str:
    """The default id: equal inputs share it, so duplicates never straddle a split."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
