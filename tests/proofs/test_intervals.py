"""The interval of a share treats the case as the unit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.summaries import Share
from sparring.proofs.intervals import share_of_cases

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
