"""Reading a project file: TOML or YAML, with the line of every value."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.settings.plain import refuse_odd

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_TEXT = re.compile(r"""\"(?:[^\"\\]|\\.)*\"|'[^']*'""")


@dataclass(frozen=True, slots=True)
class Document:
    """The tables of a file, and `FILE:LINE` for dotted names in them."""

    name: str
    tables: Mapping[str, Any]
    lines: Mapping[str, int]

    def place_of(self, dotted: str) -> str:
        """The line of a value, or of the first thing in it, or of what is nearest around it."""
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
        """Places of everything in one table, by names relative to it; "" is its own."""
        start = f"{prefix}."
        places = {
            name.removeprefix(start): f"{self.name}:{line}"
            for name, line in self.lines.items()
            if name.startswith(start)
        }
        return {"": self.place_of(prefix), **places}


def parse(text: str, name: str) -> Document:
    """The document in a file of that name, whose ending says how it is written."""
    if name.endswith((".yaml", ".yml")):
        return _parse_yaml(text, name)
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        told = re.search(r"line (\d+)", str(error))
        place = f"{name}:{told.group(1)}" if told else name
        raise InvalidInput(f"{place}: this is not TOML: {error or 'nested too deeply'}") from error
    refuse_odd(tables, name)
    return Document(name, tables, _toml_lines(text))


def _toml_lines(text: str) -> dict[str, int]:
    """Where each key of a valid TOML text stands. Keys of tables in one line have its line."""
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    inside = ""  # the quotes of a text over several lines that has not ended
    depth = 0  # brackets of a value over several lines
    for number, line in enumerate(text.split("\n"), 1):
        is_fresh = not inside and depth == 0
        bare, inside = _without_texts(line, inside)
        header = _HEADER.match(line) if is_fresh and bare.lstrip().startswith("[") else None
        if header:
            table = _joined(header.group(2))
            if header.group(1) == "[[":
                place = counts.get(table, 0)
                counts[table] = place + 1
                table = f"{table}.{place}"
            lines.setdefault(table, number)
            continue
        if is_fresh and (key := _KEY.match(line)):
            dotted = _joined(key.group(1))
            lines[f"{table}.{dotted}" if table else dotted] = number
        depth += sum(bare.count(each) for each in "[{") - sum(bare.count(each) for each in "]}")
    return lines


def _without_texts(line: str, inside: str) -> tuple[str, str]:
    """A line without its texts and its comment, and the quotes of a text that goes on."""
    bare = ""
    while line:
        if inside:
            end = line.find(inside)
            if end < 0:
                return bare, inside if len(inside) == 3 else ""
            line, inside = line[end + len(inside) :], ""
        elif line[0] == "#":
            break
        elif line[:3] in ('"""', "'''"):
            inside, line = line[:3], line[3:]
        elif line[0] in "\"'":
            text = _TEXT.match(line)
            line = line[text.end() :] if text else ""
        else:
            bare, line = bare + line[0], line[1:]
    return bare, inside if len(inside) == 3 else ""


def _joined(key: str) -> str:
    return ".".join(part.strip("\"'") for part in _PART.findall(key))


def _parse_yaml(text: str, name: str) -> Document:
    import yaml

    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise InvalidInput(f"{name}:{line}: write it out: aliases are not accepted here")
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        tables = yaml.safe_load(text)
    except InvalidInput:
        raise
    except Exception as error:  # its constructors raise whatever Python's own do
        mark = getattr(error, "problem_mark", None)
        at = getattr(error, "position", None)  # of a character that YAML does not allow
        place = name
        if mark is not None or at is not None:
            place = f"{name}:{1 + (mark.line if mark else text.count(chr(10), 0, at))}"
        told = getattr(error, "problem", None) or str(error).partition("\n")[0] or type(error)
        raise InvalidInput(f"{place}: this is not YAML: {told}") from error
    if tables is None:
        return Document(name, {}, {})
    if not isinstance(tables, dict):
        raise InvalidInput(f"{name}:1: a project file holds tables, not {type(tables).__name__}")
    refuse_odd(tables, name)
    lines: dict[str, int] = {}
    _yaml_lines(tree, "", lines, name)
    return Document(name, tables, lines)


def _yaml_lines(node: Any, prefix: str, lines: dict[str, int], name: str) -> None:
    if node.id == "mapping":
        for key, value in node.value:
            dotted, line = f"{prefix}{getattr(key, 'value', '')}", key.start_mark.line + 1
            if dotted in lines:
                raise InvalidInput(f"{name}:{line}: {dotted} is there twice")
            lines[dotted] = line
            _yaml_lines(value, f"{dotted}.", lines, name)
    elif node.id == "sequence":
        for number, value in enumerate(node.value):
            lines[f"{prefix}{number}"] = value.start_mark.line + 1
            _yaml_lines(value, f"{prefix}{number}.", lines, name)
