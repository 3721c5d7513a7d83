"""TRL's GRPO trainer, on rollouts of ours.

TRL computes advantages, loss and update, and keeps optimizer, schedule and data order. Ours
are the rollouts (through its `rollout_func` seam), the one blended reward, the masks, the
parity gate and the checkpoints. Every name of TRL's that is used here stands in
tests/engine/test_trl_contract.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOTrainer

from sparring.contracts.errors import MachineryFailure, SettingError, WorldSizeError
from sparring.engine.checkpoints import Checkpoints
from sparring.engine.cpu_head import scored_sparingly
from sparring.engine.echo import Echo
from sparring.engine.parity_gate import ParityGate
from sparring.engine.passes import passes_of
from sparring.engine.shared_prompts import Prompts, StepPrefix, completion_scores, why_not
from sparring.learning.batches import BatchPlan
from sparring.learning.guards import Watch
from sparring.learning.parity import Parity
from sparring.learning.practice import Practice
from sparring.learning.rows import LearningRow
from sparring.learning.step_counts import StepCounts
from sparring.learning.world_model import Totals
from sparring.run_folder.checkpoint_list import DIFFICULTY
from sparring.run_folder.files import write_json


@dataclass(frozen=True, slots=True)
class Hooks:
    """How the engine tells the world. Rank 0 calls `on_step` and `on_validation`."""

    on_step: Callable[[int, dict[str, Any]], None] = lambda _step, _row: None
    on_validation: Callable[[int, dict[str, Any]], None] = lambda _step, _row: None
    on_parity: Callable[[Parity], None] = lambda _: None
    on_warning: Callable[[str], None] = lambda _: None
    on_saved: Callable[[int, Path], None] = lambda _step, _path: None
    on_doing: Callable[[str, int], None] = lambda _doing, _step: None
    should_stop: Callable[[], bool] = lambda: False


class PolicyTrainer(GRPOTrainer):
    """One step: play the cases, score them, check parity once, update."""

    def __init__(
        self,
        *,
        hooks: Hooks,
        checkpoints: Checkpoints,
        plan: BatchPlan,
        echo: Echo,
        watch: Watch,
        shares_prompts: bool = True,
        **trl: Any,
    ) -> None:
        self.plan = plan
        self._hooks = hooks
        self._checkpoints = checkpoints
        self._practice: Practice | None = None
        self._echo = echo
        self._watch = watch
        self._rows: list[LearningRow] = []
        self._logps: torch.Tensor | None = None
        self._parity_is_due = True
        self._staging: Path | None = None
        self._was_scored = False
        self._has_warned = False
        self.epochs_before = 0
        self.stopped = False
        self._buffered_inputs: list[dict[str, Any]] | None = None
        self._common: tuple[int, ...] = ()
        self._prefix: StepPrefix | None = None
        super().__init__(reward_funcs=[_blended], rollout_func=_play, **trl)
        self.remove_callback(PrinterCallback)
        self.add_callback(_Steps(self))
        self._refuse_sharded_weights()
        self.why_prompts_are_not_shared = why_not(
            self.accelerator.unwrap_model(self.model),
            is_sharded=self.is_sharded(),
            is_checkpointed=self.args.gradient_checkpointing,
        )
        self.shares_prompts = shares_prompts and not self.why_prompts_are_not_shared

    @property
    def practice(self) -> Practice:
        if self._practice is None:
            raise SettingError("the trainer was started without a practice")
        return self._practice

    def begin(
        self,
        practice: Practice,
        *,
        world_size: int,
        after_playing: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the practice, whose policy needs the model that this trainer has wrapped."""
        self._practice = practice
        self.after_playing = after_playing
        if self.accelerator.num_processes != world_size:
            raise WorldSizeError(
                f"{world_size} processes were asked for and Accelerate runs "
                f"{self.accelerator.num_processes}"
            )

    def use_plan(self, plan: BatchPlan) -> None:
        """Lay the same rows out over other passes. Before training begins."""
        self.plan = plan
        self.args.per_device_train_batch_size = self._train_batch_size = plan.rows_per_pass
        self.args.gradient_accumulation_steps = plan.passes_per_step
        self.args.steps_per_generation = plan.steps_per_generation

    def doing(self, what: str) -> None:
        """Something has been done, and this comes next."""
        self._hooks.on_doing(what, self.state.global_step)

    # ------------------------------------------------------------------ a step

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        """TRL's, which shuffles anew in each epoch: going on in a later one, the orders of those
        before it are drawn first."""
        sampler = super()._get_train_sampler(dataset)
        for _ in range(self.epochs_before):
            torch.randperm(sampler.num_samples, generator=sampler.generator)
        return sampler

    def play(self, case_ids: list[str]) -> dict[str, list[Any]]:
        """TRL's seam: this rank's rows, each case named once per rollout, in order."""
        self.doing("playing")
        rng = torch.get_rng_state()
        was_training = self.model.training
        self.model.eval()
        try:
            rows = self.practice.rows(self._proposed(case_ids), self.state.global_step)
            self.after_playing()
        finally:
            self.model.train(was_training)
            torch.set_rng_state(rng)  # a tool that draws random numbers must not move ours
        seen = gather_object(self.practice.seen())
        self.practice.difficulty.remember(seen, self.state.global_step)
        self._rows = rows
        self.doing("scoring")
        return {
            "prompt_ids": [row.prompt.tolist() for row in rows],
            "completion_ids": [row.completion.tolist() for row in rows],
            "logprobs": [row.logprobs.tolist() for row in rows],
            "env_mask": [list(row.mask) for row in rows],
        }

    def _proposed(self, case_ids: list[str]) -> list[list[str]]:
        """One case per group, of every rank."""
        proposed: list[list[str]] = gather_object([case_ids[:: self.num_generations]])
        return proposed

    def _calculate_rewards(self, *_: Any) -> torch.Tensor:
        """One blended reward per row; an unscored row stays out of its group's statistics."""
        rewards = [float("nan") if row.reward is None else row.reward for row in self._rows]
        column = torch.tensor(rewards, dtype=torch.float32, device=self.accelerator.device)
        gathered: torch.Tensor = self.accelerator.gather(column.unsqueeze(1))
        return gathered

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        totals = Totals.merged(gather_object([Totals.of(self._rows)]))
        self._echo.carry(batch, self._rows, totals)
        self._rows = []
        if self._parity_is_due:
            self._parity_is_due = not self._check_parity(batch)
        self.practice.note_advantages(batch["advantages"].tolist())
        return batch

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's, but for how rows are laid out over passes."""
        rounds = self.args.steps_per_generation
        if self._step % (rounds * self.num_iterations) == 0 or self._buffered_inputs is None:
            batch = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = passes_of(batch, rounds, self.num_generations)
            prompts = Prompts.of(batch["prompt_ids"], batch["prompt_mask"])
            self._common = prompts.common if self.shares_prompts else ()
        return self._buffered_inputs[self._step % rounds]

    def training_step(self, *given: Any, **named: Any) -> torch.Tensor:
        """TRL's, forward and backward, with a head that fits a CPU."""
        with scored_sparingly(self.accelerator.device):
            loss: torch.Tensor = super().training_step(*given, **named)
        return loss

    def _prefix_of_step(self, model: Any, device: torch.device) -> StepPrefix | None:
        """What all passes of this optimizer step share; None where one pass is all of it."""
        passes = self.args.gradient_accumulation_steps
        if passes == 1 or not self._common or not torch.is_grad_enabled():
            return None
        if self._prefix is None or self._step % passes == 0:
            self._prefix = StepPrefix(model, self._common, device)
        return self._prefix

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's, with ECHO's from the same forward pass."""
        self.doing("updating")
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        logps, self._logps = self._logps, None
        if logps is None:
            raise MachineryFailure("TRL computed a loss without log-probabilities")
        passes = self.args.steps_per_generation / self.current_gradient_accumulation_steps
        also = self._echo.loss(logps, inputs, self.accelerator.num_processes * passes)
        return loss if also is None else loss + also

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **asked: Any,
    ) -> Any:
        """TRL's scores of completions, with prompts computed once where rows share them."""
        step = batch_size or len(input_ids)
        parts = [
            self._scored(
                model,
                input_ids[start : start + step],
                attention_mask[start : start + step],
                logits_to_keep,
                asked,
            )
            for start in range(0, len(input_ids), step)
        ]
        logps, entropies, aux = zip(*parts, strict=True)
        self._logps = torch.cat(logps) if torch.is_grad_enabled() else None
        return (
            torch.cat(logps) if self._logps is None else self._logps,
            torch.cat(entropies) if asked.get("compute_entropy") else None,
            torch.stack(aux).mean() if asked.get("compute_aux_loss") else None,
        )

    def score_sample(self, ids: torch.Tensor, mask: torch.Tensor, keep: int) -> None:
        """Run rows through the model as an update does, to see what they take."""
        self.model.train()
        model = self.accelerator.unwrap_model(self.model)
        self._scored(model, ids, mask, keep, {"compute_entropy": True})

    def _scored(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, keep: int, asked: dict[str, Any]
    ) -> Any:
        with scored_sparingly(ids.device):
            if self.shares_prompts and not asked.get("compute_aux_loss"):
                unwrapped = self.accelerator.unwrap_model(model)
                is_last = (self._step + 1) % self.args.gradient_accumulation_steps == 0
                with self.accelerator.autocast():
                    prefix = self._prefix_of_step(unwrapped, ids.device)
                    found = completion_scores(
                        model, unwrapped, ids, mask, keep, prefix=prefix, is_last=is_last
                    )
                if is_last:
                    self._prefix = None
                if found is not None:
                    entropy = found.entropy[:, -keep:] if asked.get("compute_entropy") else None
                    return found.log_probs[:, -keep:], entropy, None
            return super()._get_per_token_logps_and_entropies(model, ids, mask, keep, **asked)

    def _check_parity(self, batch: dict[str, Any]) -> bool:
        """Whether sampler and trainer agree; False where there was nothing to compare yet."""
        gate = ParityGate(self)
        parity = gate.check(batch)
        if parity is None:
            return False
        self._hooks.on_parity(parity)
        gate.refuse(parity, batch)
        return True

    # ------------------------------------------------------------------ what is told

    def report(self, logs: dict[str, Any]) -> None:
        """TRL's figures and ours as one row, the rollouts of all ranks added up."""
        self.state.log_history.clear()  # metrics.jsonl has it; memory must not grow with steps
        if "loss" not in logs:
            return
        self.practice.count(**self._echo.take_sums())
        counts = self._summed(self.practice.take_counts())
        self._refuse_a_start_without_rewards(counts)
        self._warn_of_unscored(counts)
        kept = {name: logs[name] for name in _KEPT_FROM_TRL if logs.get(name) is not None}
        row = {**kept, **counts.metrics()}
        if self.accelerator.is_main_process:
            self._hooks.on_step(self.state.global_step, row)
        self._watch.look(self.state.global_step, row, self.args.logging_steps)

    def _refuse_a_start_without_rewards(self, counts: StepCounts) -> None:
        """A judge that is down from the beginning would cost a whole run of empty steps."""
        self._was_scored = self._was_scored or counts.sums["scored"] > 0
        if not self._was_scored:
            raise MachineryFailure(
                f"none of the first {int(counts.sums['rollouts'])} rollouts could be scored: "
                f"{self.practice.first_cause or 'another rank knows why'}"
            )

    def _warn_of_unscored(self, counts: StepCounts) -> None:
        """Once: a measure that breaks now and then looks like a smaller batch, and is a fault."""
        unscored = counts.sums["rollouts"] - counts.sums["scored"]
        if unscored and self.practice.first_cause and not self._has_warned:
            self._has_warned = True
            told = f"{unscored:.0f} of {counts.sums['rollouts']:.0f} rollouts could not be scored"
            self._hooks.on_warning(f"{told}: {self.practice.first_cause}")

    def refuse_broken_gradients(self) -> None:
        """Before they reach the weights, and a checkpoint of them."""
        weights = [each for each in self.model.parameters() if each.grad is not None]
        if not weights or self._watch.on_broken_gradients == "off":
            return
        grads = [each.grad for each in weights if each.grad is not None]
        if not torch.isfinite(torch.nn.utils.get_total_norm(grads)):
            self._watch.gradient_is_broken(self.state.global_step + 1)
            for each in weights:
                each.grad = None  # with zeros, the optimizer would still move by its momentum

    def validate(self) -> float | None:
        """The mean reward over the validation cases, played by all ranks together."""
        if not self.practice.has_validation:
            return None
        self.doing("validating")
        was_training = self.model.training
        self.model.eval()
        rng = torch.get_rng_state()
        if self.use_vllm and getattr(self, "_last_loaded_step", -1) != self.state.global_step:
            self.vllm_generation.sync_weights()  # TRL does so before it generates, not here
            self._last_loaded_step = self.state.global_step
        try:
            mine = self.practice.validate(self.state.global_step)
            self.after_playing()
            counts = self._summed(mine)
        finally:
            self.model.train(was_training)
            torch.set_rng_state(rng)
        figures = counts.metrics()
        if self.accelerator.is_main_process:
            self._hooks.on_validation(self.state.global_step, figures)
        return figures.get("reward")

    def _summed(self, mine: StepCounts) -> StepCounts:
        parts = gather_object([mine.to_dict()])
        return StepCounts.merged(StepCounts.from_dict(part) for part in parts)

    def wants_to_stop(self) -> bool:
        """Whether any rank was asked to stop; all ranks get the same answer."""
        asked = torch.tensor([float(self._hooks.should_stop())], device=self.accelerator.device)
        return bool(self.accelerator.gather(asked).sum() > 0)

    # ------------------------------------------------------------------ checkpoints

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._staging) if self._staging else str(super()._get_output_dir(trial))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """The Trainer's, but for adapters: beside the one for reference that TRL adds for the KL,
        it would not load the one that is trained."""
        unwrapped = self.accelerator.unwrap_model(model or self.model)
        if hasattr(unwrapped, "peft_config"):
            unwrapped.load_adapter(resume_from_checkpoint, "default", is_trainable=True)
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Not with every checkpoint: it asks the hub, and says nothing of the run."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Validate, write aside, seal, prune."""
        step = self.state.global_step
        self._staging = self._checkpoints.staging(step)
        score = self.validate()
        self.doing("saving")
        try:
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.accelerator.is_main_process:
                written = self._staging / f"checkpoint-{step}"
                write_json(written / DIFFICULTY, self.practice.difficulty.to_dict())
                place = self._checkpoints.seal(
                    written, step, is_sharded=self.is_sharded(), score=score, versions=_versions()
                )
                self._checkpoints.prune()
                self._hooks.on_saved(step, place)
            self.accelerator.wait_for_everyone()
        finally:
            self._staging = None

    def is_sharded(self) -> bool:
        """Whether the engine below keeps its optimizer in files of its own naming."""
        return bool(self.is_fsdp_enabled or self.is_deepspeed_enabled)

    def _refuse_sharded_weights(self) -> None:
        """In-process sampling needs all weights; gathering them rank by rank would deadlock."""
        if self.use_vllm:
            return
        plugin = getattr(self.accelerator.state, "deepspeed_plugin", None)
        zero3 = plugin is not None and plugin.zero_stage == 3
        if self.is_fsdp_enabled or zero3:
            raise SettingError(
                "sampling in this process does not work with sharded weights (FSDP, ZeRO-3): "
                "ranks would wait for one another for ever; use vllm='colocate' or vllm='server'"
            )


