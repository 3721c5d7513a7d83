"""The trainer's callbacks around optimizer steps: validation, checkpoints, reports and stops."""

from __future__ import annotations

from typing import Any, Protocol

from transformers import TrainerCallback

from sparring.engine.step_reports import StepReports
from sparring.learning.batches import BatchPlan


class SteppedTrainer(Protocol):
    """The part of the trainer that its callbacks use."""

    plan: BatchPlan
    stopped: bool
    reports: StepReports

    def validate_start(self) -> None:
        """Validate before the first step."""

    def refuse_broken_gradients(self) -> None:
        """Stop the run, or drop the gradients of the step, if a gradient is not finite and the
        guard `not_finite` is on."""

    def report(self, logs: dict[str, Any]) -> None:
        """Report the metrics that TRL logs after a step."""

    def is_stop_requested(self) -> bool:
        """Return whether any rank has a stop request."""


class StepCallbacks(TrainerCallback):
    """Calls the trainer around optimizer steps. Between generations, decides whether to save and
    whether to stop, with the same result on all ranks."""

    def __init__(self, trainer: SteppedTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, _: Any, state: Any, __: Any, **___: Any) -> None:
        """Validate before the first step, unless the run resumes from a later one."""
        self._trainer.reports.starts_after(state.global_step)
        if state.global_step == 0:
            self._trainer.validate_start()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Check the gradients before they are applied."""
        self._trainer.refuse_broken_gradients()

    def on_log(self, _: Any, state: Any, control: Any, logs: Any = None, **__: Any) -> Any:
        """Pass TRL's logs to the trainer. If a guard then stops the run, save and stop, now or
        between the next generations."""
        self._trainer.report(dict(logs or {}))
        return self._stopped_by_guard(state, control)

    def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> Any:
        """Between generations, set the Trainer's flags for saving and stopping. The last step is
        always reported."""
        plan = self._trainer.plan
        if state.global_step % plan.boundary:
            return control
        is_stopping = self._trainer.is_stop_requested()
        is_last = state.global_step >= state.max_steps
        if is_stopping or is_last or state.global_step % plan.checkpoint_steps == 0:
            control.should_save = True
        if is_stopping or is_last or self._trainer.reports.guard_stop:
            control.should_log = True
        if is_stopping and not is_last:
            self._trainer.stopped = True
            control.should_training_stop = True
        return self._stopped_by_guard(state, control)

    def _stopped_by_guard(self, state: Any, control: Any) -> Any:
        if (
            self._trainer.reports.guard_stop
            and state.global_step % self._trainer.plan.boundary == 0
        ):
            control.should_save = control.should_training_stop = True
        return control
