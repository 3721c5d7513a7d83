"""A report as blocks, rendered to one self-contained HTML file and to Markdown.

Nothing in a report is trusted: models, tools and data wrote much of it, so every text is escaped,
and a content policy forbids scripts and anything from elsewhere.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str
    is_quiet: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The one word that a reader came for, and why."""

    word: str
    why: str
    tone: str = "doubtful"  # good, bad, doubtful


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; columns whose cells are figures stand to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Picture:
    """The same picture for light and for dark screens, as SVG."""

    light: str
    dark: str
    caption: str


@dataclass(frozen=True, slots=True)
class Gallery:
    """Pictures beside one another, or below on a narrow screen."""

    pictures: Sequence[Picture]


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    lines: Sequence[tuple[str, str]]  # who, what


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Two rollouts of one case."""

    title: str
    columns: Sequence[Column]


@dataclass(frozen=True, slots=True)
class Folded:
    """What only some readers want."""

    title: str
    blocks: Sequence[Block]


Block = Heading | Paragraph | Verdict | Grid | Picture | Gallery | SideBySide | Folded
_NARROW = 3  # columns that fit a telephone
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FIGURE = re.compile(r"^[-+–−]?[\d.,]+( ?%| s| GiB| h| min)?$|^–$|[-+]?\d.* … ")


@dataclass(slots=True)
class Document:
    title: str
    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block | None) -> None:
        self.blocks += [block for block in blocks if block is not None]

    def html(self) -> str:
        body = _CONTROL.sub(
            lambda found: f"\\x{ord(found[0]):02x}",
            "\n".join(_html(block) for block in self.blocks),
        )
        return _PAGE.format(title=html.escape(self.title), style=_STYLE, body=body)

    def markdown(self) -> str:
        told = [f"# {_plain(self.title)}", *(_markdown(block) for block in self.blocks)]
        return "\n\n".join(filter(None, told)) + "\n"


# ---------------------------------------------------------------------- HTML


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{html.escape(text)}</h{level}>"
        case Paragraph(text, is_quiet):
            kind = ' class="quiet"' if is_quiet else ""
            return f"<p{kind}>{html.escape(text)}</p>"
        case Verdict(word, why, tone):
            return (
                f'<p class="verdict {tone}"><strong>{html.escape(word)}</strong> '
                f"<span>{html.escape(why)}</span></p>"
            )
        case Grid():
            return _html_grid(block)
        case Picture():
            return _html_picture(block)
        case Gallery(pictures):
            inner = "".join(_html_picture(each) for each in pictures)
            return f'<div class="gallery">{inner}</div>'
        case SideBySide(title, columns):
            inner = "".join(_html_column(each) for each in columns)
            return (
                f"<details><summary>{html.escape(title)}</summary>"
                f'<div class="sides">{inner}</div></details>'
            )
        case Folded(title, blocks):
            inner = "\n".join(_html(each) for each in blocks)
            return f"<details><summary>{html.escape(title)}</summary>{inner}</details>"


def _html_grid(grid: Grid) -> str:
    right = [
        all(_FIGURE.match(row[column]) for row in grid.rows if row[column])
        and any(row[column] for row in grid.rows)
        for column in range(len(grid.head))
    ]

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f'<{tag}{" class=figure" if at_right else ""} data-head="{html.escape(head)}">'
            f"<span>{html.escape(cell)}</span></{tag}>"
            for cell, head, at_right in zip(row, grid.head, right, strict=True)
        )

    rows = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in grid.rows)
    head = f"<thead><tr>{cells(grid.head, 'th')}</tr></thead>" if any(grid.head) else ""
    kind = ' class="stacks"' if len(grid.head) > _NARROW else ""
    return f'<div class="wide"><table{kind}>{head}<tbody>{rows}</tbody></table></div>'


def _html_picture(picture: Picture) -> str:
    images = "".join(
        f'<img class="{tone}" alt="{html.escape(picture.caption)}" '
        f'src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}">'
        for tone, svg in (("light", picture.light), ("dark", picture.dark))
    )
    return f"<figure>{images}<figcaption>{html.escape(picture.caption)}</figcaption></figure>"


def _html_column(column: Column) -> str:
    lines = "".join(
        f'<div class="said {html.escape(who)}"><b>{html.escape(who)}</b>'
        f"<pre>{html.escape(what)}</pre></div>"
        for who, what in column.lines
    )
    return f"<section><h4>{html.escape(column.title)}</h4>{lines}</section>"


# ---------------------------------------------------------------------- Markdown


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_plain(text)}"
        case Paragraph(text, _):
            return _plain(text)
        case Verdict(word, why, _):
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
    said = "\n".join(f"> **{_plain(who)}**: {_plain(what)}" for who, what in column.lines)
    return f"{_plain(column.title)}\n\n{said}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_plain, cells)) + " |"


def _plain(text: str) -> str:
    """On one line, with nothing in it that Markdown or HTML would take for its own."""
    return re.sub(r"([\\`*_<>\[\]|&])", r"\\\1", " ".join(text.split()))


# ---------------------------------------------------------------------- looks

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body><main>
<h1>{title}</h1>
{body}
</main></body>
</html>
"""

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --quiet: #5b6470; --line: #d9dee4;
 --paper: #ffffff; --soft: #f5f7f9; --good: #1a7f4b; --bad: #b3261e; --doubtful: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --quiet: #9aa4b0; --line: #343b44;
 --paper: #14171b; --soft: #1d2228; --good: #58c98c; --bad: #ff8a80; --doubtful: #f0b35a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
 font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-top: 1px solid var(--line);
 padding-top: 1.2rem; }
