"""Reports optimizer steps: merges counts over ranks, reports one metrics row, applies the guards.

It also detects rollouts without a reward. If no rollout of the first report has one, the run stops;
the first report with unscored rollouts causes a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelerate.utils import gather_object

from sparring.contracts.errors import GuardStop, InfrastructureError
from sparring.engine.hooks import Hooks
from sparring.learning.guards import GuardMonitor
from sparring.learning.step_counts import StepCounts

_TRL_METRICS = (
    "loss",
    "grad_norm",
    "learning_rate",
    "entropy",
    "kl",
    "clip_ratio/region_mean",
    "epoch",
    "num_tokens",
    "sampling/sampling_logp_difference/mean",
    "sampling/sampling_logp_difference/max",
    "sampling/importance_sampling_ratio/mean",
    "sampling/importance_sampling_ratio/min",
    "sampling/importance_sampling_ratio/max",
)


class StepReports:
    """Reports the steps of one training run. All ranks must call `report` together."""

    def __init__(self, hooks: Hooks, guards: GuardMonitor) -> None:
        self._hooks = hooks
        self._guards = guards
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

    def report(
        self,
        step: int,
        logs: Mapping[str, Any],
        *,
        is_main_process: bool,
    ) -> None:
        """Report TRL's metrics and the counts of all ranks as one row. If a guard stops the run,
        set `guard_stop`: the weights are saved before the run ends.

        Raises InfrastructureError if no rollout has been scored yet, and GuardStop if the loss is
        not finite.
        """
        counts = merged_over_ranks(StepCounts.merged(self._counts))
        self._counts = []
        cause = next(filter(None, gather_object([self._first_cause])), "")
        self._refuse_start_without_rewards(counts, cause)
        self._warn_of_unscored(counts, cause)
        from_trl = {name: logs[name] for name in _TRL_METRICS if logs.get(name) is not None}
        row = {**from_trl, **counts.metrics()}
        if is_main_process:
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


def merged_over_ranks(counts: StepCounts) -> StepCounts:
    """Return the merged counts of all ranks. All ranks must call this."""
    parts = gather_object([counts.to_dict()])
    return StepCounts.merged(StepCounts.from_dict(part) for part in parts)
