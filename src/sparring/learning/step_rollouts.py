"""The rollouts of one step on one rank, which the rollout collector returns to the engine."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TypeAlias

from sparring.contracts.rollouts import Rollout
from sparring.learning.difficulty import Seen
from sparring.learning.groups import Group, Outcome
from sparring.learning.rows import LearningRollout, other_versions
from sparring.learning.step_counts import StepCounts
from sparring.player import Played

IsLearnedFrom = Callable[[Group], bool]
# By row: the trainer's log-probability of each sampled token minus the sampler's.
Gaps: TypeAlias = "dict[int, array[float]]"


@dataclass(slots=True)
class StepRollouts:
    """The groups in the batch of a step, and the other groups that were played for it.

    `replaced` are groups without a gradient that another group replaced; `failed_replacements` are
    replacements that had no gradient either. `is_learned_from` tells which groups have a gradient.
    `version` is that of the weights that the rollouts were played with, where servers sampled.
    """

    groups: list[Group]
    is_learned_from: IsLearnedFrom
    replaced: list[Group] = field(default_factory=list)
    failed_replacements: list[Group] = field(default_factory=list)
    skipped: int = 0
    play_seconds: float = 0.0
    version: int | None = None

    @property
    def learned(self) -> list[LearningRollout]:
        """What is learned from each rollout, group by group."""
        return [each for group in self.groups for each in group.learned]

    @property
    def all_groups(self) -> list[Group]:
        """Every group that was played, in the order in which rollouts are logged."""
        return [*self.groups, *self.replaced, *self.failed_replacements]

    def results(self) -> list[Seen]:
        """Return the result of every group, for the difficulty of its case."""
        return [
            Seen(group.case_id, self.is_learned_from(group), group.mean_reward)
            for group in self.all_groups
        ]

    def first_cause(self) -> str:
        """Return why the first rollout without a reward has none; empty where all have one."""
        rollouts = [played for group in self.all_groups for played in group.played]
        causes = (cause_of(played) for played in rollouts if played.rollout.reward is None)
        return next(filter(None, causes), "")

    def with_advantages(
        self, advantages: Sequence[float], gaps: Sequence[Gaps] = ()
    ) -> Iterator[Played]:
        """Yield every rollout as it is logged: with its advantage, or why it has none, and with
        the gaps of its rows where they are known."""
        remaining, by_rollout = iter(advantages), iter(gaps)
        for group in self.groups:
            dead = "" if self.is_learned_from(group) else group.describe()
            for learned, played in zip(group.learned, group.played, strict=True):
                advantage, is_learned = next(remaining), learned.reward is not None
                yield _logged(
                    _with_gaps(played, next(by_rollout, {})),
                    advantage=advantage if is_learned else None,
                    dropped=dead if is_learned else cause_of(played, self.version),
                )
        for groups, suffix in (
            (self.replaced, "; replaced"),
            (self.failed_replacements, "; a replacement, also without a gradient"),
        ):
            for group in groups:
                for played in group.played:
                    yield _logged(played, dropped=group.describe() + suffix)

    def counts(self) -> StepCounts:
        """Return what was played: groups by outcome, seconds, cases that were skipped."""
        counts = StepCounts().plus(
            play_seconds=self.play_seconds,
            skipped=self.skipped,
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
    """Return why a rollout has no reward or is not learned from: it was truncated, or other weights
    than those of `version` sampled it. Empty if none of that is so."""
    rollout = played.rollout
    if rollout.reward is not None:
        if others := other_versions(rollout, version):
            return f"sampled by weights of step {others[0]}, and not of step {version}"
        return "cut off by the token budget" if rollout.is_truncated else ""
    reasons = [each.verdict.reason for each in rollout.judgements if each.verdict.score is None]
    return reasons[0] if reasons else f"{rollout.ending.value}: {rollout.detail}"


def gaps_of(learned: Sequence[LearningRollout], by_row: Iterable[Sequence[float]]) -> list[Gaps]:
    """Return the gaps of each rollout. `by_row` has the differences of every token of every row,
    rollout by rollout; those of sampled tokens are kept."""
    remaining = iter(by_row)
    return [
        {
            row.place: array("f", compress(values, row.mask))
            for row, values in zip(each.rows, remaining, strict=False)
            if row.place is not None and any(row.mask)
        }
        for each in learned
    ]


def _with_gaps(played: Played, gaps: Gaps) -> Played:
    if not gaps:
        return played
    rows = tuple(
        replace(row, gaps=gaps.get(place, row.gaps))
        for place, row in enumerate(played.rollout.rows)
    )
    return replace(played, rollout=replace(played.rollout, rows=rows))


def _logged(played: Played, *, dropped: str, advantage: float | None = None) -> Played:
    rollout: Rollout = replace(played.rollout, advantage=advantage, dropped=dropped)
    return replace(played, rollout=rollout)
