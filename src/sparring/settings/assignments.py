"""`--set a.b=c`: values from a command line, as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sparring.contracts.errors import InvalidInput

_DEEPEST = 8


def assigned(assignments: Sequence[str], values: dict[str, Any]) -> dict[str, Any]:
    """`values`, with what the assignments say; JSON where it is JSON, else a text."""
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        parts = name.strip().split(".")
        if not equals or not all(parts) or len(parts) > _DEEPEST:
            raise InvalidInput(f"--set wants NAME=VALUE, as in lora.r=8; got {assignment[:100]!r}")
        *tables, last = parts
        place = values
        for table in tables:
            before = place.get(table)
            place[table] = dict(before) if isinstance(before, dict) else {}
            place = place[table]
        place[last] = _value(text)
    return values


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
