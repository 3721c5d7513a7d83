"""Parses `--set a.b=c` options into nested tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sparring.contracts.errors import InvalidInput

_MAX_DEPTH = 8


def assigned(assignments: Sequence[str], values: dict[str, Any]) -> dict[str, Any]:
    """Add the assignments to `values`, in place, and return it. Values are JSON; any other text is
    a string."""
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        parts = name.strip().split(".")
        if not equals or not all(parts) or len(parts) > _MAX_DEPTH:
            raise InvalidInput(f"--set needs NAME=VALUE, as in lora.r=8; got {assignment[:100]!r}")
        *tables, last = parts
        target = values
        for table in tables:
            existing = target.get(table)
            target[table] = dict(existing) if isinstance(existing, dict) else {}
            target = target[table]
        target[last] = _value(text)
    return values


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()
