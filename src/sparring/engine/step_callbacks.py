"""What happens between the steps of a training run: validation, checkpoints, reports, stops."""

from __future__ import annotations

from typing import Any, Protocol

from transformers import TrainerCallback

from sparring.learning.batches import BatchPlan


class SteppedTrainer(Protocol):
    """The trainer, as its callbacks see it."""

    plan: BatchPlan
    stopped: bool

    def validate(self) -> float | None:
        """Play the validation cases."""

    def refuse_broken_gradients(self) -> None:
        """Stop or warn if a gradient is not finite."""

    def report(self, logs: dict[str, Any]) -> None:
        """Write the metrics of a step."""

    def is_stop_requested(self) -> bool:
        """Return whether any rank has a stop request."""


class StepCallbacks(TrainerCallback):
    """The trainer's callbacks. Between generations, they decide whether to save and whether to
    stop, with the same result on all ranks."""

    def __init__(self, trainer: SteppedTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, _: Any, state: Any, __: Any, **___: Any) -> None:
        """Validate before the first step of a run that begins."""
        if state.global_step == 0:
            self._trainer.validate()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Look for gradients that are not finite."""
        self._trainer.refuse_broken_gradients()

    def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
        """Report the metrics of a step."""
        self._trainer.report(dict(logs or {}))

    def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> Any:
        """Decide whether to save and whether to stop."""
        plan = self._trainer.plan
        if state.global_step % plan.boundary:
            return control
        is_stopping = self._trainer.is_stop_requested()
        is_last = state.global_step >= state.max_steps
        if is_stopping or is_last or state.global_step % plan.checkpoint_steps == 0:
            control.should_save = True
        if is_stopping and not is_last:
            self._trainer.stopped = True
            control.should_training_stop = True
        return control
