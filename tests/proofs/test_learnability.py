"""How often groups will differ: against counting, and against what a simulation shows."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.proofs.learnability import bands, live_chance, live_shares, outcomes_of
from tests.proofs.made import answered


@given(st.lists(st.floats(0.01, 1), min_size=3, max_size=5), st.integers(2, 5))
def test_the_chance_of_a_live_group_is_what_counting_gives(weights, size) -> None:
    """The last share is that of rollouts without a reward, the one before of rewards that are all
    different."""
    shares = np.array(weights) / sum(weights)
    unique, none = len(shares) - 2, len(shares) - 1
    live = 0.0
    for group in itertools.product(range(len(shares)), repeat=size):
        scored = [kind for kind in group if kind != none]
        if len(set(scored)) > 1 or scored.count(unique) > 1:
            live += float(np.prod(shares[list(group)]))
    assert live_chance(shares[None, :], size)[0] == pytest.approx(live, abs=1e-9)


def test_rewards_that_are_all_different_are_live_and_cost_no_more() -> None:
    random = np.random.default_rng(0)
    outcomes = {str(n): list(random.random(64)) for n in range(100)}
    started = time.monotonic()
    assert live_shares(outcomes, group_size=4, groups_per_step=4)[0].value > 0.9
    assert time.monotonic() - started < 20


@given(
    st.dictionaries(
        st.text(max_size=3),
        st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), min_size=1, max_size=8),
        min_size=1,
        max_size=5,
    )
)
def test_larger_groups_are_live_more_often(outcomes) -> None:
    shares = live_shares(outcomes, group_size=4, groups_per_step=4)
    assert shares[0].group_size == 4
    by_size = sorted(shares, key=lambda each: each.group_size)
    values = [each.value for each in by_size]
    assert all(later >= earlier - 0.02 for earlier, later in itertools.pairwise(values))
    assert all(0 <= each.low <= each.high <= 1 for each in shares)


@pytest.mark.parametrize(
    "mean", [0.02, *(pytest.param(mean, marks=pytest.mark.nightly) for mean in (0.1, 0.5, 0.9))]
)
def test_what_the_first_steps_show_lies_in_the_interval(mean) -> None:
    """Cases of all kinds; twelve are played, then five steps of four groups are drawn."""
    random = np.random.default_rng(int(100 * mean))
    inside, trials = 0, 200
    for _ in range(trials):
        chance = random.beta(2 * mean, 2 * (1 - mean), size=500)
        played = random.choice(500, 12, replace=False)
        outcomes = {str(n): list((random.random(16) < chance[n]).astype(float)) for n in played}
        planned = live_shares(outcomes, group_size=4, groups_per_step=4)[0]
        groups = random.random((20, 4)) < chance[random.choice(500, 20)][:, None]
        live = np.mean([0 < group.sum() < 4 for group in groups])
        inside += planned.low <= live <= planned.high
    assert inside / trials >= 0.92


def test_a_truncated_rollout_counts_as_training_counts_it() -> None:
    cut = answered("a", 1.0, is_truncated=True)
    whole = answered("a", 0.0)
    assert outcomes_of([cut, whole], masks_truncated=True) == {"a": [None, 0.0]}
    assert outcomes_of([cut, whole], masks_truncated=False) == {"a": [1.0, 0.0]}


def test_a_band_holds_the_pass_rate_and_narrows_with_more_rollouts() -> None:
    few = bands([answered("a", reward, index) for index, reward in enumerate([1.0, 0.0])])[0]
    many = bands([answered("a", float(n % 2), n) for n in range(64)])[0]
    for band in (few, many):
        assert band.low < 0.5 < band.high
    assert many.high - many.low < few.high - few.low
