"""Pictures show what they are given, on light and dark screens; without values there is none."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sparring.contracts.summaries import CaseBand, Difference
from sparring.reports.document import Picture
from sparring.reports.pictures import Curve, case_bands, curves, intervals
from tests.summaries import complete

BETTER, WORSE, OPEN = "#009e73", "#d55e00", "#999999"


def case(**fields: Any) -> CaseBand:
    given = {"case": "c1", "low": 0.1, "high": 0.9, "passed": 1, "rollouts": 2, **fields}
    return complete(CaseBand, given)


def texts(picture: Picture) -> list[str]:
    """The texts of a picture, which matplotlib repeats as comments beside their outlines."""
    return [each.strip() for each in re.findall(r"<!--(.*?)-->", picture.light, re.DOTALL)]


def panel(*lines: Curve, title: str = "entropy") -> Picture:
    gallery = curves({title: lines})
    assert gallery is not None
    (picture,) = gallery.pictures
    return picture


def test_without_values_there_is_no_picture() -> None:
    assert curves({}) is None
    assert curves({"reward": [Curve("training", [], [])]}) is None
    assert case_bands([case(rollouts=0, passed=0)], "cases") is None
    assert intervals({}, "differences") is None


def test_each_panel_with_values_is_a_picture_under_its_title() -> None:
    gallery = curves({"reward": [Curve("a", [1], [0.5])], "entropy": [Curve("b", [], [])]})
    assert gallery is not None
    assert [each.caption for each in gallery.pictures] == ["reward"]


def test_several_curves_have_a_legend_and_one_alone_has_none() -> None:
    one, two = Curve("training", [1, 2], [0.1, 0.2]), Curve("validation", [1, 2], [0.3, 0.4])
    assert "training" not in texts(panel(one))
    assert {"training", "validation", "step"} <= set(texts(panel(one, two)))


def test_shares_are_drawn_from_0_to_1() -> None:
    low = Curve("a", [1, 2], [0.4, 0.41])
    assert "1.0" in texts(panel(low, title="reward"))
    assert "1.0" not in texts(panel(low, title="entropy"))


def test_light_and_dark_pictures_differ_in_ink_only() -> None:
    picture = panel(Curve("a", [1, 2], [0.1, 0.2]))
    assert "#1b1f24" in picture.light
    assert "#e6e9ed" in picture.dark
    as_dark = picture.light.replace("#1b1f24", "#e6e9ed").replace("#d9dee4", "#343b44")
    names = r"\b[mp][0-9a-f]{10}\b"  # digests of what they name, colours included
    assert re.sub(names, "", as_dark) == re.sub(names, "", picture.dark)


def test_cases_are_labelled_by_their_question_and_the_unscored_are_left_out() -> None:
    long = "what is the sum of all numbers from one to a hundred?"
    rows = [case(case="c1"), case(case="c2", question=long), case(case="c3", rollouts=0)]
    picture = case_bands(rows, "Pass rates")
    assert picture is not None
    shown = texts(picture)
    assert "c1" in shown
    assert f"{long[:39]}…" in shown
    assert "c3" not in shown
    assert picture.caption == "Pass rates"


@pytest.mark.parametrize(
    ("low", "high", "colour"), [(0.1, 0.3, BETTER), (-0.3, -0.1, WORSE), (-0.1, 0.3, OPEN)]
)
def test_an_interval_is_coloured_by_the_side_of_zero_it_lies_on(
    low: float, high: float, colour: str
) -> None:
    row = complete(Difference, {"low": low, "high": high, "value": (low + high) / 2})
    picture = intervals({"reward": row}, "Differences")
    assert picture is not None
    assert colour in picture.light
    assert not {BETTER, WORSE, OPEN} - {colour} & set(re.findall("#[0-9a-f]{6}", picture.light))


def test_names_that_matplotlib_would_hide_or_parse_are_shown_as_text() -> None:
    shown = texts(panel(Curve("_hidden", [1], [1.0]), Curve("$x^2$", [1], [2.0])))
    assert "hidden" in shown
    assert "$x^2$" in shown
    assert "–" in texts(panel(Curve("_", [1], [1.0]), Curve("b", [1], [2.0])))
