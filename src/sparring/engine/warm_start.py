"""Supervised fine-tuning before the first step, with TRL's SFT trainer on Sparring's rows.

It trains the model's weights. Afterwards, it restores the `forward` that the SFT trainer wrapped,
clears the gradients, and sets the random seeds again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PrinterCallback, TrainerCallback, set_seed

from sparring.contracts.training import TrainSettings, WarmStart
from sparring.engine.configuration import device_of, uses_autocast
from sparring.engine.forward import small_tiles_on_cpu
from sparring.engine.pass_memory import PassSize
from sparring.learning.batches import BatchPlan, largest_divisor
from sparring.learning.checkpoints import Checkpoints
from sparring.learning.rows import LearningRow
from sparring.policies.pretrained import record_quantization

if TYPE_CHECKING:
    from trl import GRPOTrainer, SFTTrainer

OnStep = Callable[[int, int, float], None]


def fine_tune(
    model: Any,
    tokenizer: Any,
    rows: Sequence[LearningRow],
    settings: TrainSettings,
    warm: WarmStart,
    *,
    output: Path,
    plan: BatchPlan,
    size: PassSize | None = None,
    on_step: OnStep = lambda _step, _steps, _loss: None,
    is_stop_requested: Callable[[], bool] = lambda: False,
) -> None:
    """Fine-tune the model on the sampled tokens of `rows`.

    All ranks pass the same rows and call `is_stop_requested` together. `size` limits a pass's rows.
    """
    from datasets import Dataset
    from trl import SFTConfig

    rows_per_rank = max(1, warm.batch_size // plan.world_size)
    longest = max(len(row.prompt) + len(row.completion) for row in rows)
    fitting = min(plan.rows_per_pass, size.plain_rows(longest) if size else rows_per_rank)
    per_pass = largest_divisor(rows_per_rank, fitting)
    config = SFTConfig(
        output_dir=str(output),
        num_train_epochs=warm.num_train_epochs,
        learning_rate=warm.learning_rate or settings.rate,
        per_device_train_batch_size=per_pass,
        gradient_accumulation_steps=rows_per_rank // per_pass,
        gradient_checkpointing=settings.gradient_checkpointing,
        max_grad_norm=settings.max_grad_norm,
        max_length=None,  # rows fit the token budget; truncation would teach incomplete calls
        packing=False,
        bf16=uses_autocast(settings),
        use_cpu=device_of(settings) == "cpu",
        seed=settings.seed,
        logging_steps=1,
        save_strategy="no",
        eval_strategy="no",
        report_to=[],
        disable_tqdm=True,
        log_level="error",
    )
    data = Dataset.from_dict(
        {
            "input_ids": [[*row.prompt, *row.completion] for row in rows],
            "assistant_masks": [[0] * len(row.prompt) + list(row.mask) for row in rows],
        }
    )
    with _forward_restored(model), small_tiles_on_cpu(model.device):
        trainer = _silent_trainer()(
            model=model, args=config, train_dataset=data, processing_class=tokenizer
        )
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_Steps(on_step, is_stop_requested))
        trainer.train()
        model.zero_grad(set_to_none=True)
    set_seed(settings.seed)


def _silent_trainer() -> type[SFTTrainer]:
    from trl import SFTTrainer

    class SilentTrainer(SFTTrainer):
        def _send_telemetry(self) -> None:
            """Do nothing: a run reports only to the trackers that its settings name."""

    return SilentTrainer


def save_start(trainer: GRPOTrainer, checkpoints: Checkpoints, **about: Any) -> None:
    """Save the current weights as the checkpoint `step-0`. `about` is added to its manifest."""
    written = checkpoints.staging(0)
    trainer.save_model(str(written))
    trainer.accelerator.wait_for_everyone()
    if trainer.accelerator.is_main_process:
        record_quantization(trainer.accelerator.unwrap_model(trainer.model), written)
        checkpoints.seal(written, 0, **about)
    trainer.accelerator.wait_for_everyone()


def use_as_reference(trainer: GRPOTrainer) -> None:
    """Make the current weights the reference of the KL term.

    TRL's default reference is the initial weights, or for an adapter the base model.
    """
    if not trainer.beta:
        return
    model = trainer.accelerator.unwrap_model(trainer.model)
    if trainer.ref_model is not None:
        trainer.accelerator.unwrap_model(trainer.ref_model).load_state_dict(model.state_dict())
        return
    if "ref" not in model.peft_config:
        model.add_adapter("ref", model.peft_config["default"])
    for name, weights in model.named_parameters():
        if "ref" in name.split("."):
            weights.requires_grad_(False)
            trained = ".".join("default" if part == "ref" else part for part in name.split("."))
            weights.data.copy_(model.get_parameter(trained).data)


@contextmanager
def _forward_restored(model: Any) -> Iterator[None]:
    """Restore the model's `forward` at the end of the context: TRL and Accelerate each wrap it."""
    modules = [model, *([model.get_base_model()] if hasattr(model, "peft_config") else [])]
    before = [module.__dict__.get("forward") for module in modules]
    try:
        yield
    finally:
        for module, forward in zip(modules, before, strict=True):
            module.__dict__.pop("_is_accelerate_prepared", None)
            if forward is None:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = forward


class _Steps(TrainerCallback):
    def __init__(self, on_step: OnStep, is_stop_requested: Callable[[], bool]) -> None:
        self._on_step = on_step
        self._is_stop_requested = is_stop_requested

    def on_step_end(self, _: Any, __: Any, control: Any, **___: Any) -> None:
        if self._is_stop_requested():
            control.should_training_stop = True

    def on_log(self, _: Any, state: Any, __: Any, logs: Any = None, **___: Any) -> None:
        if logs and "loss" in logs:
            self._on_step(state.global_step, state.max_steps, float(logs["loss"]))
