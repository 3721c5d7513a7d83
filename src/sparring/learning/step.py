"""A step of training, from the cases that are proposed to the weights that are saved.

    propose → draw → play → judge → replace dead groups → rewards → streams → parity
            → update, report → publish → validate, save

Nothing here depends on the engine, which stands behind `learning/engine.py`. The collector plays
and judges; how rewards become gradients is in `learning/credit`.
"""

from __future__ import annotations

import time

from sparring.contracts.errors import GuardStop, ParityError
from sparring.contracts.training import TrainSettings
from sparring.learning.batches import BatchPlan
from sparring.learning.drawing import Drawn, draw
from sparring.learning.engine import Engine, LearningState
from sparring.learning.groups import Group, Outcome
from sparring.learning.guards import GuardMonitor
from sparring.learning.hooks import Hooks
from sparring.learning.parity import Parity
from sparring.learning.rollout_collector import RolloutCollector
from sparring.learning.rollout_pipeline import Pace, Proposed, RolloutPipeline
from sparring.learning.step_counts import StepCounts
from sparring.learning.step_reports import StepReports, merged_over_ranks
from sparring.learning.step_rollouts import StepRollouts, gaps_of
from sparring.learning.streams import Batch, advantages_of, streams_of
from sparring.policies.vllm_server import PublishedWeights
from sparring.run_folder.checkpoint_list import Checkpoint


