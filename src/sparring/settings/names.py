"""Dotted names for values in tables: `lora.r` is `r` in the table `lora`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# What is in these tables is somebody else's to understand: a value of theirs may be a table with
# any names in it, dots too, and is one value to us.
OPEN_TABLES = frozenset({"config", "engine", "lora", "quantization", "slurm", "vllm"})


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is not a table, by its dotted name; an empty table is a value."""
    for name, value in table.items():
        dotted = f"{prefix}{name}"
        is_whole = prefix.partition(".")[0] in OPEN_TABLES
        if isinstance(value, Mapping) and value and not is_whole:
            yield from flatten(value, f"{dotted}.")
        else:
            yield dotted, value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """The tables that dotted names stand for."""
    tables: dict[str, Any] = {}
    for dotted, value in values.items():
        *path, last = dotted.split(".")
        place = tables
        for part in path:
            if not isinstance(place.get(part), dict):  # a value gives way to its table
                place[part] = {}
            place = place[part]
        place[last] = value
    return tables


def covers(name: str, other: str) -> bool:
    """Whether a word on `name` is a word on `other`: the same, or a table that holds it."""
    return name == other or other.startswith(f"{name}.")


def touches(name: str, other: str) -> bool:
    """Whether setting one changes the other."""
    return covers(name, other) or covers(other, name)
