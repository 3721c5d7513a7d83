"""Dotted names of values in tables: `lora.r` is `r` in the table `lora`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# The contents of these tables are defined elsewhere: a value in them may be a table with any keys,
# even dotted ones, and counts as one value.
OPEN_TABLES = frozenset({"config", "engine", "lora", "quantization", "slurm", "vllm"})


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value that is not a table, with its dotted name; an empty table is a value."""
    for name, value in table.items():
        dotted = f"{prefix}{name}"
        is_whole = prefix.partition(".")[0] in OPEN_TABLES
        if isinstance(value, Mapping) and value and not is_whole:
            yield from flatten(value, f"{dotted}.")
        else:
            yield dotted, value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested tables of values with dotted names."""
    tables: dict[str, Any] = {}
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
    """Whether `other` is `name`, or lies in the table `name`."""
    return name == other or other.startswith(f"{name}.")


def touches(name: str, other: str) -> bool:
    """Whether setting one name changes the other."""
    return covers(name, other) or covers(other, name)
