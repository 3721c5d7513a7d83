"""Plays and judges the cases of one rank, in this process or in player processes, and logs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import RolloutKey
from sparring.contracts.training import TrainSettings
from sparring.learning.difficulty import Difficulty
from sparring.learning.groups import Group, groups_of
from sparring.learning.judged_play import Plays, play_and_judge
from sparring.learning.ordered_play import OrderedPlay
from sparring.learning.ranks import Launched
from sparring.learning.rows import RowRules, learning_rollout
from sparring.learning.step_counts import StepCounts
from sparring.learning.step_rollouts import Gaps, StepRollouts
from sparring.measures import MeasureSet
from sparring.player import Play, Played
from sparring.policies.server_policy import ServerPolicy
from sparring.policies.vllm_server import PublishedWeights
from sparring.run_folder import RunFolder
from sparring.run_folder.rollout_log import RolloutWriter, cut_from_step
from sparring.threads import LoopThread


@dataclass(frozen=True, slots=True)
class TrainingCases:
    """The ids of the training cases, and a function that loads a case."""

    case_ids: Sequence[str]
    find_case: Callable[[str], Case]


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
        launched: Launched | None = None,
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
        self._launched = launched or Launched(0, 1)
        self._validation = list(validation)[self._launched.rank :: self._launched.world_size]
        self.has_validation = bool(validation)
        self.difficulty = Difficulty(training.case_ids)
        self.loop = LoopThread()
        self._writer: RolloutWriter | None = None

    def resume_at(self, step: int, remembered: Mapping[str, Any] | None = None) -> None:
        """Open the rollout log, and remove the rollouts of this and later steps from it.

        Validation rollouts after `step` are removed too. `remembered` holds the difficulty
        statistics of the checkpoint.
        """
        rank = self._launched.rank
        cut_from_step(self._folder.rollouts(rank), step)
        cut_from_step(self._folder.validation_rollouts(rank), step + 1 if step else 0)
        self._writer = RolloutWriter(self._folder.rollouts(rank))
        if remembered is not None:
            self.difficulty.restore(remembered)

    @property
    def weights(self) -> PublishedWeights | None:
        """The weights that servers currently sample with; None without servers."""
        return None if self._servers is None else self._servers.weights

    def play_groups(
        self, case_ids: Sequence[str], step: int, weights: PublishedWeights | None
    ) -> list[Group]:
        """Play and judge a group of rollouts for each case, all with these weights. Thread-safe."""
        size, seed = self._settings.num_generations, self._settings.seed
        plays = [
            Play(RolloutKey(seed, step, case_id, index), self._find_case(case_id))
            for case_id in case_ids
            for index in range(size)
        ]
        judged = self._judged(plays, weights)
        version = None if weights is None else weights.version
        learned = [learning_rollout(each.rollout, self._rules, version=version) for each in judged]
        return groups_of(judged, learned, size)

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
        played = self._judged(plays, self.weights)
        seconds = time.monotonic() - started
        with RolloutWriter(self._folder.validation_rollouts(self._launched.rank)) as writer:
            for each in played:
                writer.append(each.rollout, each.seconds)
        counts = StepCounts.of(each.rollout for each in played)
        with_tools = sum(each.offers_tools for each in played)
        return counts.plus(play_seconds=seconds / self._launched.world_size, with_tools=with_tools)

    def close(self) -> None:
        """Close the rollout log and the event loop. Rollouts still in play are abandoned."""
        if self._writer is not None:
            self._writer.close()
        if self._ordered is not None:
            self._ordered.close()
        self.loop.close()

    def _judged(self, plays: Sequence[Play], weights: PublishedWeights | None) -> list[Played]:
        """Return the judged rollouts in the order of `plays`."""
        if self._servers is None or weights is None:
            return self.loop.run(play_and_judge(self.player, self._measures, plays))
        if self._ordered is not None:
            return self._ordered.play(plays, weights)
        with self._servers.assigned(weights, [play.key for play in plays]):
            return self.loop.run(play_and_judge(self.player, self._measures, plays))
