"""Parses project files and records the line of every value."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.contracts.specs import Table
from sparring.settings.safe_values import refuse_unsafe_values

_LONG = 100  # lines
_MAY_END = re.compile(r"""[]}"']\s*(#.*)?$""")  # a line that can end a statement of several lines


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The tables of a file, and the line of each dotted name in them."""

    name: str
    tables: Table
    lines: Mapping[str, int]

    def place_of(self, dotted: str) -> str:
        """Return `FILE:LINE` of a name, else of the first value inside it, else of the nearest
        table around it; the name of the file if there is none."""
        inside = [line for name, line in self.lines.items() if name.startswith(f"{dotted}.")]
        if dotted not in self.lines and inside:
            return f"{self.name}:{min(inside)}"
        parts = dotted.split(".")
        while parts:
            if line := self.lines.get(".".join(parts)):
                return f"{self.name}:{line}"
            parts.pop()
        return self.name

    def places_below(self, prefix: str) -> dict[str, str]:
        """Return the place of each value in a table, by its name relative to the table. The empty
        name maps to the place of the table."""
        start = f"{prefix}."
        places = {
            name.removeprefix(start): f"{self.name}:{line}"
            for name, line in self.lines.items()
            if name.startswith(start)
        }
        return {"": self.place_of(prefix), **places}


def parse(text: str, name: str) -> ParsedFile:
    """Parse the TOML text of a file. Raises InvalidInput with the line of a syntax error."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        place = f"{name}:{line.group(1)}" if line else name
        raise InvalidInput(f"{place}: this is not TOML: {error or 'nested too deeply'}") from error
    refuse_unsafe_values(tables, name)
    return ParsedFile(name, tables, _toml_lines(text))


def _toml_lines(text: str) -> dict[str, int]:
    """Return the line of each key in a valid TOML text, by dotted name.

    The text is split into statements, the shortest runs of lines that tomllib can parse, so that
    strings and brackets need no parser here. Keys inside an inline table of several keys are left
    out.
    """
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    table: list[str] = []
    rows = text.replace("\r\n", "\n").split("\n")
    start = depth = 0
    for end, row in enumerate(rows, 1):
        if end - start == 1:
            depth = 0
        depth += sum(map(row.count, "[{")) - sum(map(row.count, "]}"))
        if end - start > 1 and not _MAY_END.search(row):
            continue
        if end - start > _LONG and depth > 0:  # parsing after every line would take quadratic time
            continue
        try:
            node: Any = tomllib.loads("\n".join(rows[start:end]))
        except ValueError:
            continue
        first, start = start, end
        is_header = rows[first].lstrip().startswith("[")
        names = [] if is_header else list(table)
        while isinstance(node, dict) and len(node) == 1:
            ((key, node),) = node.items()
            names.append(key)
            dotted = ".".join(names)
            if is_header and isinstance(node, list):
                counts[dotted] = counts.get(dotted, -1) + 1
                node = node[0]
            if is_header and dotted in counts:
                names.append(str(counts[dotted]))
            else:
                lines.setdefault(dotted, first + 1)
        if is_header:
            table = names
            lines.setdefault(".".join(names), first + 1)
    return lines
