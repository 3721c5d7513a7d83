"""Supervised fine-tuning before the first step, by TRL's SFT trainer, on rows of ours.

It works on the model that is trained later, in place, and leaves nothing else behind: not the
head that TRL puts on a model, nor gradients, nor random numbers drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, TrainerCallback, set_seed

from sparring.contracts.training import TrainSettings, WarmStart
from sparring.engine.checkpoints import Checkpoints
from sparring.engine.configuration import device_of, uses_autocast
from sparring.engine.cpu_head import scored_sparingly
from sparring.engine.grpo import PolicyTrainer
from sparring.engine.pass_memory import PassSize
from sparring.learning.batches import BatchPlan
from sparring.learning.rows import LearningRow

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
    wants_to_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Learn to say what was sampled in `rows`; all ranks have the same rows, and ask
    `wants_to_stop` together. `size` is what a pass may take."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    share = max(1, warm.batch_size // plan.world_size)
    longest = max(len(row.prompt) + len(row.completion) for row in rows)
    per_pass = min(share, plan.rows_per_pass, size.plain_rows(longest) if size else share)
    config = SFTConfig(
        output_dir=str(output),
        num_train_epochs=warm.num_train_epochs,
        learning_rate=warm.learning_rate or settings.rate,
        per_device_train_batch_size=per_pass,
        gradient_accumulation_steps=math.ceil(share / per_pass),
        gradient_checkpointing=settings.gradient_checkpointing,
        max_grad_norm=settings.max_grad_norm,
        max_length=None,  # the rows were played within the budgets; a cut one teaches half a call
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
    with _left_as_it_was(model), scored_sparingly(model.device):
        trainer = SFTTrainer(
            model=model, args=config, train_dataset=data, processing_class=tokenizer
        )
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_Steps(on_step, wants_to_stop))
        trainer.train()
        model.zero_grad(set_to_none=True)
    set_seed(settings.seed)


def save_start(trainer: PolicyTrainer, checkpoints: Checkpoints, **about: Any) -> None:
    """Seal the weights as they are now as step-0."""
    written = checkpoints.staging(0)
    trainer.save_model(str(written))
    trainer.accelerator.wait_for_everyone()
    if trainer.accelerator.is_main_process:
        checkpoints.seal(written, 0, **about)
    trainer.accelerator.wait_for_everyone()


def start_from(trainer: PolicyTrainer, path: Path, seed: int) -> None:
    """Take the weights of a warm start that is done."""
    trainer._load_from_checkpoint(str(path))
    set_seed(seed)


def use_as_reference(trainer: PolicyTrainer) -> None:
    """Measure the KL from the weights as they are now. TRL takes those that a model was made
    with, and for adapters the base without them."""
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
def _left_as_it_was(model: Any) -> Iterator[None]:
    """TRL and Accelerate put forward passes of their own on a model, one around the other."""
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
    def __init__(self, on_step: OnStep, wants_to_stop: Callable[[], bool]) -> None:
        self._on_step = on_step
        self._wants_to_stop = wants_to_stop

    def on_step_end(self, _: Any, __: Any, control: Any, **___: Any) -> None:
        if self._wants_to_stop():
            control.should_training_stop = True

    def on_log(self, _: Any, state: Any, __: Any, logs: Any = None, **___: Any) -> None:
        if logs and "loss" in logs:
            self._on_step(state.global_step, state.max_steps, float(logs["loss"]))
