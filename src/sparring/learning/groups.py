"""A group: the rollouts of one case in one step, and whether it can teach anything.

Advantages compare the rollouts of a group with one another. Where all have the same reward,
there is nothing to compare, and the group moves no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparring.contracts.rollouts import Rollout
from sparring.learning.rows import LearningRow
from sparring.player import Played


class Outcome(StrEnum):
    """What came of a group; all but LIVE are the cause for which it teaches nothing."""

    LIVE = "live"
    SOLVED = "solved"
    FAILED = "failed"
    AGREED = "agreed"
    UNSCORED = "unscored"


_TOLD = {
    Outcome.LIVE: "have a say",
    Outcome.SOLVED: "passed",
    Outcome.FAILED: "failed",
    Outcome.AGREED: "have the same reward",
    Outcome.UNSCORED: "but one at most have no reward",
}


@dataclass(frozen=True, slots=True)
class Group:
    """Rollouts of one case, with the rows made of them, in the same order."""

    played: tuple[Played, ...]
    rows: tuple[LearningRow, ...]

    @property
    def case_id(self) -> str:
        return self.played[0].rollout.case.id

    @property
    def outcome(self) -> Outcome:
        taught = [
            (row.reward, each.rollout)
            for row, each in zip(self.rows, self.played, strict=True)
            if row.reward is not None
        ]
        rewards = {reward for reward, _ in taught}
        if len(taught) < 2:
            return Outcome.UNSCORED
        if len(rewards) > 1:
            return Outcome.LIVE
        correct = {_is_correct(rollout) for _, rollout in taught}
        if correct == {True}:
            return Outcome.SOLVED
        return Outcome.FAILED if correct == {False} else Outcome.AGREED

    def told(self) -> str:
        """The outcome in words."""
        return f"all {len(self.played)} of its group {_TOLD[self.outcome]}"

    @property
    def mean_reward(self) -> float | None:
        rewards = [row.reward for row in self.rows if row.reward is not None]
        return sum(rewards) / len(rewards) if rewards else None


def _is_correct(rollout: Rollout) -> bool | None:
    """Whether all rewarded measures that could tell say so; by the reward where none can."""
    told = [
        each.is_correct
        for each in rollout.judgements
        if each.weight > 0 and each.is_correct is not None
    ]
    if told:
        return all(told)
    reward = rollout.reward or 0.0
    return True if reward >= 1 else False if reward <= 0 else None


def groups_of(played: Sequence[Played], rows: Sequence[LearningRow], size: int) -> list[Group]:
    """Rollouts that stand together, `size` for each case."""
    return [
        Group(tuple(played[start : start + size]), tuple(rows[start : start + size]))
        for start in range(0, len(played), size)
    ]
