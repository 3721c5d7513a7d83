from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.rollouts import Ending
from sparring.contracts.verdicts import Judgement, cannot_tell, failed, passed
from sparring.learning.step_counts import StepCounts
from tests.rollouts import rollout

VERDICTS = {True: passed("yes"), False: failed("no"), None: cannot_tell("who knows")}


def made(reward, advantage, ending=Ending.ANSWERED):
    judged = (Judgement("right", VERDICTS[None if reward is None else reward > 0.5], 1.0),)
    return replace(
        rollout("x", ending=ending, reward=reward, judgements=judged), advantage=advantage
    )


rollouts = st.builds(
    made,
    st.sampled_from([0.0, 1.0, None]),
    st.sampled_from([None, 0.0, 1.5]),
    st.sampled_from([Ending.ANSWERED, Ending.TOKEN_BUDGET, Ending.UNPARSABLE_CALL]),
)


@given(st.lists(st.lists(rollouts, min_size=4, max_size=4), min_size=2, max_size=8))
def test_counts_of_ranks_add_up_to_the_counts_of_all(groups):
    whole = StepCounts.of(each for group in groups for each in group)
    parts = [StepCounts.of(group) for group in groups]
    wired = [StepCounts.from_dict(part.to_dict()) for part in parts]
    assert StepCounts.merged(wired).metrics() == whole.metrics()


def test_figures_are_shares_and_means_of_what_was_scored():
    figures = StepCounts.of([made(1.0, 1.0), made(0.0, -1.0), made(None, None)]).metrics()
    assert figures["reward"] == 0.5
    assert (figures["reward_min"], figures["reward_max"]) == (0.0, 1.0)
    assert figures["advantage"] == 0.0
    assert figures["pass_rate/right"] == 0.5
    assert figures["unscored"] == 1 / 3


def test_only_rollouts_with_tools_have_a_call_rate():
    counts = StepCounts.of([made(1.0, 1.0), made(0.0, -1.0)])
    assert "call_rate" not in counts.metrics()
    assert counts.plus(with_tools=2).metrics()["call_rate"] == 0.0


def test_no_rollouts_give_no_figures():
    assert StepCounts().metrics() == {}


def test_a_validation_has_a_score_if_nine_tenths_were_scored():
    nine, one = [made(1.0, None)] * 9, [made(None, None)]
    assert StepCounts.of(nine + one).score() == 1.0
    assert StepCounts.of(nine + one * 2).score() is None
    assert StepCounts().score() is None
