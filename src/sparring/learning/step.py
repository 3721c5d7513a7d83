"""A step of training, from the cases that are proposed to the weights that are saved.

    propose → draw → play → judge → replace dead groups → rewards → streams → parity
            → update, report → publish → validate, save

Nothing here depends on the engine, which stands behind `learning/engine.py`. The collector plays
and judges. The rules in `learning/credit` say how rewards become gradients, and which groups are
worth learning from.
"""

from __future__ import annotations

import time
from dataclasses import replace

from sparring.contracts.errors import GuardStop, ParityError
from sparring.contracts.policies import PublishedWeights
from sparring.contracts.training import TrainSettings
from sparring.learning.credit import RULES, streams_of
from sparring.learning.drawing import Drawn, draw
from sparring.learning.engine import Batch, Engine, LearningState, Parity
from sparring.learning.groups import Group, StepRollouts, gaps_of
from sparring.learning.guards import GuardMonitor
from sparring.learning.reporting import Hooks, StepCounts, StepReports, merged_over_ranks
from sparring.learning.rollout_collector import RolloutCollector
from sparring.learning.rollout_pipeline import Pace, Proposed, RolloutPipeline
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
        hooks: Hooks,
        guards: GuardMonitor,
    ) -> None:
        self.stopped = False
        self._engine = engine
        self._collector = collector
        self._settings = settings
        self._hooks = hooks
        self._rules = [rule(settings) for rule in RULES]
        self._reports = StepReports(hooks, guards, engine)
        self._pace = Pace(engine.plan.steps, settings.max_staleness, engine.plan.boundary)
        self._pipeline = RolloutPipeline(self._pace, engine.propose, self._draw, self._play)
        self._is_parity_known = False

    @property
    def guard_stop(self) -> GuardStop | None:
        """The reason why a guard ends the training, if one does."""
        return self._reports.guard_stop

    def run(self, checkpoint: Checkpoint | None = None) -> None:
        """Train from a checkpoint, if there is one, to the last step, or until a stop request or a
        guard ends the training."""
        engine, plan = self._engine, self._engine.plan
        if in_play := engine.restore(checkpoint):
            self._pipeline.restore(in_play[engine.rank])
        self._reports.starts_after(engine.step)
        engine.publish(self._pipeline.versions_in_play())
        if engine.step == 0 and (score := self._validate()) is not None:
            engine.note_start(score)
        while engine.step < plan.steps and not self.stopped and self.guard_stop is None:
            self.take()
            is_last = engine.step >= plan.steps
            is_stopping = self.is_stop_requested()
            if is_stopping or is_last or self.guard_stop is not None:
                self._reports.report(engine.step)  # a report may also bring a guard to stop
            is_ending = is_stopping or is_last or self.guard_stop is not None
            if is_ending or engine.step % plan.save_steps == 0:
                self._save()
            self.stopped = is_stopping and not is_last

    def take(self) -> None:
        """Play a generation of rollouts and learn from it, in one optimizer step or several."""
        engine, collector, settings = self._engine, self._collector, self._settings
        step = engine.step

        # The pipeline calls `engine.propose`, `_draw` and `_play`. With staleness, it began this
        # step some steps ago, and now begins later ones, which play beside the update.
        self.doing("playing")
        with engine.sampling():
            in_play = self._pipeline.take(step, collector.weights)
            rollouts = in_play.result()
            paced = self._pipeline.counts(step, in_play.weights)
        collector.difficulty.remember(engine.gather(rollouts.results()), step)

        # The credit rules turn the rewards of the groups into streams, with numbers per token.
        self.doing("scoring")
        groups = [
            replace(group, learned=self._hooks.on_learned(group.learned))
            for group in rollouts.groups
        ]
        case_ids = tuple(group.case_id for group in groups for _ in group.learned)
        streams = streams_of(self._rules, groups, engine)
        batch = Batch(streams, case_ids, settings.num_generations, in_play.weights)

        # Parity: the engine must give each sampled token the log-probability the sampler gave it.
        # They are compared once, or at every step if servers sample.
        is_compared = engine.versions is not None or not self._is_parity_known
        scores = engine.score(batch, compares=is_compared)
        if scores.parity is not None:
            self._require(scores.parity)

        gaps = () if scores.gaps is None else gaps_of(groups, scores.gaps)
        counts = collector.log_step(rollouts, batch.advantages, gaps)
        self._reports.add(counts, rollouts.first_cause())
        self._reports.add(paced)

        # The engine learns from the batch that it has scored, in one optimizer step or several.
        for taken in engine.update():
            if taken % settings.logging_steps == 0:
                self._reports.report(taken)
        engine.publish(self._pipeline.versions_in_play())

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
        is_learned_from, collector = self._is_learned_from, self._collector
        find_case, size = collector.find_case, self._settings.num_generations
        version = None if weights is None else weights.version
        played = collector.play(map(find_case, drawn.cases), size, step, weights)
        groups = collector.grouped(played, version)
        rollouts = StepRollouts(
            groups, is_learned_from, skipped=len(drawn.skipped), version=version
        )
        spares = list(drawn.spares)
        while spares and (
            dead := [place for place, group in enumerate(groups) if not is_learned_from(group)]
        ):
            tried, spares = spares[: len(dead)], spares[len(dead) :]
            played = collector.play(map(find_case, tried), size, step, weights)
            for place, group in zip(dead, collector.grouped(played, version), strict=False):
                if is_learned_from(group):
                    rollouts.replaced.append(groups[place])
                    groups[place] = group
                else:
                    rollouts.failed_replacements.append(group)
        # Ranks play at the same time, but their seconds are added when counts are merged.
        rollouts.play_seconds = (time.monotonic() - started) / self._engine.plan.world_size
        return rollouts

    def _is_learned_from(self, group: Group) -> bool:
        """Whether any credit rule learns from a group. A group that none does is dead."""
        return any(rule.teaches(group) for rule in self._rules)

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

    def is_stop_requested(self) -> bool:
        """Return whether any rank has a stop request. All ranks call this together."""
        return any(self._engine.gather([self._hooks.should_stop()]))

    def doing(self, what: str) -> None:
        """Report the activity that this rank begins."""
        self._hooks.on_doing(what, self._engine.step)
