"""One interval decides: what it must hold for any suite, and how often it is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.summaries import Standing
from sparring.proofs.paired import paired_difference, smallest_effect

SCORES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=60)


def sides(pairs: list[tuple[float, float]]) -> tuple[dict[str, float], dict[str, float]]:
    names = [f"case {n}" for n in range(len(pairs))]
    first, second = zip(*pairs, strict=True)
    return dict(zip(names, first, strict=True)), dict(zip(names, second, strict=True))


@given(SCORES)
def test_the_interval_is_around_its_middle_and_within_what_is_possible(pairs) -> None:
    shown = paired_difference(*sides(pairs))
    assert shown is not None
    assert -1 <= shown.low <= shown.high <= 1
    assert shown.low < shown.high
    assert abs(shown.value - (shown.after - shown.before)) < 1e-9
    assert shown.cases == len(pairs)
    assert 0 < shown.smallest_effect <= 1


def test_rewards_of_any_size_are_inside_their_interval() -> None:
    shown = paired_difference(*sides([(-0.1 * n, -2.0 - 0.1 * n - n % 3) for n in range(20)]))
    assert shown is not None
    assert shown.low < shown.value < shown.high < -2


@given(SCORES)
def test_swapping_the_sides_swaps_the_signs_of_difference_and_interval(pairs) -> None:
    before, after = sides(pairs)
    one, other = paired_difference(before, after), paired_difference(after, before)
    assert one is not None
    assert other is not None
    if abs(one.value) > 1e-9:  # a tie has no direction
        assert one.value == -other.value
        assert one.low == pytest.approx(-other.high, abs=1e-9)
        assert one.high == pytest.approx(-other.low, abs=1e-9)


@given(SCORES, st.integers(2, 20))
def test_among_many_candidates_the_interval_is_wider(pairs, chances) -> None:
    plain = paired_difference(*sides(pairs))
    picked = paired_difference(*sides(pairs), chances=chances)
    assert plain is not None
    assert picked is not None
    assert picked.low <= plain.low
    assert picked.high >= plain.high
    assert picked.smallest_effect >= plain.smallest_effect


def test_equal_sides_show_no_difference_and_have_an_interval_around_zero() -> None:
    shown = paired_difference(*sides([(1.0, 1.0)] * 50))
    assert shown is not None
    assert shown.standing is Standing.NOT_SHOWN
    assert shown.low < -0.01 < 0.01 < shown.high


def test_a_large_effect_is_better_and_the_other_way_round_worse() -> None:
    pairs = [(0.2, 0.9), (0.1, 0.7), (0.3, 0.9), (0.2, 0.2)] * 10
    before, after = sides(pairs)
    better, worse = paired_difference(before, after), paired_difference(after, before)
    assert better is not None
    assert worse is not None
    assert (better.standing, worse.standing) == (Standing.BETTER, Standing.WORSE)


def test_only_cases_that_both_have_played_count() -> None:
    shown = paired_difference({"a": 0.0, "b": 1.0}, {"b": 1.0, "c": 0.0})
    assert shown is not None
    assert shown.cases == 1
    assert paired_difference({"a": 0.0}, {"b": 1.0}) is None


def test_the_exact_test_is_given_for_single_rollouts_only() -> None:
    pairs = [(0.0, 1.0)] * 9 + [(1.0, 0.0)] + [(1.0, 1.0)] * 10
    single = paired_difference(*sides(pairs), is_single=True)
    assert single is not None
    assert single.mcnemar == pytest.approx(0.021484375)  # 2 · (1 + 10) / 2**10
    several = paired_difference(*sides(pairs))
    assert several is not None
    assert several.mcnemar is None


@given(st.integers(20, 400))
def test_more_cases_show_smaller_effects(cases) -> None:
    random = np.random.default_rng(cases)
    few = random.choice([-1.0, 0.0, 1.0], size=cases)
    assert smallest_effect(np.tile(few, 4)) < smallest_effect(few)


@pytest.mark.nightly
def test_without_a_difference_it_is_called_better_as_rarely_as_it_says() -> None:
    """A short form of benchmarks/proof_calibration.py, with fixed seeds."""
    random = np.random.default_rng(0)
    names = [str(n) for n in range(60)]
    better = covered = 0
    suites = 2000
    for seed in range(suites):
        chance = random.beta(0.8, 0.8, size=60)
        base, other = (random.binomial(4, chance) / 4 for _ in range(2))
        shown = paired_difference(
            dict(zip(names, base, strict=True)), dict(zip(names, other, strict=True)), seed=seed
        )
        assert shown is not None
        better += shown.standing is Standing.BETTER
        covered += shown.low <= 0 <= shown.high
    assert better / suites <= 0.035
    assert 0.93 <= covered / suites <= 0.97
