"""Assigns cases to splits by id, computes digests of inputs, and finds copies across splits."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import SuiteError
from sparring.suites.records import Record

DEFAULT_SHARES: Mapping[Split, float] = {
    Split.TRAINING: 0.8,
    Split.VALIDATION: 0.1,
    Split.HELD_OUT: 0.1,
}
SPLIT_NAMES = {
    "training": Split.TRAINING,
    "train": Split.TRAINING,
    "validation": Split.VALIDATION,
    "valid": Split.VALIDATION,
    "val": Split.VALIDATION,
    "dev": Split.VALIDATION,
    "held-out": Split.HELD_OUT,
    "held_out": Split.HELD_OUT,
    "heldout": Split.HELD_OUT,
    "test": Split.HELD_OUT,
}


@dataclass(frozen=True, slots=True)
class Splitter:
    """Assigns a case to a split by its id and fixed thresholds, so that adding cases moves no other
    case. `adapted` derives the thresholds from the ids of a small suite; there, it can.

    Ids are hashed to positions from 0 to 1, which are divided in the order held-out, validation,
    training. Raising the training share at the expense of validation keeps the held-out cases.
    """

    held_out: float
    validation: float
    is_adapted: bool = False  # the suite is too small for the default shares

    @classmethod
    def of(cls, shares: Mapping[str, float] | None) -> Splitter:
        """Return a splitter with these shares by split name, or with `DEFAULT_SHARES`."""
        named = shares or DEFAULT_SHARES
        if unknown := [name for name in named if name not in list(Split)]:
            raise SuiteError(
                f"`shares` has unknown splits: {', '.join(unknown)}; the splits are "
                "training, validation, held-out"
            )
        by_split = {Split(name): float(share) for name, share in named.items()}
        total = sum(by_split.values())
        if any(not 0 <= share <= 1 for share in by_split.values()) or not abs(total - 1.0) <= 1e-6:
            raise SuiteError(
                f"`shares` must be between 0 and 1 and add up to 1; the sum is {total:g}: "
                f"{ {split.value: share for split, share in by_split.items()} }"
            )
        return cls(by_split.get(Split.HELD_OUT, 0.0), by_split.get(Split.VALIDATION, 0.0))

    @classmethod
    def adapted(cls, case_ids: Sequence[str], minimum: int) -> Splitter:
        """Return a splitter with `DEFAULT_SHARES` if they give each split `minimum` cases.

        Otherwise, fewer than 2 × `minimum` cases all go to validation. With at least that many,
        validation gets `minimum` cases and training the rest. With at least 3 × `minimum`, held-out
        gets `minimum`, too. Cases with the same id stay together.
        """
        default = cls.of(None)
        sizes = Counter(map(default.side, case_ids))
        if all(sizes[split] >= minimum for split in Split):
            return default
        if len(case_ids) < 2 * minimum:
            return cls(held_out=0.0, validation=1.0, is_adapted=True)
        positions = sorted(map(_position, case_ids))
        held_out = _above(positions, minimum) if len(case_ids) >= 3 * minimum else 0.0
        first = sum(position < held_out for position in positions)
        validation = _above(positions, first + minimum) - held_out
        return cls(held_out, validation, is_adapted=True)

    def side(self, case_id: str) -> Split:
        """Return the split of a case."""
        position = _position(case_id)
        if position < self.held_out:
            return Split.HELD_OUT
        if position < self.held_out + self.validation:
            return Split.VALIDATION
        return Split.TRAINING

    def share(self, split: Split) -> float:
        """Return the share of a split."""
        if split is Split.HELD_OUT:
            return self.held_out
        if split is Split.VALIDATION:
            return self.validation
        return round(1.0 - self.held_out - self.validation, 12)


def _above(positions: Sequence[float], count: int) -> float:
    """Return a threshold with at least `count` of the sorted positions below it."""
    return next((each for each in positions[count:] if each > positions[count - 1]), 1.0)


def _position(case_id: str) -> float:
    """Return a position from 0 to 1 that depends on the id alone."""
    digest = hashlib.sha256(b"split:" + case_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def question_digest(value: Any) -> str:
    """Return a digest of an input's last user message, or of the whole input if there is none.
    White space and capitals of a text do not count."""
    question = value
    if isinstance(value, list):
        users = [each for each in value if isinstance(each, dict) and each.get("role") == "user"]
        question = users[-1].get("content") if users else value
    if isinstance(question, str):
        question = " ".join(question.split()).casefold()
    return input_digest(question)


def normal(value: Any) -> Any:
    """Return a value with normalized spacing, case and Unicode form; a list of one message
    becomes its text."""
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFKC", value).split()).casefold()
    if isinstance(value, list | tuple):
        if len(value) == 1 and isinstance(value[0], dict) and set(value[0]) == {"role", "content"}:
            return normal(value[0]["content"])
        return [normal(each) for each in value]
    if isinstance(value, dict):
        return {str(name): normal(each) for name, each in value.items()}
    return value


def input_digest(value: Any) -> str:
    """Return the default id of a case. Equal inputs have equal ids, so duplicates share a split."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class ConflictDetector:
    """Detects cases that are equal but for their expected outcome: no answer to both is right."""

    def __init__(self) -> None:
        self._first: dict[bytes, tuple[bytes, str]] = {}
        self._inputs: set[bytes] = set()
        self._cases = 0
        self._example = ""

    def add(self, case_id: str, case_input: Any, others: Mapping[str, Any], expected: Any) -> None:
        """Record a case; one without an expected outcome contradicts none."""
        if expected is None:
            return
        content = hashlib.sha256(json_line(normal([case_input, others]))).digest()[:16]
        outcome = hashlib.sha256(json_line(expected)).digest()[:16]
        first, first_id = self._first.setdefault(content, (outcome, case_id))
        if first != outcome:
            self._cases += 1 if content in self._inputs else 2
            self._inputs.add(content)
            self._example = self._example or f"{first_id} and {case_id}"

    def found(self) -> Conflicts:
        """Return what was found."""
        return Conflicts(self._cases, len(self._inputs), self._example)


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Cases that contradict each other, the inputs that they share, and the ids of two of them."""

    cases: int = 0
    inputs: int = 0
    example: str = ""

    def __str__(self) -> str:
        return (
            f"{self.cases} cases contradict each other: {self.inputs} inputs have different "
            f"expected outcomes, first the cases {self.example}; keep one outcome for each input, "
            "or tell the cases apart in their input"
        )


class CopyDetector:
    """Detects cases with the same content, but different ids, in different splits. Training on a
    copy of a held-out case would invalidate the proof."""

    def __init__(self, ignored_columns: Iterable[str]) -> None:
        self._ignored_columns = frozenset(ignored_columns)
        self._splits: dict[bytes, Split] = {}
        self._copies = 0
        self._example = ""

    def add(self, record: Record, case_input: Any, expected: Any, split: Split) -> None:
        """Record a case, and count it if an earlier case in another split has the same content."""
        other_fields = {
            name: value
            for name, value in record.items()
            if name not in self._ignored_columns and value is not case_input
        }
        parts = normal([case_input, expected, other_fields])
        content = hashlib.sha256(json_line(parts)).digest()[:16]
        if self._splits.setdefault(content, split) is not split:
            self._copies += 1
            self._example = self._example or f"{self._splits[content].value} and {split.value}"

    def refuse_copies(self) -> None:
        """Raise SuiteError if a case has a copy in another split."""
        if self._copies:
            raise SuiteError(
                f"the suite has the same case in several splits (copies: {self._copies}, for "
                f"example in {self._example}), so training would see cases of other splits; remove "
                "the copies, also those that differ only in spacing or capitals, or give them all "
                "the same `split`"
            )


def json_line(value: Any) -> bytes:
    """Return a value as a line of JSON with sorted keys, in ASCII."""
    try:
        return json.dumps(value, sort_keys=True, default=repr).encode("ascii") + b"\n"
    except TypeError:  # `json` cannot sort keys of different types, or write tuples as keys
        raise SuiteError(
            "a record contains a dictionary whose keys are not all strings; make them strings"
        ) from None
