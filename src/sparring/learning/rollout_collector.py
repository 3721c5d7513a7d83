"""Plays and judges the cases of one rank, for an engine to learn from.

The engine proposes cases. `draw` chooses the cases of a step, and `play` plays them and returns
`StepRollouts`. Once the engine has computed the advantages, it calls `log_step`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import RolloutKey
from sparring.contracts.training import TrainSettings
from sparring.learning.difficulty import Difficulty
from sparring.learning.drawing import Drawn, draw
from sparring.learning.groups import Group, Outcome, groups_of
from sparring.learning.judged_play import Plays, play_and_judge
from sparring.learning.ordered_play import OrderedPlay
from sparring.learning.rows import RowRules, learning_rollout
from sparring.learning.step_counts import StepCounts
from sparring.learning.step_rollouts import Gaps, StepRollouts
from sparring.measures import MeasureSet
from sparring.player import Play, Played
from sparring.player.loops import LoopThread
from sparring.policies.server_policy import ServerPolicy
from sparring.policies.vllm_server import PublishedWeights
from sparring.run_folder import RunFolder
from sparring.run_folder.rollout_log import RolloutWriter, cut_from_step


@dataclass(frozen=True, slots=True)
class TrainingCases:
    """The ids of the training cases, and a function that loads a case."""

    case_ids: Sequence[str]
    find_case: Callable[[str], Case]


@dataclass(frozen=True, slots=True)
class Place:
    """The rank of this process and the number of ranks."""

    rank: int = 0
    world_size: int = 1


@dataclass(frozen=True, slots=True)
class _Batch:
    """The step that rollouts are played for, and the weights that servers sample with."""

    step: int
    weights: PublishedWeights | None


class RolloutCollector:
    """Plays, judges, logs and counts the rollouts of one rank."""

    def __init__(
        self,
        folder: RunFolder,
        player: Plays,
        measures: MeasureSet,
        settings: TrainSettings,
        *,
        rules: RowRules,
        training: TrainingCases,
        validation: Sequence[Case] = (),
        place: Place | None = None,
        servers: ServerPolicy | None = None,
        ordered: OrderedPlay | None = None,
    ) -> None:
        """`servers` is the player's policy if sampling servers are used. With `ordered`, player
        processes play the rollouts; otherwise this process does."""
        self._folder = folder
        self._servers = servers
        self._ordered = ordered
        self.player = player
        self._measures = measures
        self._settings = settings
        self._rules = rules
        self._find_case = training.find_case
        self._place = place or Place()
        self._validation = list(validation)[self._place.rank :: self._place.world_size]
        self.has_validation = bool(validation)
        self.difficulty = Difficulty(training.case_ids)
        self.loop = LoopThread()
        self._writer: RolloutWriter | None = None

    # ------------------------------------------------------------------ for the engine

    def resume_at(self, step: int, remembered: Mapping[str, Any] | None = None) -> None:
        """Open the rollout log, and remove the rollouts of this and later steps from it.

        Validation rollouts after `step` are removed too. `remembered` holds the difficulty
        statistics of the checkpoint.
        """
        rank = self._place.rank
        cut_from_step(self._folder.rollouts(rank), step)
        cut_from_step(self._folder.validation_rollouts(rank), step + 1 if step else 0)
        self._writer = RolloutWriter(self._folder.rollouts(rank))
        if remembered is not None:
            self.difficulty.restore(remembered)

    def weights(self) -> PublishedWeights | None:
        """Return the weights that servers currently sample with; None without servers."""
        return None if self._servers is None else self._servers.weights

    def draw(self, proposed: Sequence[Sequence[str]], step: int) -> Drawn:
        """Return the cases that this rank plays. `proposed` has the proposed cases of every rank;
        cases that were rarely learned from may be replaced."""
        budget = self._settings.replacement_groups
        return draw(
            proposed,
            self.difficulty,
            seed=self._settings.seed,
            step=step,
            rank=self._place.rank,
            spares=len(proposed[self._place.rank]) if budget is None else budget,
            by_difficulty=self._settings.draw_by_difficulty,
        )

    def play(self, drawn: Drawn, step: int, weights: PublishedWeights | None) -> StepRollouts:
        """Play one group for each case that was drawn, all with these weights.

        Groups of spare cases replace dead groups. Several threads may play steps at once.
        """
        started = time.monotonic()
        batch = _Batch(step, weights)
        played = StepRollouts(
            self._play_groups(drawn.cases, batch),
            self._is_learned_from,
            skipped=len(drawn.skipped),
            version=None if weights is None else weights.version,
        )
        self._replace_dead_groups(played, list(drawn.spares), batch)
        # Ranks play at the same time, but their seconds are added when counts are merged.
        played.play_seconds = (time.monotonic() - started) / self._place.world_size
        return played

    def log_step(
        self, played: StepRollouts, advantages: Sequence[float], gaps: Sequence[Gaps] = ()
    ) -> StepCounts:
        """Log the rollouts of a step with their advantages, and return the counts of the step."""
        logged = list(played.with_advantages(advantages, gaps))
        if self._writer is not None:
            for each in logged:
                self._writer.append(each.rollout, each.seconds)
        return StepCounts.merged([played.counts(), StepCounts.of(each.rollout for each in logged)])

    def validate(self, step: int) -> StepCounts:
        """Play and log this rank's share of the validation cases, once each; return the counts."""
        plays = [
            Play(RolloutKey(self._settings.seed, step, case.id, 0), case)
            for case in self._validation
        ]
        started = time.monotonic()
        played = self._played(plays, self.weights())
        seconds = time.monotonic() - started
        with RolloutWriter(self._folder.validation_rollouts(self._place.rank)) as writer:
            for each in played:
                writer.append(each.rollout, each.seconds)
        counts = StepCounts.of(each.rollout for each in played)
        with_tools = sum(each.offers_tools for each in played)
        return counts.plus(play_seconds=seconds / self._place.world_size, with_tools=with_tools)

    def close(self) -> None:
        """Close the rollout log and the event loop. Rollouts still in play are abandoned."""
        if self._writer is not None:
            self._writer.close()
        if self._ordered is not None:
            self._ordered.close()
        self.loop.close()

    # ------------------------------------------------------------------ groups

    def _play_groups(self, case_ids: Sequence[str], batch: _Batch) -> list[Group]:
        size, seed = self._settings.num_generations, self._settings.seed
        plays = [
            Play(RolloutKey(seed, batch.step, case_id, index), self._find_case(case_id))
            for case_id in case_ids
            for index in range(size)
        ]
        played = self._played(plays, batch.weights)
        version = None if batch.weights is None else batch.weights.version
        learned = [learning_rollout(each.rollout, self._rules, version=version) for each in played]
        return groups_of(played, learned, size)

    def _played(self, plays: Sequence[Play], weights: PublishedWeights | None) -> list[Played]:
        """Return the judged rollouts in the order of `plays`."""
        if self._servers is None or weights is None:
            return self.loop.run(play_and_judge(self.player, self._measures, plays))
        if self._ordered is not None:
            return self._ordered.play(plays, weights)
        with self._servers.assigned(weights, [play.key for play in plays]):
            return self.loop.run(play_and_judge(self.player, self._measures, plays))

    def _replace_dead_groups(self, played: StepRollouts, spares: list[str], batch: _Batch) -> None:
        """Play spare cases in rounds until every group is learned from or no spare is left.

        A dead group that cannot be replaced stays in the batch, with advantages of 0.
        """
        groups = played.groups
        while spares:
            dead = [place for place, group in enumerate(groups) if not self._is_learned_from(group)]
            if not dead:
                return
            tried, spares = spares[: len(dead)], spares[len(dead) :]
            for place, group in zip(dead, self._play_groups(tried, batch), strict=False):
                if self._is_learned_from(group):
                    played.replaced.append(groups[place])
                    groups[place] = group
                else:
                    played.failed_replacements.append(group)

    def _is_learned_from(self, group: Group) -> bool:
        """Whether the step learns from a group: a live one, and with ECHO also a failed one."""
        if group.outcome is Outcome.FAILED:
            return self._settings.learns_results
        return group.outcome is Outcome.LIVE
