"""One rank's practice: plays cases, judges them, and hands an engine rows to learn from.

The engine says which cases, and what advantages came of them. Rollouts are logged once
their advantage is known. Nothing is kept beyond the step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import RolloutKey
from sparring.contracts.training import TrainSettings
from sparring.learning.rows import LearningRow, learning_row
from sparring.learning.step_counts import StepCounts
from sparring.measures import MeasureSet
from sparring.player import Play, Played
from sparring.player.loops import LoopThread
from sparring.run_folder import RunFolder
from sparring.run_folder.rollout_log import RolloutWriter, cut_from_step

FindCase = Callable[[str], Case]


class Plays(Protocol):
    """What plays: the player of agents, or a rollout function of the user's."""

    def play(self, plays: Iterable[Play]) -> AsyncGenerator[Played]: ...

    def hung_threads(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What rows are checked against."""

    size: int
    end_of_turn: int


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
        find_case: FindCase,
        validation: Sequence[Case] = (),
        place: Place | None = None,
    ) -> None:
        self._folder = folder
        self._player = player
        self._measures = measures
        self._settings = settings
        self._vocabulary = vocabulary
        self._find_case = find_case
        self._place = place or Place()
        self._validation = list(validation)[self._place.rank :: self._place.world_size]
        self.has_validation = bool(validation)
        self._loop = LoopThread()
        self._played: list[Played] = []
        self._taught: list[bool] = []
        self.first_cause = ""
        self._seconds = 0.0
        self._counts: list[StepCounts] = []
        self._writer: RolloutWriter | None = None

    # ------------------------------------------------------------------ for the engine

    def resume_at(self, step: int) -> None:
        """Forget what was played behind this step; open the log."""
        rank = self._place.rank
        cut_from_step(self._folder.rollouts(rank), step)
        cut_from_step(self._folder.validation_rollouts(rank), step + 1 if step else 0)
        self._writer = RolloutWriter(self._folder.rollouts(rank))

    def rows(self, case_ids: Sequence[str], step: int) -> list[LearningRow]:
        """Play these cases, one rollout for each time a case is named, and judge them."""
        named: dict[str, int] = {}
        plays = []
        for case_id in case_ids:
            index = named.get(case_id, 0)
            named[case_id] = index + 1
            key = RolloutKey(self._settings.seed, step, case_id, index)
            plays.append(Play(key, self._find_case(case_id)))
        started = time.monotonic()
        self._played = self._loop.run(self._play_and_judge(plays))
        self._seconds = time.monotonic() - started
        rows = [
            learning_row(
                played.rollout,
                end_of_turn=self._vocabulary.end_of_turn,
                vocabulary=self._vocabulary.size,
                masks_truncated=self._settings.mask_truncated_completions,
            )
            for played in self._played
        ]
        self._taught = [row.reward is not None for row in rows]
        if not self.first_cause:
            self.first_cause = next(filter(None, map(_cause, self._played)), "")
        return rows

    def note_advantages(self, advantages: Sequence[float]) -> None:
        """Log the rollouts of `rows`, now that it is known what each of them taught."""
        rollouts = []
        for played, advantage, taught in zip(self._played, advantages, self._taught, strict=True):
            rollout = replace(played.rollout, advantage=advantage if taught else None)
            rollouts.append(rollout)
            if self._writer is not None:
                self._writer.append(rollout, played.seconds)
        self._counts.append(
            StepCounts.of(
                rollouts, self._settings.num_generations, self._seconds, self._place.world_size
            )
        )
        self._played = []

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
        played = self._loop.run(self._play_and_judge(plays))
        seconds = time.monotonic() - started
        with RolloutWriter(self._folder.validation_rollouts(self._place.rank)) as writer:
            for each in played:
                writer.append(each.rollout, each.seconds)
        rollouts = [each.rollout for each in played]
        return StepCounts.of(rollouts, 1, seconds, self._place.world_size)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._loop.close()

    # ------------------------------------------------------------------ inside

    async def _play_and_judge(self, plays: Sequence[Play]) -> list[Played]:
        """Judge each rollout as soon as it is played; in the order of `plays`."""
        order = {play.key: number for number, play in enumerate(plays)}
        judging: list[asyncio.Task[Played]] = []
        try:
            async with aclosing(self._player.play(plays)) as stream:
                async for played in stream:
                    judging.append(asyncio.create_task(self._judge(played)))
            judged = list(await asyncio.gather(*judging))
        finally:
            for task in judging:
                task.cancel()
        judged.sort(key=lambda played: order[played.rollout.key])
        together = await self._measures.judge_together([each.rollout for each in judged])
        return [
            Played(rollout, each.seconds) for rollout, each in zip(together, judged, strict=True)
        ]

    async def _judge(self, played: Played) -> Played:
        return Played(await self._measures.judge(played.rollout), played.seconds)


def _cause(played: Played) -> str:
    """Why a rollout has no reward."""
    rollout = played.rollout
    if rollout.reward is not None:
        return ""
    reasons = [each.verdict.reason for each in rollout.judgements if each.verdict.score is None]
    return reasons[0] if reasons else f"{rollout.ending.value}: {rollout.detail}"
