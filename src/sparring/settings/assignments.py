"""Reads what is typed as `--set NAME=VALUE`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.contracts.specs import Table
from sparring.settings.layers import normalised

_MAX_PARTS = 8  # of a name


def assigned(assignments: Sequence[str], values: Table) -> Table:
    """Add the assignments to `values`, in place, and return it. Values are JSON; any other text is
    a string. A short form, such as `sampling=2`, and single fields of its table, such as
    `sampling.wait_seconds=60`, may be given together, in any order."""
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        parts = name.strip().split(".")
        if not equals or not all(parts) or len(parts) > _MAX_PARTS:
            raise InvalidInput(f"--set needs NAME=VALUE, as in lora.r=8; got {assignment[:100]!r}")
        _assign(values, parts, _value(text))
    return values


def _assign(values: Table, parts: Sequence[str], value: Any) -> None:
    *tables, last = parts
    if tables and values.get(tables[0]) is not None:
        values |= normalised({tables[0]: values[tables[0]]})
    target = values
    for table in tables:
        existing = target.get(table)
        target[table] = dict(existing) if isinstance(existing, dict) else {}
        target = target[table]
    existing, expanded = target.get(last), _expanded(parts, value)
    if isinstance(existing, dict) and isinstance(expanded, dict) and not isinstance(value, dict):
        target[last] = {**existing, **expanded}
    else:
        target[last] = value


def _expanded(parts: Sequence[str], value: Any) -> Any:
    """Return the value of a setting with its short form expanded."""
    table: Table = {parts[-1]: value}
    for part in reversed(parts[:-1]):
        table = {part: table}
    expanded: Any = normalised(table)
    for part in parts:
        expanded = expanded[part]
    return expanded


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()
