"""Dotted names of values in tables: `lora.r` is `r` in the table `lora`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sparring.contracts.specs import Table

# Sparring does not define the fields of these tables. A value in them may be a table with any keys,
# even dotted ones, and is treated as one value.
OPEN_TABLES = frozenset({"config", "engine", "lora", "quantization", "slurm"})


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value with its dotted name. Tables are expanded, except empty tables and tables
    inside OPEN_TABLES, which are yielded as values."""
    for name, value in table.items():
        dotted = f"{prefix}{name}"
        is_whole = prefix.partition(".")[0] in OPEN_TABLES
        if isinstance(value, Mapping) and value and not is_whole:
            yield from flatten(value, f"{dotted}.")
        else:
            yield dotted, value


def nested(values: Table) -> Table:
    """Return values with dotted names as nested tables."""
    tables: Table = {}
    for dotted, value in values.items():
        *path, last = dotted.split(".")
        target = tables
        for part in path:
            if not isinstance(target.get(part), dict):  # a table replaces a plain value
                target[part] = {}
            target = target[part]
        target[last] = value
    return tables


def covers(name: str, other: str) -> bool:
    """Return whether `other` is `name` or lies inside the table `name`."""
    return other.startswith(name) and other[len(name) : len(name) + 1] in ("", ".")


def touches(name: str, other: str) -> bool:
    """Return whether one name covers the other, so that setting one changes both."""
    return covers(name, other) or covers(other, name)
