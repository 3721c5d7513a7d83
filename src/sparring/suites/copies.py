"""Detects copies of a case in different splits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import SuiteError
from sparring.suites.records import Record
from sparring.suites.splitting import normal


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
