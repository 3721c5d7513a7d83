"""One rank's practice: plays cases, judges them, and hands an engine rows to learn from.

The engine says which cases, and what advantages came of them. Rollouts are logged once
their advantage is known. Nothing is kept beyond the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import RolloutKey
from sparring.contracts.training import TrainSettings
from sparring.learning.difficulty import Difficulty, Seen
from sparring.learning.drawing import draw
from sparring.learning.groups import Group, Outcome, groups_of
from sparring.learning.judged_play import Plays, play_and_judge
from sparring.learning.rows import LearningRow, learning_row
from sparring.learning.step_counts import StepCounts
from sparring.measures import MeasureSet
from sparring.player import Play, Played
from sparring.player.loops import LoopThread
from sparring.run_folder import RunFolder
from sparring.run_folder.rollout_log import RolloutWriter, cut_from_step


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What rows are checked against."""

    size: int
    end_of_turn: int


@dataclass(frozen=True, slots=True)
class Training:
    """The cases that are learned from."""

    case_ids: Sequence[str]
    find_case: Callable[[str], Case]


@dataclass(frozen=True, slots=True)
class Place:
    """Which process this is."""

    rank: int = 0
    world_size: int = 1


class Practice:
    """Plays and judges on one rank."""

    def __init__(
        self,
        folder: RunFolder,
        player: Plays,
        measures: MeasureSet,
        settings: TrainSettings,
        *,
        vocabulary: Vocabulary,
        training: Training,
        validation: Sequence[Case] = (),
        place: Place | None = None,
    ) -> None:
        self._folder = folder
        self.player = player
        self._measures = measures
        self._settings = settings
        self._vocabulary = vocabulary
        self._find_case = training.find_case
        self._place = place or Place()
        self._validation = list(validation)[self._place.rank :: self._place.world_size]
        self.has_validation = bool(validation)
        self.difficulty = Difficulty(training.case_ids)
        self.loop = LoopThread()
        self._groups: list[Group] = []
        self._replaced: list[Group] = []
        self._in_vain: list[Group] = []
        self.first_cause = ""
        self._counts: list[StepCounts] = []
        self._writer: RolloutWriter | None = None

    # ------------------------------------------------------------------ for the engine

    def resume_at(self, step: int, remembered: Mapping[str, Any] | None = None) -> None:
        """Forget what was played behind this step, recall what was known there; open the log."""
        rank = self._place.rank
        cut_from_step(self._folder.rollouts(rank), step)
        cut_from_step(self._folder.validation_rollouts(rank), step + 1 if step else 0)
        self._writer = RolloutWriter(self._folder.rollouts(rank))
        if remembered is not None:
            self.difficulty.recall(remembered)

    def rows(self, proposed: Sequence[Sequence[str]], step: int) -> list[LearningRow]:
        """Play a group of each case proposed to this rank, or of one that is likelier to teach.

        `proposed` has the cases of every rank, so that all of them draw from one lot. Groups
        that teach nothing are replaced by others, as far as the budget goes.
        """
        started = time.monotonic()
        budget = self._settings.replacement_groups
        drawn = draw(
            proposed,
            self.difficulty,
            seed=self._settings.seed,
            step=step,
            rank=self._place.rank,
            spares=len(proposed[self._place.rank]) if budget is None else budget,
            by_difficulty=self._settings.draw_by_difficulty,
        )
        self._groups = self._play_groups(drawn.cases, step)
        self._replaced, self._in_vain = [], []
        self._replace_dead_groups(list(drawn.spares), step)
        self._note_play(time.monotonic() - started, len(drawn.passed_over))
        return [row for group in self._groups for row in group.rows]

    def seen(self) -> list[Seen]:
        """What the groups of `rows` showed, to be told to all ranks."""
        return [
            Seen(group.case_id, self._teaches(group), group.mean_reward)
            for group in (*self._groups, *self._replaced, *self._in_vain)
        ]

    def note_advantages(self, advantages: Sequence[float]) -> None:
        """Log the rollouts of `rows`, now that it is known what each of them taught."""
        given = iter(advantages)
        rollouts = []
        for group in self._groups:
            dead = "" if self._teaches(group) else group.told()
            for row, played in zip(group.rows, group.played, strict=True):
                advantage, teaches = next(given), row.reward is not None
                rollouts.append(
                    replace(
                        played.rollout,
                        advantage=advantage if teaches else None,
                        dropped=dead if teaches else _cause(played),
                    )
                )
        for groups, came_of_it in (
            (self._replaced, "; replaced"),
            (self._in_vain, "; played in place of another, in vain"),
        ):
            for group in groups:
                why = group.told() + came_of_it
                rollouts += [replace(played.rollout, dropped=why) for played in group.played]
        every = (*self._groups, *self._replaced, *self._in_vain)
        seconds = [played.seconds for group in every for played in group.played]
        if self._writer is not None:
            for rollout, taken in zip(rollouts, seconds, strict=True):
                self._writer.append(rollout, taken)
        self._counts.append(StepCounts.of(rollouts))
        self._groups, self._replaced, self._in_vain = [], [], []

    def count(self, **sums: float) -> None:
        """Figures of the engine's, to be added up with ours."""
        self._counts.append(StepCounts().plus(**sums))

    def take_counts(self) -> StepCounts:
        """What this rank's rollouts showed since this was last asked."""
        counts, self._counts = StepCounts.merged(self._counts), []
        return counts

    def validate(self, step: int) -> StepCounts:
        """Play this rank's share of the validation cases, once each."""
        plays = [
            Play(RolloutKey(self._settings.seed, step, case.id, 0), case)
            for case in self._validation
        ]
        started = time.monotonic()
        played = self.loop.run(play_and_judge(self.player, self._measures, plays))
        seconds = time.monotonic() - started
        with RolloutWriter(self._folder.validation_rollouts(self._place.rank)) as writer:
            for each in played:
                writer.append(each.rollout, each.seconds)
        counts = StepCounts.of(each.rollout for each in played)
        return counts.plus(play_seconds=seconds / self._place.world_size)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self.loop.close()

    # ------------------------------------------------------------------ inside

    def _play_groups(self, case_ids: Sequence[str], step: int) -> list[Group]:
        size = self._settings.num_generations
        plays = [
            Play(RolloutKey(self._settings.seed, step, case_id, index), self._find_case(case_id))
            for case_id in case_ids
            for index in range(size)
        ]
        played = self.loop.run(play_and_judge(self.player, self._measures, plays))
        rows = [
            learning_row(
                each.rollout,
                end_of_turn=self._vocabulary.end_of_turn,
                vocabulary=self._vocabulary.size,
                masks_truncated=self._settings.mask_truncated_completions,
                keeps_results=self._longest_result(),
            )
            for each in played
        ]
        if not self.first_cause:
            self.first_cause = next(filter(None, map(_cause, played)), "")
        return groups_of(played, rows, size)

    def _replace_dead_groups(self, spares: list[str], step: int) -> None:
        """In rounds, until all groups teach or the spares are used up. A group that cannot be
        replaced stays: it costs its place, and moves nothing."""
        while spares:
            dead = [place for place, group in enumerate(self._groups) if not self._teaches(group)]
            if not dead:
                return
            tried, spares = spares[: len(dead)], spares[len(dead) :]
            for place, group in zip(dead, self._play_groups(tried, step), strict=False):
                if self._teaches(group):
                    self._replaced.append(self._groups[place])
                    self._groups[place] = group
                else:
                    self._in_vain.append(group)

    def _teaches(self, group: Group) -> bool:
        """Where tool results are learned, too, a failed group shows what to expect of them."""
        if group.outcome is Outcome.FAILED:
            return self._settings.learns_results
        return group.outcome is Outcome.LIVE

    def _note_play(self, seconds: float, passed_over: int) -> None:
        counts = StepCounts().plus(
            play_seconds=seconds / self._place.world_size,  # ranks play at the same time
            passed_over=passed_over,
            groups=len(self._groups),
            live_groups=sum(group.outcome is Outcome.LIVE for group in self._groups),
            teaching_groups=sum(map(self._teaches, self._groups)),
        )
        for group in self._groups:
            if group.outcome is not Outcome.LIVE:
                counts.plus(**{f"dead/{group.outcome}": 1})
        for name, groups in (("replaced", self._replaced), ("in_vain", self._in_vain)):
            for group in groups:
                counts.plus(**{f"{name}/{group.outcome}": 1})
        self._counts.append(counts)

    def _longest_result(self) -> int:
        """How far into a completion a tool result is worth keeping that nobody answered."""
        return self._settings.max_completion_length if self._settings.learns_results else 0


def _cause(played: Played) -> str:
    """Why a rollout teaches nothing by itself; empty where it has a reward."""
    rollout = played.rollout
    if rollout.reward is not None:
        return "cut off by the token budget" if rollout.is_truncated else ""
    reasons = [each.verdict.reason for each in rollout.judgements if each.verdict.score is None]
    return reasons[0] if reasons else f"{rollout.ending.value}: {rollout.detail}"
