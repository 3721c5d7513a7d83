"""How often groups will differ: against counting, and against what a simulation shows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey
from sparring.contracts.summaries import MeasureVerdict, Movement
from sparring.contracts.verdicts import Judgement, cannot_tell, scored
from sparring.proofs.learnability import (
    bands,
    describe,
    judge_measures,
    live_chance,
    live_shares,
    outcomes_of,
)
from tests.proofs.made import answered

Score = Callable[[int], float | None]


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


@pytest.mark.nightly
@pytest.mark.parametrize("mean", [0.02, 0.1, 0.5, 0.9])
def test_live_shares_of_the_first_steps_lie_in_the_interval(mean) -> None:
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


def played(*, cut: bool = False, **measures: Score) -> list[Rollout]:
    """Eight rollouts of each of four cases; each measure scores by the number of the rollout."""
    rollouts = []
    for number in range(32):
        case = f"case {number // 8}"
        judgements = []
        for name, score in measures.items():
            value = score(number)
            reason = "nearly" if value and value >= 0.5 else "far off"
            verdict = cannot_tell("no idea") if value is None else scored(value, reason)
            judgements.append(Judgement(name, verdict, 0.0 if name == "guard" else 1.0))
        ending = Ending.TOKEN_BUDGET if cut else Ending.ANSWERED
        key = RolloutKey(0, 0, case, number % 8)
        rollouts.append(Rollout(key, Case(case, case), ending, "", judgements=tuple(judgements)))
    return rollouts


def judged(rollouts: list[Rollout], *, masks_truncated: bool = False) -> list[MeasureVerdict]:
    return judge_measures(rollouts, group_size=4, masks_truncated=masks_truncated)


def half(number: int) -> float:
    return float(number % 2)


KNOWN: dict[str, tuple[Score, Movement, str]] = {
    "differs": (half, Movement.CAN_BE_LEARNED, "m passes 16 of 32 rollouts"),
    "never": (lambda _: 0.0, Movement.NEVER_PASSES, "m never passes"),
    "passes one case only": (
        lambda n: float(n == 3),
        Movement.CAN_BE_LEARNED,
        "m passes 1 of 32 rollouts",
    ),
    "always": (lambda _: 1.0, Movement.ALREADY_PASSED, "m already passes (32 of 32 rollouts)"),
    "the same score": (
        lambda _: 0.5,
        Movement.CONSTANT,
        "m gives every rollout the same score",
    ),
    "mostly silent": (
        lambda n: 1.0 if n < 8 else None,
        Movement.CANNOT_TELL,
        "m could judge only 8 rollouts",
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_measure_has_its_verdict_and_its_sentence(name: str) -> None:
    score, movement, sentence = KNOWN[name]
    (found,) = judged(played(m=score))
    assert (found.movement, describe(found)) == (movement, sentence)


def test_a_measure_that_passes_in_hardly_any_group_hardly_ever_passes() -> None:
    verdict = MeasureVerdict("m", Movement.NEVER_PASSES, 200, 1, 0.02)
    assert describe(verdict) == "m hardly ever passes (1 of 200 rollouts)"


@pytest.mark.parametrize("movement", [Movement.NEVER_PASSES, Movement.ALREADY_PASSED])
def test_a_measure_that_depends_on_the_case_alone_is_described_so(movement: Movement) -> None:
    verdict = MeasureVerdict("m", movement, 200, 90, 0.02)
    assert describe(verdict) == (
        "m passes 90 of 200 rollouts, but hardly any case both passes and fails"
    )


def test_the_weakest_measure_comes_first_and_guards_are_left_out() -> None:
    found = judged(played(moves=half, guard=lambda _: 0.0, done=lambda _: 1.0, dead=lambda _: 0.0))
    assert [each.name for each in found] == ["dead", "done", "moves"]
    order = [list(Movement).index(each.movement) for each in found]
    assert order == sorted(order)


def test_the_most_frequent_reason_for_failing_says_why() -> None:
    (found,) = judged(played(m=lambda n: 1.0 if n % 2 else (0.25 if n % 8 else 0.5)))
    assert found.why == "far off"
    (passes,) = judged(played(m=lambda _: 1.0))
    assert passes.why == ""


def test_truncated_rollouts_carry_no_gradient_where_they_are_masked() -> None:
    cut = played(cut=True, m=half)
    (counted,), (masked,) = judged(cut), judged(cut, masks_truncated=True)
    assert counted.live > 0.5
    assert masked.live == 0.0
    assert masked.movement is not Movement.CAN_BE_LEARNED


def test_without_rollouts_there_is_nothing_to_judge() -> None:
    assert judged([]) == []