class Steps:
    """The steps of one training on one rank. All ranks take them together.

    `stopped` is set when the training ended on a stop request, `guard_stop` when a guard ended it.
    """

    def __init__(
        self,
        engine: Engine,
        collector: RolloutCollector,
        settings: TrainSettings,
        plan: BatchPlan,
        hooks: Hooks,
        guards: GuardMonitor,
    ) -> None:
        self.stopped = False
        self._engine = engine
        self._collector = collector
        self._settings = settings
        self._plan = plan
        self._hooks = hooks
        self._reports = StepReports(hooks, guards, engine)
        self._pace = Pace(plan.steps, settings.max_staleness, plan.boundary)
        self._pipeline = RolloutPipeline(self._pace, engine.propose, self._draw, self._play)
        self._is_parity_known = False

    @property
    def guard_stop(self) -> GuardStop | None:
        """The reason why a guard ends the training, if one does."""
        return self._reports.guard_stop

    def run(self, checkpoint: Checkpoint | None = None) -> None:
        """Train from a checkpoint, if there is one, to the last step, or until a stop request or a
        guard ends the training."""
        engine, plan = self._engine, self._plan
        if in_play := engine.restore(checkpoint):
            self._pipeline.restore(in_play[engine.rank])
        self._reports.starts_after(engine.step)
        engine.publish()
        if engine.step == 0 and (score := self._validate()) is not None:
            engine.note_start(score)
        while engine.step < plan.steps and not self.stopped and self.guard_stop is None:
            self.take()
            is_last = engine.step >= plan.steps
            is_stopping = self.is_stop_requested()
            if is_stopping or is_last or self.guard_stop is not None:
                self._reports.report(engine.step)  # a report may also bring a guard to stop
            is_ending = is_stopping or is_last or self.guard_stop is not None
            if is_ending or engine.step % plan.checkpoint_steps == 0:
                self._save()
            self.stopped = is_stopping and not is_last

    def take(self) -> None:
        """Play a generation of rollouts and learn from it, in one optimizer step or several."""
        engine, collector, settings = self._engine, self._collector, self._settings
        step = engine.step

        # The pipeline calls `engine.propose`, `_draw` and `_play`. With staleness, it called them
        # for this step some steps ago, and now begins later ones, which play beside the update.
        self.doing("playing")
        with engine.sampling():
            played = self._pipeline.take(step, collector.weights)
        rollouts = played.rollouts
        collector.difficulty.remember(engine.gather(rollouts.results()), step)

        # Rewards become an advantage per rollout, and streams with a number per token.
        self.doing("scoring")
        learned = self._hooks.on_learned(rollouts.learned)
        advantages = advantages_of(learned, rollouts.are_live, settings, engine)
        case_ids = tuple(group.case_id for group in rollouts.groups for _ in group.learned)
        streams = streams_of(learned, advantages, settings, engine)
        batch = Batch(streams, case_ids, settings.num_generations, played.weights)

        # Parity: the engine must give each sampled token the log-probability the sampler gave it.
        is_compared = settings.sampling is not None or not self._is_parity_known
        scores = engine.score(batch, compares=is_compared)
        if scores.parity is not None:
            self._require(scores.parity)

        gaps = () if scores.gaps is None else gaps_of(learned, scores.gaps)
        self._reports.add(collector.log_step(rollouts, advantages, gaps), rollouts.first_cause())
        self._reports.add(played.counts())

        for taken in engine.update():
            if taken % settings.logging_steps == 0:
                self._reports.report(taken)
        engine.publish()

    # ------------------------------------------------------------------ playing

    def _draw(self, proposed: Proposed, step: int) -> Drawn:
        """Choose the cases that this rank plays. Cases that were rarely learned from may be
        replaced by others."""
        rank, most = self._engine.rank, self._settings.replacement_groups
        return draw(
            proposed,
            self._collector.difficulty,
            seed=self._settings.seed,
            step=step,
            rank=rank,
            spares=len(proposed[rank]) if most is None else most,
            by_difficulty=self._settings.draw_by_difficulty,
        )

    def _play(self, drawn: Drawn, step: int, weights: PublishedWeights | None) -> StepRollouts:
        """Play and judge a group of rollouts for each case, and replace dead groups by groups of
        spare cases. Several threads may play steps at once."""
        started = time.monotonic()
        is_learned_from = self._is_learned_from
        groups = self._collector.play_groups(drawn.cases, step, weights)
        rollouts = StepRollouts(
            groups,
            is_learned_from,
            skipped=len(drawn.skipped),
            version=None if weights is None else weights.version,
        )
        spares = list(drawn.spares)
        while spares and (
            dead := [place for place, group in enumerate(groups) if not is_learned_from(group)]
        ):
            tried, spares = spares[: len(dead)], spares[len(dead) :]
            others = self._collector.play_groups(tried, step, weights)
            for place, group in zip(dead, others, strict=False):
                if is_learned_from(group):
                    rollouts.replaced.append(groups[place])
                    groups[place] = group
                else:
                    rollouts.failed_replacements.append(group)
        # Ranks play at the same time, but their seconds are added when counts are merged.
        rollouts.play_seconds = (time.monotonic() - started) / self._plan.world_size
        return rollouts

    def _is_learned_from(self, group: Group) -> bool:
        """Whether the step learns from a group: a live one, and with ECHO also a failed one."""
        if group.outcome is Outcome.FAILED:
            return self._settings.learns_results
        return group.outcome is Outcome.LIVE

    # ------------------------------------------------------------------ around a step

    def _require(self, parity: Parity) -> None:
        """Report the first parity, and raise ParityError with the likely cause if it is broken."""
        if not self._is_parity_known:
            self._hooks.on_parity(parity)
            self._is_parity_known = True
        if not parity.holds:
            raise ParityError(f"{parity}. {self._engine.explain_gap()}")
        if self._pace.max_staleness:
            self._reports.add(StepCounts(highs={"parity_gap": parity.largest}))

    def _validate(self) -> float | None:
        """Play the validation cases, report the metrics, and return the score; None without
        validation cases."""
        if not self._collector.has_validation:
            return None
        self.doing("validating")
        with self._engine.sampling():
            own = self._collector.validate(self._engine.step)
        counts = merged_over_ranks(own, self._engine)
        if self._engine.rank == 0:
            self._hooks.on_validation(self._engine.step, counts.metrics())
        return counts.score()

    def _save(self) -> None:
        """Save a checkpoint, with the cases and weights of the steps that are in play."""
        score = self._validate()
        self.doing("saving")
        in_play = self._engine.gather([self._pipeline.to_dict()])
        place = self._engine.save(
            LearningState(
                difficulty=self._collector.difficulty.to_dict(),
                in_play=in_play,
                weights=self._pipeline.versions_in_play(),
                score=score,
            )
        )
        if place is not None:
            self._hooks.on_saved(self._engine.step, place)

    def versions_in_play(self) -> list[PublishedWeights]:
        """Return the weights that the steps in play sample with."""
        return self._pipeline.versions_in_play()

    def is_stop_requested(self) -> bool:
        """Return whether any rank has a stop request. All ranks call this together."""
        return any(self._engine.gather([self._hooks.should_stop()]))

    def doing(self, what: str) -> None:
        """Report the activity that this rank begins."""
        self._hooks.on_doing(what, self._engine.step)
