"""Reports optimizer steps: merges counts over ranks, reports one metrics row, applies the guards.

It also detects rollouts without a reward. If no rollout of the first report has one, the run stops;
the first report with unscored rollouts causes a warning.
"""

from __future__ import annotations

from sparring.contracts.errors import GuardStop, InfrastructureError
from sparring.learning.engine import Engine
from sparring.learning.guards import GuardMonitor
from sparring.learning.hooks import Hooks
from sparring.learning.ranks import Ranks
from sparring.learning.step_counts import StepCounts


class StepReports:
    """Reports the steps of one training run. All ranks must call `report` together."""

    def __init__(self, hooks: Hooks, guards: GuardMonitor, engine: Engine) -> None:
        self._hooks = hooks
        self._guards = guards
        self._engine = engine
        self._counts: list[StepCounts] = []
        self._first_cause = ""
        self._was_scored = False
        self._has_warned = False
        self._reported_step = 0
        self.guard_stop: GuardStop | None = None

    def starts_after(self, step: int) -> None:
        """Note the step that the training starts from: 0, or that of a checkpoint."""
        self._reported_step = step

    def add(self, counts: StepCounts, cause: str = "") -> None:
        """Add counts of this rank to the next report. `cause` is why a rollout has no reward."""
        self._counts.append(counts)
        self._first_cause = self._first_cause or cause

    def report(self, step: int) -> None:
        """Report the engine's figures and the counts of all ranks as one row, unless this step was
        reported. If a guard stops the run, set `guard_stop`: the weights are saved before the run
        ends.

        Raises InfrastructureError if no rollout has been scored yet, and GuardStop if the loss is
        not finite.
        """
        if step == self._reported_step:
            return
        engine = self._engine
        figures = engine.figures()
        self.add(StepCounts().plus(**figures.sums))
        counts = merged_over_ranks(StepCounts.merged(self._counts), engine)
        self._counts = []
        cause = next(filter(None, engine.gather([self._first_cause])), "")
        self._refuse_start_without_rewards(counts, cause)
        self._warn_of_unscored(counts, cause)
        row = {**figures.means, **counts.metrics()}
        if engine.rank == 0:
            self._hooks.on_step(step, row)
        steps, self._reported_step = step - self._reported_step, step
        try:
            self._guards.look(step, row, steps)
        except GuardStop as stop:
            if stop.guard == "not_finite":
                raise
            self.guard_stop = self.guard_stop or stop

    def _refuse_start_without_rewards(self, counts: StepCounts, cause: str) -> None:
        """Raise InfrastructureError if no rollout has been scored yet: every step would be
        empty."""
        self._was_scored = self._was_scored or counts.sums["scored"] > 0
        if not self._was_scored:
            raise InfrastructureError(
                f"none of the first {int(counts.sums['rollouts'])} rollouts could be scored: "
                f"{cause or 'no cause is known'}; fix the cause, and resume the run"
            )

    def _warn_of_unscored(self, counts: StepCounts, cause: str) -> None:
        """Warn once about unscored rollouts, which shrink the batch without any other sign."""
        unscored = counts.sums["rollouts"] - counts.sums["scored"]
        if unscored and cause and not self._has_warned:
            self._has_warned = True
            rollouts = counts.sums["rollouts"]
            self._hooks.on_warning(
                f"{unscored:.0f} of {rollouts:.0f} rollouts could not be scored: {cause}"
            )


def merged_over_ranks(counts: StepCounts, ranks: Ranks) -> StepCounts:
    """Return the merged counts of all ranks. All ranks must call this."""
    parts = ranks.gather([counts.to_dict()])
    return StepCounts.merged(StepCounts.from_dict(part) for part in parts)