_KEPT_FROM_TRL = (
    "loss",
    "grad_norm",
    "learning_rate",
    "entropy",
    "kl",
    "clip_ratio/region_mean",
    "step_time",
    "epoch",
    "num_tokens",
    "sampling/sampling_logp_difference/mean",
    "sampling/importance_sampling_ratio/mean",
)


class _Steps(TrainerCallback):
    """Decides after each step whether to save and whether to stop, equally on all ranks."""

    def __init__(self, trainer: PolicyTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, _: Any, state: Any, __: Any, **___: Any) -> None:
        if state.global_step == 0:
            self._trainer.validate()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._trainer.refuse_broken_gradients()

    def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
        self._trainer.report(dict(logs or {}))

    def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> Any:
        plan = self._trainer.plan
        if state.global_step % plan.boundary:
            return control
        stop = self._trainer.wants_to_stop()
        is_last = state.global_step >= state.max_steps
        if stop or is_last or state.global_step % plan.checkpoint_steps == 0:
            control.should_save = True
        if stop and not is_last:
            self._trainer.stopped = True
            control.should_training_stop = True
        return control


def _play(prompts: list[str], trainer: PolicyTrainer) -> dict[str, list[Any]]:
    return trainer.play(prompts)


def _blended(**_: Any) -> list[float]:
    raise NotImplementedError("rewards come from measures, through _calculate_rewards")


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "trl", "accelerate")}
