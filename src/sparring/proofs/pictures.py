"""Pictures for reports: curves over steps, bands of cases, intervals around differences.

Each is drawn twice, for light and for dark screens. Colours are of the Okabe-Ito palette, which
people with any colour vision can tell apart.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.proofs.document import Gallery, Picture

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
_LIGHT = {"ink": "#1b1f24", "line": "#d9dee4"}
_DARK = {"ink": "#e6e9ed", "line": "#343b44"}
_WIDTH = 5.6
# Pictures repeat bit by bit, and what users wrote is no formula.
_RULES: dict[str, Any] = {"svg.hashsalt": "sparring", "text.parse_math": False}
_FEW_POINTS = 25
_SHARES = ("reward", "pass rate", "live groups")


@dataclass(frozen=True, slots=True)
class Curve:
    """One line: steps and values."""

    label: str
    steps: Sequence[float]
    values: Sequence[float]


def curves(panels: Mapping[str, Sequence[Curve]]) -> Gallery | None:
    """A small picture for each kind of figure, over the same steps."""
    pictures = []
    for title, lines in panels.items():
        if there := [each for each in lines if each.values]:
            pictures.append(_panel(title, there))
    return Gallery(pictures) if pictures else None


def _panel(title: str, lines: Sequence[Curve]) -> Picture:
    def draw(plot: Any, look: Mapping[str, str]) -> Any:
        from matplotlib.ticker import MaxNLocator

        figure, place = plot.subplots(figsize=(_WIDTH, 3.0), layout="constrained")
        for number, line in enumerate(lines):
            place.plot(
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
            place.set_ylim(-0.04, 1.04)
        place.xaxis.set_major_locator(MaxNLocator(integer=True))
        place.set_xlabel("step", color=look["ink"])
        if len(lines) > 1:
            place.legend(fontsize=10, frameon=False, labelcolor=look["ink"])
        _plain(place, look)
        return figure

    return _picture(draw, title)


def case_bands(cases: Sequence[Mapping[str, Any]], caption: str) -> Picture | None:
    """Each case's pass rate, with what it may be; of those that could be scored."""
    cases = [case for case in cases if case["rollouts"]]
    if not cases:
        return None

    def draw(plot: Any, look: Mapping[str, str]) -> Any:
        figure, place = plot.subplots(
            figsize=(_WIDTH, 0.8 + 0.28 * len(cases)), layout="constrained"
        )
        for number, case in enumerate(reversed(cases)):
            place.plot([case["low"], case["high"]], [number] * 2, lw=5, color="#0072b2", alpha=0.35)
            place.plot(case["passed"] / case["rollouts"], number, "o", ms=5, color="#0072b2")
        place.set_yticks(
            range(len(cases)),
            [_label(str(case.get("question") or case["case"]), 40) for case in reversed(cases)],
            fontsize=10,
        )
        place.set_xlim(-0.02, 1.02)
        place.set_ylim(-0.7, len(cases) - 0.3)
        place.set_xlabel("pass rate", color=look["ink"])
        _plain(place, look)
        return figure

    return _picture(draw, caption)


def intervals(rows: Mapping[str, Mapping[str, Any]], caption: str) -> Picture | None:
    """Differences with their intervals, against the line of no difference."""
    if not rows:
        return None

    def draw(plot: Any, look: Mapping[str, str]) -> Any:
        figure, place = plot.subplots(figsize=(_WIDTH, 0.8 + 0.4 * len(rows)), layout="constrained")
        for number, row in enumerate(reversed(list(rows.values()))):
            colour = "#009e73" if row["low"] > 0 else "#d55e00" if row["high"] < 0 else "#999999"
            place.plot([row["low"], row["high"]], [number] * 2, lw=3, color=colour)
            place.plot(row["value"], number, "o", ms=7, color=colour)
        place.axvline(0, color=look["ink"], lw=0.8)
        names = [_label(name) for name in reversed(list(rows))]
        place.set_yticks(range(len(rows)), names, fontsize=11)
        place.set_ylim(-0.6, len(rows) - 0.4)
        place.set_xlabel("difference, trained minus base", color=look["ink"])
        _plain(place, look)
        return figure

    return _picture(draw, caption)


def _label(text: str, longest: int = 28) -> str:
    """Short enough to leave room for the picture. A leading _ would hide it."""
    text = " ".join(text.split()).lstrip("_") or "–"
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _plain(place: Any, look: Mapping[str, str]) -> None:
    place.tick_params(colors=look["ink"], labelsize=10)
    place.grid(True, color=look["line"], lw=0.6)
    place.set_axisbelow(True)
    for side in ("top", "right"):
        place.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        place.spines[side].set_color(look["line"])


def _picture(draw: Callable[[Any, Mapping[str, str]], Any], caption: str) -> Picture:
    return Picture(_svg(draw, _LIGHT), _svg(draw, _DARK), caption)


def _svg(draw: Callable[[Any, Mapping[str, str]], Any], look: Mapping[str, str]) -> str:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plot

    rules: Any = {**_RULES, "text.color": look["ink"]}
    with mpl.rc_context(rules):
        figure = draw(plot, look)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        plot.close(figure)
    return out.getvalue()
