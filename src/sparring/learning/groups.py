"""Groups the rollouts of one case in one step, and determines whether a group has a gradient.

An advantage compares a rollout with the others of its group. In a group whose rewards are all
equal, the advantages are 0, and GRPO's loss has no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparring.contracts.rollouts import Rollout
from sparring.learning.rows import LearningRollout
from sparring.player import Played


class Outcome(StrEnum):
    """The outcome of a group. All values except LIVE are reasons why it has no gradient."""

    LIVE = "live"
    SOLVED = "solved"
    FAILED = "failed"
    AGREED = "agreed"
    UNSCORED = "unscored"


_DESCRIPTIONS = {
    Outcome.LIVE: "the {usable} usable rollouts of its group have different rewards",
    Outcome.SOLVED: "all {usable} usable rollouts of its group passed",
    Outcome.FAILED: "all {usable} usable rollouts of its group failed",
    Outcome.AGREED: "all {usable} usable rollouts of its group have the same reward",
    Outcome.UNSCORED: "fewer than two of the group's {size} rollouts are usable",
}


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one case, and their learning rollouts in the same order."""

    played: tuple[Played, ...]
    learned: tuple[LearningRollout, ...]

    @property
    def case_id(self) -> str:
        """The id of the case that was played."""
        return self.played[0].rollout.case.id

    @property
    def outcome(self) -> Outcome:
        """LIVE if the group has a gradient, otherwise why it has none."""
        scored = [
            (learned.reward, each.rollout)
            for learned, each in zip(self.learned, self.played, strict=True)
            if learned.reward is not None
        ]
        rewards = {reward for reward, _ in scored}
        if len(scored) < 2:
            return Outcome.UNSCORED
        if len(rewards) > 1:
            return Outcome.LIVE
        correct = {_is_correct(rollout) for _, rollout in scored}
        if correct == {True}:
            return Outcome.SOLVED
        return Outcome.FAILED if correct == {False} else Outcome.AGREED

    def describe(self) -> str:
        """Return the outcome as a clause for the log of one of the group's rollouts."""
        usable = sum(each.reward is not None for each in self.learned)
        return _DESCRIPTIONS[self.outcome].format(size=len(self.played), usable=usable)

    @property
    def mean_reward(self) -> float | None:
        """The mean reward of the usable rollouts; None if there are none."""
        rewards = [each.reward for each in self.learned if each.reward is not None]
        return sum(rewards) / len(rewards) if rewards else None


def _is_correct(rollout: Rollout) -> bool | None:
    """Whether all measures with a positive weight passed, without those that cannot tell. Without
    such a measure, whether the reward is 1; None if the reward is between 0 and 1."""
    passed = [
        each.is_correct
        for each in rollout.judgements
        if each.weight > 0 and each.is_correct is not None
    ]
    if passed:
        return all(passed)
    reward = rollout.reward or 0.0
    return True if reward >= 1 else False if reward <= 0 else None


def groups_of(
    played: Sequence[Played], learned: Sequence[LearningRollout], size: int
) -> list[Group]:
    """Split a sequence of rollouts into groups of `size`."""
    return [
        Group(tuple(played[start : start + size]), tuple(learned[start : start + size]))
        for start in range(0, len(played), size)
    ]
