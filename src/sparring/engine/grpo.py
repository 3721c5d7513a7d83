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
from sparring.engine.cpu_head import only_what_is_learned
from sparring.learning.batches import BatchPlan
from sparring.learning.parity import Parity, likely_cause, refuse_disagreement
from sparring.learning.practice import Practice
from sparring.learning.step_counts import StepCounts

_PARITY_ROWS = 16
_EXPLAINING_ROWS = 4


@dataclass(frozen=True, slots=True)
class Hooks:
    """How the engine tells the world. Rank 0 calls `on_step` and `on_validation`."""

    on_step: Callable[[int, dict[str, Any]], None] = lambda _step, _row: None
    on_validation: Callable[[int, dict[str, Any]], None] = lambda _step, _row: None
    on_parity: Callable[[Parity], None] = lambda _: None
    on_saved: Callable[[int, Path], None] = lambda _step, _path: None
    should_stop: Callable[[], bool] = lambda: False


class PolicyTrainer(GRPOTrainer):
    """One step: play the cases, score them, check parity once, update."""

    def __init__(
        self, *, hooks: Hooks, checkpoints: Checkpoints, plan: BatchPlan, **trl: Any
    ) -> None:
        self.plan = plan
        self._hooks = hooks
        self._checkpoints = checkpoints
        self._practice: Practice | None = None
        self._rewards: list[float | None] = []
        self._parity_is_due = True
        self._staging: Path | None = None
        self._was_scored = False
        self.epochs_before = 0
        self.stopped = False
        super().__init__(reward_funcs=[_blended], rollout_func=_play, **trl)
        self.remove_callback(PrinterCallback)
        self.add_callback(_Steps(self))
        self._refuse_sharded_weights()

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
        rng = torch.get_rng_state()
        was_training = self.model.training
        self.model.eval()
        try:
            rows = self.practice.rows(case_ids, self.state.global_step)
            self.after_playing()
        finally:
            self.model.train(was_training)
            torch.set_rng_state(rng)  # a tool that draws random numbers must not move ours
        self._rewards = [row.reward for row in rows]
        return {
            "prompt_ids": [row.prompt.tolist() for row in rows],
            "completion_ids": [row.completion.tolist() for row in rows],
            "logprobs": [row.logprobs.tolist() for row in rows],
            "env_mask": [list(row.mask) for row in rows],
        }

    def _calculate_rewards(self, *_: Any) -> torch.Tensor:
        """One blended reward per row; an unscored row stays out of its group's statistics."""
        rewards = [float("nan") if reward is None else reward for reward in self._rewards]
        column = torch.tensor(rewards, dtype=torch.float32, device=self.accelerator.device)
        gathered: torch.Tensor = self.accelerator.gather(column.unsqueeze(1))
        return gathered

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self._parity_is_due:
            self._parity_is_due = not self._check_parity(batch)
        self.practice.note_advantages(batch["advantages"].tolist())
        return batch

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        with only_what_is_learned():
            return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    def _check_parity(self, batch: dict[str, Any]) -> bool:
        """Compare the sampler's log-probabilities with those of an update's forward pass; False
        where no rank had anything to compare."""
        picked = {
            name: batch[name][:_PARITY_ROWS]
            for name in (
                "prompt_ids",
                "prompt_mask",
                "completion_ids",
                "completion_mask",
                "tool_mask",
                "sampling_per_token_logps",
            )
        }
        mask = (picked["completion_mask"] * picked["tool_mask"]).bool()
        sampled = picked["sampling_per_token_logps"]
        trained = self._recomputed(picked)
        gaps = (sampled - trained).abs()[mask]
        tokens = torch.tensor([float(gaps.numel())], device=gaps.device)
        total = gaps.sum().reshape(1)
        largest = gaps.max().reshape(1) if gaps.numel() else torch.zeros_like(total)
        gathered = self.accelerator.gather(torch.cat([tokens, total, largest])).view(-1, 3)
        count = int(gathered[:, 0].sum())
        if not count:
            return False
        parity = Parity(
            tokens=count,
            largest=float(gathered[:, 2].max()),
            mean=float(gathered[:, 1].sum()) / count,
            dtype="bfloat16" if self._computes_in_bfloat16() else "float32",
        )
        self._hooks.on_parity(parity)
        if not parity.holds:
            few = {name: rows[:_EXPLAINING_ROWS] for name, rows in picked.items()}
            plain, mask = self._recomputed(few, temperature=1.0), mask[:_EXPLAINING_ROWS]
            given = (each[:_EXPLAINING_ROWS][mask].tolist() for each in (sampled, trained, plain))
            refuse_disagreement(parity, likely_cause(*given))
        return True

    @torch.no_grad()
    def _recomputed(self, rows: dict[str, Any], temperature: float | None = None) -> torch.Tensor:
        """Log-probabilities as the update computes them, without dropout."""
        ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
        mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
        keep = rows["completion_ids"].size(1)
        was_training = self.model.training
        self.model.eval()
        try:
            if temperature is None:
                logps: torch.Tensor
                logps, _, _ = self._get_per_token_logps_and_entropies(
                    self.model, ids, mask, keep, batch_size=self.args.per_device_train_batch_size
                )
                return logps
            logits = self.model(input_ids=ids, attention_mask=mask).logits[:, :-1] / temperature
            logprobs = torch.log_softmax(logits.float(), dim=-1)
            return logprobs.gather(2, ids[:, 1:, None]).squeeze(2)[:, -keep:]
        finally:
            self.model.train(was_training)

    def _computes_in_bfloat16(self) -> bool:
        return bool(self.args.bf16) or next(self.model.parameters()).dtype == torch.bfloat16

    # ------------------------------------------------------------------ what is told

    def report(self, logs: dict[str, Any]) -> None:
        """TRL's figures and ours as one row, the rollouts of all ranks added up."""
        self.state.log_history.clear()  # metrics.jsonl has it; memory must not grow with steps
        if "loss" not in logs:
            return
        counts = self._summed(self.practice.take_counts())
        self._refuse_a_start_without_rewards(counts)
        if self.accelerator.is_main_process:
            kept = {name: logs[name] for name in _KEPT_FROM_TRL if logs.get(name) is not None}
            self._hooks.on_step(self.state.global_step, {**kept, **counts.metrics()})

    def _refuse_a_start_without_rewards(self, counts: StepCounts) -> None:
        """A judge that is down from the beginning would cost a whole run of empty steps."""
        self._was_scored = self._was_scored or counts.sums["scored"] > 0
        if not self._was_scored:
            raise MachineryFailure(
                f"none of the first {int(counts.sums['rollouts'])} rollouts could be scored: "
                f"{self.practice.first_cause or 'another rank knows why'}"
            )

    def refuse_broken_gradients(self) -> None:
        """Before they reach the weights, and a checkpoint of them."""
        grads = [each.grad for each in self.model.parameters() if each.grad is not None]
        if grads and not torch.isfinite(torch.nn.utils.get_total_norm(grads)):
            raise MachineryFailure(
                f"the gradient of step {self.state.global_step + 1} is not finite; go on from the "
                "newest checkpoint in a new run with a lower learning_rate or max_grad_norm"
            )

    def validate(self) -> float | None:
        """The mean reward over the validation cases, played by all ranks together."""
        if not self.practice.has_validation:
            return None
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

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Not with every checkpoint: it asks the hub, and says nothing of the run."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Validate, write aside, seal, prune."""
        step = self.state.global_step
        self._staging = self._checkpoints.staging(step)
        score = self.validate()
        try:
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.accelerator.is_main_process:
                written = self._staging / f"checkpoint-{step}"
                place = self._checkpoints.seal(
                    written, step, is_sharded=self._is_sharded(), score=score, versions=_versions()
                )
                self._checkpoints.prune()
                self._hooks.on_saved(step, place)
            self.accelerator.wait_for_everyone()
        finally:
            self._staging = None

    def _is_sharded(self) -> bool:
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
