"""Draws pictures for reports: curves, pass rates of cases, differences, sizes of artefacts.

Each picture is drawn twice, for light and dark screens. The Okabe-Ito palette is distinguishable
with any colour vision.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.summaries import CaseBand, Difference
from sparring.reports.document import Gallery, Picture

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
_LIGHT = {"ink": "#1b1f24", "line": "#d9dee4"}
_DARK = {"ink": "#e6e9ed", "line": "#343b44"}
_WIDTH = 5.6
# The hash salt makes SVG files reproducible. Math is off, because labels may contain user text.
_RC_PARAMS: dict[str, Any] = {"svg.hashsalt": "sparring", "text.parse_math": False}
_FEW_POINTS = 25
_SHARES = ("reward", "pass rate", "live groups")


@dataclass(frozen=True, slots=True)
class Curve:
    """A labelled line of values over steps."""

    label: str
    steps: Sequence[float]
    values: Sequence[float]


def curves(panels: Mapping[str, Sequence[Curve]]) -> Gallery | None:
    """Return one picture per panel; None if no curve has values."""
    pictures = []
    for title, lines in panels.items():
        if drawn := [each for each in lines if each.values]:
            pictures.append(_panel(title, drawn))
    return Gallery(pictures) if pictures else None


def _panel(title: str, lines: Sequence[Curve]) -> Picture:
    def draw(plot: Any, colours: Mapping[str, str]) -> Any:
        from matplotlib.ticker import MaxNLocator

        figure, axes = plot.subplots(figsize=(_WIDTH, 3.0), layout="constrained")
        for number, line in enumerate(lines):
            axes.plot(
                line.steps,
                line.values,
                "o" if len(line.values) < _FEW_POINTS else "",
                linestyle="-",
                ms=4,
                lw=2,
                color=_COLOURS[number % len(_COLOURS)],
                label=_label(line.label),
            )
        if title in _SHARES:
            axes.set_ylim(-0.04, 1.04)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("step", color=colours["ink"])
        if len(lines) > 1:
            axes.legend(fontsize=10, frameon=False, labelcolor=colours["ink"])
        _style_axes(axes, colours)
        return figure

    return _picture(draw, title)


def case_bands(cases: Sequence[CaseBand], caption: str) -> Picture | None:
    """Draw the pass rate and interval of each scored case; return None if no case was scored."""
    cases = [case for case in cases if case.rollouts]
    if not cases:
        return None

    def draw(plot: Any, colours: Mapping[str, str]) -> Any:
        figure, axes = plot.subplots(
            figsize=(_WIDTH, 0.8 + 0.28 * len(cases)), layout="constrained"
        )
        for number, case in enumerate(reversed(cases)):
            axes.plot([case.low, case.high], [number] * 2, lw=5, color="#0072b2", alpha=0.35)
            axes.plot(case.passed / case.rollouts, number, "o", ms=5, color="#0072b2")
        axes.set_yticks(
            range(len(cases)),
            [_label(str(case.question or case.case), 40) for case in reversed(cases)],
            fontsize=10,
        )
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.7, len(cases) - 0.3)
        axes.set_xlabel("pass rate", color=colours["ink"])
        _style_axes(axes, colours)
        return figure

    return _picture(draw, caption)


def intervals(rows: Mapping[str, Difference], caption: str) -> Picture | None:
    """Draw differences with their intervals and a line at zero; return None without rows."""
    if not rows:
        return None

    def draw(plot: Any, colours: Mapping[str, str]) -> Any:
        figure, axes = plot.subplots(figsize=(_WIDTH, 0.8 + 0.4 * len(rows)), layout="constrained")
        for number, row in enumerate(reversed(list(rows.values()))):
            colour = "#009e73" if row.low > 0 else "#d55e00" if row.high < 0 else "#999999"
            axes.plot([row.low, row.high], [number] * 2, lw=3, color=colour)
            axes.plot(row.value, number, "o", ms=7, color=colour)
        axes.axvline(0, color=colours["ink"], lw=0.8)
        names = [_label(name) for name in reversed(list(rows))]
        axes.set_yticks(range(len(rows)), names, fontsize=11)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlabel("difference, trained minus base", color=colours["ink"])
        _style_axes(axes, colours)
        return figure

    return _picture(draw, caption)


def artefacts_picture(
    points: Sequence[tuple[str, float, float, float]], caption: str
) -> Picture | None:
    """Draw artefacts by size in MB and mean reward, labelled with name and seconds of play; return
    None without points."""
    if not points:
        return None

    def draw(plot: Any, colours: Mapping[str, str]) -> Any:
        figure, axes = plot.subplots(figsize=(_WIDTH, 3.0), layout="constrained")
        for number, (name, size, reward, seconds) in enumerate(points):
            axes.plot(size, reward, "o", ms=8, color=_COLOURS[number % len(_COLOURS)])
            axes.annotate(
                f"{_label(name)}, {seconds:.0f} s",
                (size, reward),
                textcoords="offset points",
                xytext=(6, -12 if number % 2 else 6),
                color=colours["ink"],
                fontsize=9,
            )
        axes.set_xscale("log")
        axes.set_ylim(-0.04, 1.14)
        axes.set_xlabel("MB", color=colours["ink"])
        axes.set_ylabel("mean reward", color=colours["ink"])
        _style_axes(axes, colours)
        return figure

    return _picture(draw, caption)


def _label(text: str, max_length: int = 28) -> str:
    """Shorten a label, and strip leading underscores: matplotlib omits such labels from legends."""
    text = " ".join(text.split()).lstrip("_") or "–"
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _style_axes(axes: Any, colours: Mapping[str, str]) -> None:
    axes.tick_params(colors=colours["ink"], labelsize=10)
    axes.grid(True, color=colours["line"], lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(colours["line"])


def _picture(draw: Callable[[Any, Mapping[str, str]], Any], caption: str) -> Picture:
    return Picture(_svg(draw, _LIGHT), _svg(draw, _DARK), caption)


def _svg(draw: Callable[[Any, Mapping[str, str]], Any], colours: Mapping[str, str]) -> str:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plot

    rc_params: Any = {**_RC_PARAMS, "text.color": colours["ink"]}
    with mpl.rc_context(rc_params):
        figure = draw(plot, colours)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        plot.close(figure)
    return out.getvalue()
