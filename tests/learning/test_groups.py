from __future__ import annotations

from dataclasses import replace

import pytest

from sparring.contracts.verdicts import Judgement, failed, passed, scored
from sparring.learning.groups import Group, Outcome
from sparring.learning.rows import LearningRollout, masked_row
from sparring.player import Played
from tests.rollouts import rollout


def group(*rewards, verdicts=None):
    told = verdicts or [passed("yes") if reward else failed("no") for reward in rewards]
    played = [
        Played(rollout("x", reward=reward, judgements=(Judgement("right", verdict, 1.0),)), 0.0)
        for reward, verdict in zip(rewards, told, strict=True)
    ]
    learned = [LearningRollout((masked_row(1),), reward) for reward in rewards]
    return Group(tuple(played), tuple(learned))


@pytest.mark.parametrize(
    ("rewards", "outcome"),
    [
        ((1.0, 0.0), Outcome.LIVE),
        ((1.0, None, 0.0), Outcome.LIVE),
        ((1.0, 1.0), Outcome.SOLVED),
        ((0.0, 0.0, None), Outcome.FAILED),
        ((1.0, None), Outcome.UNSCORED),
        ((None, None), Outcome.UNSCORED),
    ],
)
def test_a_group_is_live_where_its_rewards_differ(rewards, outcome):
    assert group(*rewards).outcome is outcome


def test_rewards_that_are_half_right_and_equal_agree():
    half = group(0.5, 0.5, verdicts=[passed("yes"), failed("no")])
    assert half.outcome is Outcome.AGREED


def test_without_a_verdict_the_reward_says_whether_it_was_solved():
    assert group(1.0, 1.0, verdicts=[scored(1.0, "all of it")] * 2).outcome is Outcome.SOLVED


def test_a_measure_that_is_only_shown_does_not_make_a_solved_group_failed():
    solved = group(1.0, 1.0)
    shown = Judgement("shown", failed("no"), 0.0)
    both = tuple(
        Played(replace(each.rollout, judgements=(*each.rollout.judgements, shown)), 0.0)
        for each in solved.played
    )
    assert Group(both, solved.learned).outcome is Outcome.SOLVED


def test_the_mean_reward_leaves_unscored_rollouts_out():
    assert group(1.0, None, 0.0).mean_reward == 0.5
    assert group(None, None).mean_reward is None
