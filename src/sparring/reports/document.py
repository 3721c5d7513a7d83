"""A report as a list of blocks, rendered to one self-contained HTML file and to Markdown.

Report text is untrusted, because much of it comes from models, tools and data. All text is escaped,
and a content security policy forbids scripts and external resources.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import jinja2


@dataclass(frozen=True, slots=True)
class Heading:
    """A section title."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Plain text; `is_quiet` renders it small and grey."""

    text: str
    is_quiet: bool = False


@dataclass(frozen=True, slots=True)
class VerdictBlock:
    """The verdict of a report and its reason."""

    word: str
    why: str
    tone: str = "doubtful"  # good, bad, doubtful


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; columns of figures are right-aligned."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture as two SVG images, for light and dark screens."""

    light: str
    dark: str
    caption: str


@dataclass(frozen=True, slots=True)
class Gallery:
    """Pictures next to each other, stacked on a narrow screen."""

    pictures: Sequence[Picture]


@dataclass(frozen=True, slots=True)
class Column:
    """One rollout in a `SideBySide` block."""

    title: str
    lines: Sequence[tuple[str, str]]  # (role, text)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Rollouts of one case in columns, collapsed under a title."""

    title: str
    columns: Sequence[Column]


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks that are collapsed under a title."""

    title: str
    blocks: Sequence[Block]


Block = Heading | Paragraph | VerdictBlock | Grid | Picture | Gallery | SideBySide | Folded
_NARROW = 3  # columns that fit a phone screen
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FIGURE = re.compile(r"^[-+–−]?[\d.,]+( ?%| s| GiB| h| min)?$|^–$|[-+]?\d.* … ")


def unsandboxed_note(is_unsandboxed: bool) -> Paragraph | None:
    """Return the warning that a run was not sandboxed; None if it was."""
    if not is_unsandboxed:
        return None
    return Paragraph("Code that the model wrote ran without a sandbox (unsandboxed=true).")


@dataclass(slots=True)
class Document:
    """A titled report."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block | None) -> None:
        """Append blocks; None is skipped."""
        self.blocks += [block for block in blocks if block is not None]

    def html(self) -> str:
        """Return the report as one HTML page without external resources."""
        page = _template().render(title=self.title, blocks=self.blocks, narrow=_NARROW)
        return _visible(page)

    def markdown(self) -> str:
        """Return the report as Markdown; pictures are replaced by their captions."""
        parts = [f"# {_plain(self.title)}", *(_markdown(block) for block in self.blocks)]
        return _visible("\n\n".join(filter(None, parts)) + "\n")


def _visible(text: str) -> str:
    """Escape control characters that a terminal or browser would interpret."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


# ---------------------------------------------------------------------- HTML


def _figure_columns(grid: Grid) -> list[bool]:
    return [
        all(_FIGURE.match(row[column]) for row in grid.rows if row[column])
        and any(row[column] for row in grid.rows)
        for column in range(len(grid.head))
    ]


def _image_url(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sparring.reports", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"image_url": _image_url, "figure_columns": _figure_columns}
    return environment.get_template("page.html.jinja")


# ---------------------------------------------------------------------- Markdown


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_plain(text)}"
        case Paragraph(text, _):
            return _plain(text)
        case VerdictBlock(word, why, _):
            return f"**{_plain(word)}**: {_plain(why)}"
        case Grid(head, rows):
            lines = [_row(head), _row(["---"] * len(head)), *map(_row, rows)]
            return "\n".join(lines)
        case Picture(caption=caption):
            return f"*{_plain(caption)}: see the HTML report.*"
        case Gallery(pictures):
            return "\n\n".join(map(_markdown, pictures))
        case SideBySide(title, columns):
            return "\n\n".join([f"### {_plain(title)}", *map(_markdown_column, columns)])
        case Folded(title, blocks):
            return "\n\n".join([f"### {_plain(title)}", *map(_markdown, blocks)])


def _markdown_column(column: Column) -> str:
    quotes = "\n".join(f"> **{_plain(role)}**: {_plain(text)}" for role, text in column.lines)
    return f"{_plain(column.title)}\n\n{quotes}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_plain, cells)) + " |"


def _plain(text: str) -> str:
    """Join the text into one line and escape Markdown and HTML syntax."""
    return re.sub(r"([\\`*_<>\[\]|&])", r"\\\1", " ".join(text.split()))