h3, h4 { margin: 1rem 0 .4rem; overflow-wrap: anywhere; }
p { margin: .5rem 0; overflow-wrap: anywhere; }
.quiet, figcaption { color: var(--quiet); font-size: .9rem; }
.verdict { padding: .9rem 1.1rem; background: var(--soft); border-left: .3rem solid; }
.verdict strong { font-size: 1.3rem; display: block; }
.verdict span { color: var(--ink); }
.good { color: var(--good); } .bad { color: var(--bad); } .doubtful { color: var(--doubtful); }
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .92rem; }
th { text-align: left; color: var(--quiet); font-weight: 500; }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
 overflow-wrap: break-word; max-width: 34rem; }
.figure { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1rem 0; } figure img { width: 100%; max-width: 40rem; height: auto; }
.gallery { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr));
 gap: 0 1.5rem; }
.gallery figure { min-width: 0; }
@media (max-width: 44rem) {
 .stacks, .stacks tbody, .stacks tr, .stacks td { display: block; width: 100%; }
 .stacks thead { display: none; }
 .stacks tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
 .stacks td { border: 0; padding: .1rem 0; display: flex; gap: 1rem;
  justify-content: space-between; text-align: left; white-space: normal; }
 .stacks td:first-child { font-weight: 600; }
 .stacks td::before { content: attr(data-head); color: var(--quiet); flex: none; }
 .stacks td:first-child::before { content: none; }
 .stacks td:has(span:empty) { display: none; }
 .stacks td span { min-width: 0; } }
.dark { display: none; }
@media (prefers-color-scheme: dark) { .dark { display: block; } .light { display: none; } }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .5rem 0;
 padding: 0 .9rem; }
summary { cursor: pointer; padding: .55rem 0; overflow-wrap: anywhere; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr));
 gap: 1rem; padding-bottom: .9rem; }
.sides section { min-width: 0; }
.said { margin: .4rem 0; padding: .4rem .6rem; background: var(--soft); border-radius: .3rem; }
.said b { color: var(--quiet); font-size: .8rem; font-weight: 500; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere;
 font: .85rem/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
"""
