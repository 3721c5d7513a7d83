"""Groups: their outcomes, and those of a step with what was played for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sparring.contracts.rollouts import Ending
from sparring.contracts.verdicts import Judgement, cannot_tell, failed, passed, scored
from sparring.learning.groups import Group, Outcome, StepRollouts, cause_of
from sparring.learning.rows import LearningRollout, masked_row
from sparring.player import Played
from tests.rollouts import rollout


def graded(*rewards, verdicts=None):
    given = verdicts or [passed("yes") if reward else failed("no") for reward in rewards]
    played = [
        Played(rollout("x", reward=reward, judgements=(Judgement("right", verdict, 1.0),)), 0.0)
        for reward, verdict in zip(rewards, given, strict=True)
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
    assert graded(*rewards).outcome is outcome


def test_rewards_that_are_half_right_and_equal_agree():
    half = graded(0.5, 0.5, verdicts=[passed("yes"), failed("no")])
    assert half.outcome is Outcome.AGREED


def test_without_a_verdict_the_reward_says_whether_it_was_solved():
    assert graded(1.0, 1.0, verdicts=[scored(1.0, "all of it")] * 2).outcome is Outcome.SOLVED


def test_a_measure_that_is_only_shown_does_not_make_a_solved_group_failed():
    solved = graded(1.0, 1.0)
    shown = Judgement("shown", failed("no"), 0.0)
    both = tuple(
        Played(replace(each.rollout, judgements=(*each.rollout.judgements, shown)), 0.0)
        for each in solved.played
    )
    assert Group(both, solved.learned).outcome is Outcome.SOLVED


def test_the_mean_reward_leaves_unscored_rollouts_out():
    assert graded(1.0, None, 0.0).mean_reward == 0.5
    assert graded(None, None).mean_reward is None


def played(reward: float | None, case: str = "c", **fields: object) -> Played:
    verdict = cannot_tell("the judge is away") if reward is None else passed("yes")
    verdict = failed("no") if reward == 0 else verdict
    judgements = (Judgement("right", verdict, 1.0),)
    return Played(rollout("x", id=case, reward=reward, judgements=judgements, **fields), 0.5, True)


def group(case: str, *rewards: float | None, masked: Sequence[int] = ()) -> Group:
    """A group with these rewards; those of `masked` rollouts, which were cut off, do not count."""
    all_played, learned = [], []
    for number, reward in enumerate(rewards):
        ending = Ending.TOKEN_BUDGET if number in masked else Ending.ANSWERED
        all_played.append(played(reward, case, ending=ending, index=number))
        row = masked_row(number)
        learned.append(LearningRollout((row,), None if number in masked else reward))
    return Group(tuple(all_played), tuple(learned))


def is_live(group: Group) -> bool:
    return group.outcome is Outcome.LIVE


@pytest.fixture
def step() -> StepRollouts:
    return StepRollouts(
        [group("live", 1.0, 0.0, None), group("solved", 1.0, 1.0, 1.0)],
        is_live,
        replaced=[group("failed", 0.0, 0.0)],
        failed_replacements=[group("unscored", None, None)],
        skipped=3,
        play_seconds=2.5,
    )


def test_only_rollouts_of_the_groups_that_stayed_are_learned_from(step: StepRollouts) -> None:
    learned = [each for group in step.groups for each in group.learned]
    assert [each.reward for each in learned] == [1.0, 0.0, None, 1.0, 1.0, 1.0]


def test_the_difficulty_of_every_case_that_was_played_is_known(step: StepRollouts) -> None:
    assert [(each.case_id, each.taught) for each in step.results()] == [
        ("live", True), ("solved", False), ("failed", False), ("unscored", False),
    ]  # fmt: skip


def test_every_rollout_is_logged_with_its_advantage_or_why_it_has_none(step: StepRollouts) -> None:
    logged = [each.rollout for each in step.with_advantages([0.7, -0.7, 9.0, 0.0, 0.0, 0.0])]
    assert [(each.case.id, each.advantage, each.dropped) for each in logged] == [
        ("live", 0.7, ""),
        ("live", -0.7, ""),
        ("live", None, "the judge is away"),
        *[("solved", 0.0, "all 3 usable rollouts of its group passed")] * 3,
        *[("failed", None, "all 2 usable rollouts of its group failed; replaced")] * 2,
        *[
            (
                "unscored",
                None,
                "fewer than two of the group's 2 rollouts are usable; "
                "a replacement, also without a gradient",
            )
        ]
        * 2,
    ]


def test_logging_keeps_the_seconds_and_leaves_the_played_rollout_as_it_was(
    step: StepRollouts,
) -> None:
    logged = list(step.with_advantages([0.1] * 6))
    assert {each.seconds for each in logged} == {0.5}
    assert all(each.rollout.advantage is None for each in step.groups[0].played)


def test_a_rollout_that_was_cut_off_is_dropped_with_that_cause() -> None:
    step = StepRollouts([group("long", 1.0, 0.0, 1.0, masked=[2])], is_live)
    last = list(step.with_advantages([0.5, -0.5, 0.0]))[-1].rollout
    assert (last.advantage, last.dropped) == (None, "cut off by the token budget")


def test_a_group_that_teaches_without_a_gradient_is_not_called_dead() -> None:
    step = StepRollouts([group("failed", 0.0, 0.0)], lambda _: True)
    assert {each.rollout.dropped for each in step.with_advantages([0.0, 0.0])} == {""}
    counts = step.counts().sums
    assert (counts["live_groups"], counts["teaching_groups"]) == (0, 1)


def test_groups_are_counted_by_their_outcome(step: StepRollouts) -> None:
    assert step.counts().sums == {
        "play_seconds": 2.5, "with_tools": 10, "skipped": 3, "groups": 2, "live_groups": 1,
        "teaching_groups": 1,
        "dead/solved": 1, "replaced/failed": 1, "failed_replacements/unscored": 1,
    }  # fmt: skip


def test_the_first_cause_is_that_of_the_first_rollout_without_a_reward(step: StepRollouts) -> None:
    assert step.first_cause() == "the judge is away"
    assert StepRollouts([group("live", 1.0, 0.0)], is_live).first_cause() == ""


def test_a_rollout_that_nobody_judged_is_explained_by_its_ending() -> None:
    broken = Played(
        rollout("", ending=Ending.INFRASTRUCTURE_ERROR, detail="the server is gone"), 0.0
    )
    assert cause_of(broken) == "infrastructure_error: the server is gone"


def test_a_measure_that_could_not_tell_goes_before_the_ending() -> None:
    two = (
        Judgement("right", passed("yes"), 1.0),
        Judgement("polite", cannot_tell("no judge"), 1.0),
    )
    made = replace(rollout("x", ending=Ending.TURN_LIMIT, detail="too long"), judgements=two)
    assert cause_of(Played(made, 0.0)) == "no judge"
    assert cause_of(played(1.0)) == ""
