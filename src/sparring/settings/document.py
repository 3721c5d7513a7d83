"""Reading a project file: TOML or YAML, with the line of every value."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import InvalidInput

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


@dataclass(frozen=True, slots=True)
class Document:
    """The tables of a file, and `FILE:LINE` for dotted names in them."""

    name: str
    tables: Mapping[str, Any]
    lines: Mapping[str, int]

    def place_of(self, dotted: str) -> str:
        """The line of a value, or of what is nearest around it."""
        parts = dotted.split(".")
        while parts:
            if line := self.lines.get(".".join(parts)):
                return f"{self.name}:{line}"
            parts.pop()
        return self.name

    def places_below(self, prefix: str) -> dict[str, str]:
        """Places of everything in one table, by names relative to it."""
        start = f"{prefix}."
        return {
            name.removeprefix(start): f"{self.name}:{line}"
            for name, line in self.lines.items()
            if name.startswith(start)
        }


def parse(text: str, name: str) -> Document:
    """The document in a file of that name, whose ending says how it is written."""
    if name.endswith((".yaml", ".yml")):
        return _parse_yaml(text, name)
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        told = re.search(r"line (\d+)", str(error))
        place = f"{name}:{told.group(1)}" if told else name
        raise InvalidInput(f"{place}: this is not TOML: {error or 'nested too deeply'}") from error
    return Document(name, tables, _toml_lines(text))


def _toml_lines(text: str) -> dict[str, int]:
    """Where each key of a valid TOML text stands. Keys of tables in one line have its line."""
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    inside = ""  # the quotes of a text over several lines that has not ended
    for number, line in enumerate(text.splitlines(), 1):
        if inside:
            if inside in line:
                inside = ""
            continue
        if header := _HEADER.match(line):
            table = _joined(header.group(2))
            if header.group(1) == "[[":
                place = counts.get(table, 0)
                counts[table] = place + 1
                table = f"{table}.{place}"
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            dotted = _joined(key.group(1))
            lines[f"{table}.{dotted}" if table else dotted] = number
        for quotes in ('"""', "'''"):
            if line.count(quotes) % 2:
                inside = quotes
    return lines


def _joined(key: str) -> str:
    return ".".join(part.strip("\"'") for part in _PART.findall(key))


def _parse_yaml(text: str, name: str) -> Document:
    import yaml

    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        tables = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        told = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise InvalidInput(f"{place}: this is not YAML: {told}") from error
    if tables is None:
        return Document(name, {}, {})
    if not isinstance(tables, dict):
        raise InvalidInput(f"{name}:1: a project file holds tables, not {type(tables).__name__}")
    lines: dict[str, int] = {}
    _yaml_lines(tree, "", lines, 0)
    return Document(name, _with_text_keys(tables, name), lines)


def _yaml_lines(node: Any, prefix: str, lines: dict[str, int], depth: int) -> None:
    if depth > 20:  # aliases can point at what is around them
        return
    if node.id == "mapping":
        for key, value in node.value:
            dotted = f"{prefix}{getattr(key, 'value', '')}"
            lines[dotted] = key.start_mark.line + 1
            _yaml_lines(value, f"{dotted}.", lines, depth + 1)
    elif node.id == "sequence":
        for number, value in enumerate(node.value):
            lines[f"{prefix}{number}"] = value.start_mark.line + 1
            _yaml_lines(value, f"{prefix}{number}.", lines, depth + 1)


def _with_text_keys(tables: Mapping[Any, Any], name: str, depth: int = 0) -> dict[str, Any]:
    if depth > 20:
        raise InvalidInput(f"{name}: nested too deeply")
    return {
        str(key): _with_text_keys(value, name, depth + 1) if isinstance(value, dict) else value
        for key, value in tables.items()
    }
