"""Prints results on a terminal: paragraphs, tables, facts and commands, within its width.

Text wraps between words. A command in backticks, a path or an address is never broken, so that it
can be copied: one that is too long is on a line of its own. Control characters in texts are
escaped, so that text of models and data controls no terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import BaseModel
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparring.contracts.json import JsonObject
from sparring.contracts.result_text import Grid

GOOD, BAD, DOUBTFUL, DIM, COMMAND = "bold green", "bold red", "bold yellow", "dim", "cyan"
_WORDS = re.compile(r"[^\s`]*`(?:sparring|pip) [^`\n]+`\S*|\S+")
_GAP = 2  # columns between the columns of a table


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A text in a style, after a few words in another style. With `is_one_line`, it is cut at the
    end of its first line."""

    text: str
    style: str = ""
    lead: str = ""
    lead_style: str = ""
    indent: int = 0
    is_one_line: bool = False


@dataclass(frozen=True, slots=True)
class FactList:
    """Names with their values. Values that are commands are not wrapped."""

    rows: Sequence[tuple[str, str]]
    are_commands: bool = False


@dataclass(frozen=True, slots=True)
class Styled:
    """A table in which cells with certain texts have a style."""

    grid: Grid
    styles: Mapping[str, str] = field(default_factory=dict)


Part = Paragraph | FactList | Grid | Styled


def headline(verdict: str, why: str, style: str) -> Paragraph:
    """Return a verdict with its reason, after an empty line."""
    return Paragraph(f": {why}", lead=f"\n{verdict}", lead_style=style)


def remark(text: str) -> Paragraph:
    """Return a text of less importance."""
    return Paragraph(text, DIM)


def advice(text: str) -> Paragraph:
    """Return what to do about the paragraph above."""
    return Paragraph(text, COMMAND, lead="→ ", lead_style=COMMAND, indent=2)


def commands(rows: Mapping[str, str]) -> list[Part]:
    """Return commands with their purposes, after an empty line."""
    return [Paragraph(""), FactList(tuple(rows.items()), are_commands=True)]


def show(parts: Iterable[Part], console: Console) -> None:
    """Print the parts of a result."""
    for part in parts:
        match part:
            case Paragraph():
                text = Text(printable(part.lead), part.lead_style) + Text(
                    printable(part.text), part.style
                )
                width = console.width - part.indent
                if part.is_one_line:
                    text.truncate(width, overflow="ellipsis")
                _print_lines(_lines(text, width), part.indent, console)
            case FactList():
                _print_facts(part, console)
            case Grid():
                _print_grid(part, {}, console)
            case Styled():
                _print_grid(part.grid, part.styles, console)


def print_json(answer: BaseModel | JsonObject) -> None:
    """Print one line of ASCII JSON, so that text from models or data cannot control a terminal."""
    plain = json.loads(answer.model_dump_json()) if isinstance(answer, BaseModel) else answer
    print(json.dumps(plain, separators=(",", ":")))


def printable(text: str) -> str:
    """Return text from models and data with its control characters escaped."""
    return "".join(
        character if character in "\n\t" or character.isprintable() else f"\\x{ord(character):02x}"
        for character in text
    )


def _lines(text: Text, width: int) -> list[Text]:
    """Break a text between words into lines of this width. A longer word has its own line."""
    lines = []
    for paragraph in text.split("\n", allow_blank=True):
        plain, start, end = paragraph.plain, 0, 0
        for word in _WORDS.finditer(plain):
            if end and cell_len(plain[start : word.end()]) > width:
                lines.append(paragraph[start:end])
                start = word.start()
            end = word.end()
        lines.append(paragraph[start:end])
    return lines


def _print_lines(lines: Iterable[Text], indent: int, console: Console) -> None:
    for line in lines:
        console.print(Text(" " * indent) + line, soft_wrap=True)


def _print_facts(facts: FactList, console: Console) -> None:
    """Print each value beside its name or, if a word of it has no room there, below it."""
    column = _GAP + max((cell_len(printable(name)) for name, _ in facts.rows), default=0)
    for name, value in facts.rows:
        head = Text(printable(name).ljust(column), DIM)
        text = Text(printable(value), COMMAND if facts.are_commands else "")
        beside = [text] if facts.are_commands else _lines(text, console.width - column)
        if max(map(len, beside)) <= console.width - column:
            _print_lines([head + beside[0]], 0, console)
            _print_lines(beside[1:], column, console)
        else:
            below = [text] if facts.are_commands else _lines(text, console.width)
            head.rstrip()
            _print_lines([head, *below], 0, console)


def _print_grid(grid: Grid, styles: Mapping[str, str], console: Console) -> None:
    grid = replace(grid, rows=[tuple(map(printable, row)) for row in grid.rows])
    grid = fitting(grid, console.width)
    table = Table(box=None, pad_edge=False, header_style=DIM, show_header=any(grid.heads))
    widths = _text_widths(grid, console.width)
    for head in grid.heads:
        if head in grid.texts:
            table.add_column(head, overflow="fold", max_width=widths[head])
        else:
            table.add_column(head, justify="right", no_wrap=True)
    for row in grid.rows:
        table.add_row(*(Text(cell, styles.get(cell, "")) for cell in row))
    console.print(table)


def fitting(grid: Grid, width: int) -> Grid:
    """Return the table without the first of its optional columns, until the rest fits."""
    for head in grid.optional:
        if _width(grid) <= width:
            break
        grid = grid.without(head)
    return grid


def _width(grid: Grid) -> int:
    return sum(max(map(cell_len, cells)) + _GAP for cells in _columns(grid)) - _GAP


def _columns(grid: Grid) -> Iterable[tuple[str, ...]]:
    return zip(grid.heads, *grid.rows, strict=True)


def _text_widths(grid: Grid, width: int) -> dict[str, int]:
    """Return the widths of the columns of words. The last one is narrowed first, and each at most
    to its longest word; if there is still no room, the table folds words."""
    excess = _width(grid) - width
    widths = {}
    for head, *cells in reversed([*_columns(grid)]):
        widest = max(map(cell_len, (head, *cells)))
        longest_word = max(cell_len(word) for cell in (head, *cells) for word in cell.split(" "))
        narrower = min(max(0, excess), widest - longest_word) if head in grid.texts else 0
        widths[head] = widest - narrower
        excess -= narrower
    return widths
