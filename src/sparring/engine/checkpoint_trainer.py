"""Saves and loads the checkpoints of TRL's GRPO trainer.

TRL writes its files to a staging folder. Sparring adds its own, seals the folder, and prunes old
checkpoints.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object

from sparring.engine.checkpoints import Checkpoints
from sparring.engine.hooks import Hooks
from sparring.engine.pass_trainer import PassTrainer
from sparring.policies.quantized_base import record_quantization


class CheckpointTrainer(PassTrainer):
    """A GRPO trainer that validates before it saves, and whose checkpoints are either complete or
    absent."""

    def __init__(self, *, hooks: Hooks, checkpoints: Checkpoints, **trl: Any) -> None:
        self._hooks = hooks
        self._checkpoints = checkpoints
        self._staging: Path | None = None
        super().__init__(**trl)

    def doing(self, what: str) -> None:
        """Report the activity (`what`) that this rank begins."""
        self._hooks.on_doing(what, self.state.global_step)

    def validate(self) -> float | None:
        """Return the mean validation reward; None without validation cases."""
        raise NotImplementedError

    def validate_start(self) -> None:
        """Validate the weights of the start. If a warm start saved them, they are a checkpoint that
        may be the best one, so note the score in its manifest."""
        score = self.validate()
        if score is not None and self.accelerator.is_main_process:
            self._checkpoints.note_score(0, score)

    def _state_of_rank(self) -> dict[str, Any]:
        """Return what this rank needs to resume, besides TRL's own state."""
        raise NotImplementedError

    def _save_state(self, folder: Path, by_rank: list[dict[str, Any]]) -> None:
        """Add the states of all ranks to a checkpoint. Only rank 0 calls this."""
        raise NotImplementedError

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Validate, write to staging, seal, and prune."""
        step = self.state.global_step
        self._staging = self._checkpoints.staging(step)
        score = self.validate()
        self.doing("saving")
        by_rank = gather_object([self._state_of_rank()])
        try:
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.accelerator.is_main_process:
                written = self._staging / f"checkpoint-{step}"
                record_quantization(self.accelerator.unwrap_model(self.model), written)
                self._save_state(written, by_rank)
                place = self._checkpoints.seal(
                    written, step, is_sharded=self.is_sharded(), score=score, versions=_versions()
                )
                self._checkpoints.prune()
                self._hooks.on_saved(step, place)
            self.accelerator.wait_for_everyone()
        finally:
            self._staging = None

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._staging) if self._staging else str(super()._get_output_dir(trial))

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Do nothing: creating TRL's card queries the hub, and the card does not describe the
        run."""

    def _send_telemetry(self) -> None:
        """Do nothing: a run reports only to the trackers that its settings name."""

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load the weights of a checkpoint. An adapter is loaded explicitly, as `default`.

        transformers' Trainer does not load it if TRL has added a reference adapter for the KL term.
        """
        unwrapped = self.accelerator.unwrap_model(model or self.model)
        if hasattr(unwrapped, "peft_config"):
            unwrapped.load_adapter(resume_from_checkpoint, "default", is_trainable=True)
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("torch", "transformers", "trl", "accelerate")}
