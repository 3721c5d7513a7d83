"""The rollouts of one step on one rank, as the rollout collector returns them to the engine."""

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
# By index of the row: the trainer's log-probability of each sampled token minus the sampler's.
Gaps: TypeAlias = "dict[int, array[float]]"


@dataclass(slots=True)
class StepRollouts:
    """The groups in the batch of a step, and the other groups that were played for it.

    `is_learned_from` returns whether the step learns from a group. `replaced` are the dead groups
    that were replaced, `failed_replacements` the replacements that are not learned from either.
    `version` is the version of the weights that servers sampled with; None without servers.
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
        """The learning rollouts of the batch, group by group."""
        return [each for group in self.groups for each in group.learned]

    @property
    def are_live(self) -> list[bool]:
        """Whether the group of each learning rollout of the batch is live."""
        outcomes = [(group.outcome is Outcome.LIVE, group.learned) for group in self.groups]
        return [is_live for is_live, learned in outcomes for _ in learned]

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


def gaps_of(learned: Sequence[LearningRollout], by_row: Iterable[Sequence[float]]) -> list[Gaps]:
    """Return the gaps of each rollout. `by_row` has the difference at every token of every row,
    rollout by rollout; only tokens that are learned from are kept."""
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
