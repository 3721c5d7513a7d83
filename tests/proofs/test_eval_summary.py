from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.rollouts import Ending
from sparring.contracts.summaries import Share
from sparring.contracts.verdicts import Judgement, cannot_tell, failed, passed
from sparring.proofs.eval_summary import EvalTally, Reasons, share_of_cases
from tests.rollouts import rollout

Shares = st.lists(st.floats(0, 1), min_size=1, max_size=40)


def share(values: list[float]) -> Share:
    found = share_of_cases(values)
    assert found is not None
    return found


def width(values: list[float]) -> float:
    found = share(values)
    return found.high - found.low


def test_without_cases_there_is_no_share() -> None:
    assert share_of_cases([]) is None


@settings(max_examples=50)
@given(Shares)
def test_the_interval_holds_the_mean_and_stays_within_0_and_1(values: list[float]) -> None:
    found = share(values)
    assert found.count == len(values)
    assert found.value == pytest.approx(sum(values) / len(values))
    assert 0 <= found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high <= 1


@pytest.mark.parametrize(
    ("passed", "count", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],
)
def test_with_one_rollout_per_case_it_is_wilsons_interval(
    passed: int, count: int, low: float, high: float
) -> None:
    found = share([1.0] * passed + [0.0] * (count - passed))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


def test_more_cases_narrow_the_interval() -> None:
    assert width([0.0, 1.0] * 40) < width([0.0, 1.0] * 10)


def test_cases_that_agree_narrow_the_interval_and_repeating_rollouts_alone_does_not() -> None:
    """Twenty cases of half right each say more than twenty that are all right or all wrong."""
    split = width([0.0, 1.0] * 10)
    assert width([0.4, 0.6] * 10) < split / 2
    assert width([0.5] * 20) == pytest.approx(split)  # all equal: no variance to estimate from


@pytest.mark.parametrize("value", [0.1, 0.2, 0.3, 0.7])
def test_equal_shares_that_are_rounded_are_equal(value: float) -> None:
    assert width([value] * 10) == pytest.approx(width([value] * 9 + [value + 1e-15]))
    assert width([value] * 10) > 0.3


def test_the_interval_is_never_narrower_than_that_of_independent_rollouts() -> None:
    found = share_of_cases([0.5, 0.5, 0.75], rollouts=12)
    independent = share([1.0] * 7 + [0.0] * 5)
    assert found is not None
    assert found.high - found.low == pytest.approx(independent.high - independent.low)


def test_all_that_pass_leave_room_below_and_none_above() -> None:
    found = share([1.0] * 20)
    assert found.high == pytest.approx(1.0)
    assert found.low == pytest.approx(0.8389, abs=1e-4)


def test_wilsons_interval_for_one_rollout_per_case():
    share = share_of_cases([1.0] * 20 + [0.0] * 80)
    assert share is not None
    assert (round(share.low, 3), round(share.high, 3)) == (0.133, 0.289)  # Wilson, 20 of 100


def test_no_cases_give_no_interval():
    assert share_of_cases([]) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_the_interval_holds_the_share_and_stays_between_0_and_1(shares):
    share = share_of_cases(shares)
    assert share is not None
    assert 0 <= share.low <= share.value + 1e-9
    assert share.value - 1e-9 <= share.high <= 1


def test_rollouts_that_repeat_their_case_add_no_certainty():
    """Ten cases played a hundred times, alike within a case, are ten pieces of evidence."""
    repeated = share_of_cases([1.0] * 5 + [0.0] * 5)
    spread = share_of_cases([0.5] * 10)
    assert repeated is not None
    assert spread is not None
    assert repeated.high - repeated.low > 0.4
    assert spread.high - spread.low <= repeated.high - repeated.low


def test_reasons_of_one_shape_are_counted_together():
    reasons = Reasons()
    for number in range(3):
        reasons.add(f"expected {number}, got '{number + 1}'")
    reasons.add("no number")
    first, second = reasons.most_common()
    assert (first.count, first.reason) == (3, "expected 0, got '1'")
    assert second.count == 1


def test_an_apostrophe_is_not_a_quote():
    reasons = Reasons()
    reasons.add("didn't call add; it isn't right")
    reasons.add("didn't answer; it isn't right")
    assert len(reasons.most_common()) == 2


def test_a_million_different_reasons_do_not_fill_the_memory():
    reasons = Reasons()
    for number in range(20_000):
        reasons.add("".join(chr(97 + int(digit)) for digit in str(number)))
    assert len(reasons._counts) <= 2000


def test_the_summary_counts_what_happened():
    tally = EvalTally()
    tally.add(
        rollout("x", judgements=(Judgement("m", passed("yes"), 1.0),), reward=1.0, tools=["add"])
    )
    tally.add(rollout("x", id="d", judgements=(Judgement("m", failed("no"), 1.0),), reward=0.0))
    tally.add(rollout("", id="e", judgements=(Judgement("m", cannot_tell("broke"), 1.0),)))
    tally.add(rollout("", id="f", ending=Ending.UNPARSABLE_CALL, detail="not JSON"))
    figures = tally.figures()
    assert figures.rollouts == 4
    assert figures.unscored == 2
    assert figures.reward == pytest.approx(0.5)
    assert figures.parse_rate == pytest.approx(0.75)
    measure = figures.measures["m"]
    assert (measure.judged, measure.cannot_tell) == (2, 1)
    assert measure.pass_rate is not None
    assert measure.pass_rate.value == pytest.approx(0.5)
    assert figures.as_json()["causes"] == [
        {"count": 1, "reason": "unparsable_call: not JSON", "shape": "unparsable_call: not JSON"}
    ]
    json.dumps(figures.as_json())
