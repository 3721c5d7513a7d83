"""Equal, worse or cannot tell: a loss must be excluded, not merely unseen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.rollouts import Ending
from sparring.contracts.summaries import Difference, Likeness
from sparring.proofs.equivalence import compare, deciding_cases, improvement, parse_rate
from tests.proofs.made import answered
from tests.summaries import complete


def played(rewards: list[float], answer: str = "yes") -> list[Any]:
    return [
        answered(f"c{number}", reward, answer=f"{answer} {number}")
        for number, reward in enumerate(rewards)
    ]


def test_equal_answers_are_equal_however_few_cases_there_are() -> None:
    found = compare(played([1.0, 0.0, 1.0]), played([1.0, 0.0, 1.0]))
    assert found.likeness is Likeness.EQUAL
    assert found.same_answers == found.rollouts == 3


def test_other_answers_of_the_same_worth_are_equal_only_with_many_cases() -> None:
    few = compare(played([1.0] * 20), played([1.0] * 20, "other"))
    many = compare(played([1.0] * 200), played([1.0] * 200, "other"))
    assert (few.likeness, many.likeness) == (Likeness.CANNOT_TELL, Likeness.EQUAL)
    assert "; about 130 cases would exclude a loss of 0.05" in few.sentence
    assert "a loss of 0.05 or more is excluded" in many.sentence


def test_a_clear_loss_is_worse_with_its_size() -> None:
    found = compare(played([1.0] * 32), played([0.0] * 16 + [1.0] * 16, "other"))
    assert found.likeness is Likeness.WORSE
    assert found.sentence.startswith("worse by 0.500")


def test_a_comparison_without_scored_cases_cannot_tell() -> None:
    unscored = [replace(each, reward=None) for each in played([1.0])]
    assert compare(played([1.0]), unscored).likeness is Likeness.CANNOT_TELL


def test_unreadable_calls_lower_the_parse_rate() -> None:
    rollouts = played([1.0, 0.0])
    rollouts[1] = replace(rollouts[1], ending=Ending.UNPARSABLE_CALL)
    assert parse_rate(rollouts) == 0.5
    assert parse_rate([]) == 1.0


def test_the_improvement_is_corrected_for_the_looks() -> None:
    base, artefact = played([0.0] * 24), played([1.0] * 12 + [0.0] * 12)
    once, often = improvement(base, artefact), improvement(base, artefact, chances=20)
    assert once is not None
    assert often is not None
    assert often.low < once.low


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=8, max_size=40), st.randoms())
def test_an_artefact_that_loses_is_never_equal_beyond_the_margin(
    rewards: list[float], draw: Any
) -> None:
    worse = [0.0 if draw.random() < 0.5 else each for each in rewards]
    found = compare(played(rewards), played(worse, "other"), margin=0.05)
    if found.likeness is Likeness.EQUAL:
        assert found.difference is not None
        assert found.difference.low > -0.05


def test_an_artefact_with_many_unscored_cases_is_neither_equal_nor_better() -> None:
    checkpoint = played([1.0] * 200)
    half = [replace(each, reward=None) if n % 2 else each for n, each in enumerate(checkpoint)]
    found = compare(checkpoint, half)
    assert found.likeness is Likeness.CANNOT_TELL
    assert found.missing == "100 of 200 cases could not be scored on both sides"
    assert found.sentence.startswith(found.missing)
    assert improvement(played([0.0] * 200), half) is None
    few = [replace(each, reward=None) if n < 9 else each for n, each in enumerate(checkpoint)]
    assert compare(checkpoint, few).likeness is Likeness.EQUAL


@pytest.mark.parametrize(
    ("value", "low", "needed"), [(0.0, -0.06, 70), (-0.03, -0.09, 400), (-0.05, -0.2, 0)]
)
def test_the_cases_that_would_decide_follow_from_the_width_of_the_interval(
    value: float, low: float, needed: int
) -> None:
    difference = complete(Difference, {"value": value, "low": low, "cases": 44})
    assert deciding_cases(difference, 0.05) == needed
