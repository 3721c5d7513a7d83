"""Shows a result in a notebook: a table and, for a training, its rewards as a curve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _EDGE = 480, 120, 24
_COLOURS = ("#4c78a8", "#f58518", "#54a24b")
_MOST_POINTS = 400

Rows = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Line:
    """A named curve: (step, value) points, in the order of their steps."""

    name: str
    points: Sequence[tuple[float, float]]


def as_html(headline: str, rows: Rows, lines: Iterable[Line] = ()) -> str:
    """Return a headline, a table of two columns and, if there are points, a picture of the lines,
    as HTML without scripts or style sheets."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    drawn = [line for line in lines if line.points]
    picture = _picture(drawn) if drawn else ""
    return f"<p><b>{escape(headline)}</b></p><table>{cells}</table>{picture}"


def _picture(lines: Sequence[Line]) -> str:
    steps = [step for line in lines for step, _ in line.points]
    values = [value for line in lines for _, value in line.points]
    first, last, low, high = min(steps), max(steps), min(*values, 0.0), max(*values, 1.0)

    def x(step: float) -> float:
        return _EDGE + (step - first) / (last - first or 1) * (_WIDTH - 2 * _EDGE)

    def y(value: float) -> float:
        return _HEIGHT - _EDGE - (value - low) / (high - low) * (_HEIGHT - 2 * _EDGE)

    parts = [_text(0, y(value), f"{value:g}") for value in (low, high)]
    parts += [_text(x(step), _HEIGHT - 4, f"{step:g}") for step in sorted({first, last})]
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        every = -(-len(line.points) // _MOST_POINTS)
        kept = [*line.points[:-1:every], line.points[-1]]
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in kept)
        step, value = kept[-1]
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
            f'<circle cx="{x(step):.1f}" cy="{y(value):.1f}" r="2.5" fill="{colour}"/>',
            _text(_EDGE + 130 * number, 12, line.name, colour),
        ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="sans-serif" font-size="11" role="img">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, colour: str = "#888") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}">{escape(text)}</text>'
