"""The groups of a step: the rollouts of one case, and all that one rank has played for a step.

An advantage compares a rollout with the others of its group. In a group whose rewards are all
equal, the advantages are 0, and GRPO's loss has no gradient.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import compress
from typing import TypeAlias

from sparring.contracts.rollouts import Rollout
from sparring.learning.drawing import Seen
from sparring.learning.reporting import StepCounts
from sparring.learning.rows import LearningRollout, other_versions
from sparring.player import Played

# By index of the row: the trainer's log-probability of each sampled token minus the sampler's.
Gaps: TypeAlias = "Mapping[int, array[float]]"
_NO_GAPS: Gaps = {}


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


@dataclass(slots=True)
class StepRollouts:
    """The groups in the batch of a step, and the other groups that were played for it.

    `is_learned_from` returns whether the step learns from a group. `replaced` are the dead groups
    that were replaced, `failed_replacements` the replacements that are not learned from either.
    `version` is the version of the weights that servers sampled with; None without servers.
    """

    groups: list[Group]
    is_learned_from: Callable[[Group], bool]
    replaced: list[Group] = field(default_factory=list)
    failed_replacements: list[Group] = field(default_factory=list)
    skipped: int = 0
    play_seconds: float = 0.0
    version: int | None = None

    @property
    def all_groups(self) -> list[Group]:
        """Every group that was played, in the order in which rollouts are logged."""
        return [*self.groups, *self.replaced, *self.failed_replacements]

    def results(self) -> list[Seen]:
        """Return the result of every group that was played, for the difficulty statistics."""
        return [
            Seen(group.case_id, self.is_learned_from(group), group.mean_reward)
            for group in self.all_groups
        ]

    def first_cause(self) -> str:
        """Return the first known reason why a rollout has no reward; empty if there is none."""
        rollouts = [played for group in self.all_groups for played in group.played]
        causes = (cause_of(played) for played in rollouts if played.rollout.reward is None)
        return next(filter(None, causes), "")

    def with_advantages(
        self, advantages: Sequence[float], gaps: Sequence[Gaps] = ()
    ) -> Iterator[Played]:
        """Yield every rollout for the log: with its advantage, the reason if it is not learned
        from, and the gaps of its rows if `gaps` has them.

        `advantages` and `gaps` have one entry per rollout of the batch.
        """
        remaining, by_rollout = iter(advantages), iter(gaps)
        for group in self.groups:
            dead = "" if self.is_learned_from(group) else group.describe()
            for learned, played in zip(group.learned, group.played, strict=True):
                advantage, is_learned = next(remaining), learned.reward is not None
                yield _logged(
                    played,
                    advantage=advantage if is_learned else None,
                    dropped=dead if is_learned else cause_of(played, self.version),
                    gaps=next(by_rollout, _NO_GAPS),
                )
        for groups, suffix in (
            (self.replaced, "; replaced"),
            (self.failed_replacements, "; a replacement, also without a gradient"),
        ):
            for group in groups:
                for played in group.played:
                    yield _logged(played, dropped=group.describe() + suffix)

    def counts(self) -> StepCounts:
        """Return the counts of groups by outcome, of rollouts with tools, of seconds of play, and
        of skipped cases."""
        counts = StepCounts().plus(
            play_seconds=self.play_seconds,
            skipped=self.skipped,
            with_tools=sum(each.offers_tools for group in self.all_groups for each in group.played),
            groups=len(self.groups),
            live_groups=sum(group.outcome is Outcome.LIVE for group in self.groups),
            teaching_groups=sum(map(self.is_learned_from, self.groups)),
        )
        for group in self.groups:
            if group.outcome is not Outcome.LIVE:
                counts.plus(**{f"dead/{group.outcome}": 1})
        for name, groups in (
            ("replaced", self.replaced),
            ("failed_replacements", self.failed_replacements),
        ):
            for group in groups:
                counts.plus(**{f"{name}/{group.outcome}": 1})
        return counts


def cause_of(played: Played, version: int | None = None) -> str:
    """Return why a rollout has no reward. If it has one, return why it is not learned from: weights
    other than `version` sampled a token, or it was truncated. Empty if neither applies."""
    rollout = played.rollout
    if rollout.reward is not None:
        if others := other_versions(rollout, version):
            return f"sampled with the weights of step {others[0]} instead of step {version}"
        return "cut off by the token budget" if rollout.is_truncated else ""
    return rollout.unscored_because


def gaps_of(groups: Sequence[Group], by_row: Iterable[Sequence[float]]) -> list[Gaps]:
    """Return the gaps of each rollout. `by_row` has the difference at every token of every row,
    rollout by rollout; only tokens that are learned from are kept."""
    remaining = iter(by_row)
    return [
        {
            row.place: array("f", compress(values, row.mask))
            for row, values in zip(each.rows, remaining, strict=False)
            if row.place is not None and any(row.mask)
        }
        for group in groups
        for each in group.learned
    ]


def _logged(
    played: Played, *, dropped: str, advantage: float | None = None, gaps: Gaps = _NO_GAPS
) -> Played:
    rows = tuple(
        replace(row, gaps=gaps.get(place, row.gaps))
        for place, row in enumerate(played.rollout.rows)
    )
    logged = replace(played.rollout, rows=rows, advantage=advantage, dropped=dropped)
    return replace(played, rollout=logged)
