"""Replaces how TRL's GRPO trainer splits a generation into passes.

TRL shuffles the rows of a generation over passes. Here, whole groups are shuffled, a pass runs
in parts if rollouts have several rows, and a prompt that rows share is computed once.
"""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from sparring.contracts.errors import InfrastructureError
from sparring.engine.cpu_head import small_tiles_on_cpu
from sparring.engine.passes import passes_of
from sparring.engine.shared_prompts import (
    Prompts,
    StepPrefix,
    completion_scores,
    why_prompts_cannot_be_shared,
)
from sparring.learning.batches import BatchPlan


class PassTrainer(GRPOTrainer):
    """A GRPO trainer that distributes the rows of a generation over passes and parts, and computes
    shared prompts once."""

    def __init__(self, *, plan: BatchPlan, shares_prompts: bool = True, **trl: Any) -> None:
        self.plan = plan
        self._logps: torch.Tensor | None = None
        self._passes: list[list[dict[str, Any]]] | None = None
        self._played_at = -1
        self._part = 0
        self._common_prefix: tuple[int, ...] = ()
        self._step_prefix: StepPrefix | None = None
        self.shares_prompts = False
        super().__init__(**trl)
        self.why_prompts_are_not_shared = why_prompts_cannot_be_shared(
            self.accelerator.unwrap_model(self.model),
            is_sharded=self.is_sharded(),
            is_checkpointed=self.args.gradient_checkpointing,
        )
        self.shares_prompts = shares_prompts and not self.why_prompts_are_not_shared

    def use_plan(self, plan: BatchPlan) -> None:
        """Replace the batch plan, which sets the passes of a step. Must be called before training
        begins."""
        self.plan = plan
        self.args.per_device_train_batch_size = self._train_batch_size = plan.rows_per_pass
        self.args.gradient_accumulation_steps = plan.passes_per_step
        self.args.steps_per_generation = plan.steps_per_generation

    def is_sharded(self) -> bool:
        """Whether FSDP or DeepSpeed is enabled."""
        return bool(self.is_fsdp_enabled or self.is_deepspeed_enabled)

    def _rollout_of_row(self) -> list[int]:
        """Return the index of each row's rollout in the batch being scored."""
        raise NotImplementedError

    # ------------------------------------------------------------------ passes

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """Return the current part of the current pass."""
        return self._parts(generation_batch)[self._part]

    def _parts(self, generation_batch: Any) -> list[dict[str, Any]]:
        """Return the parts of the current pass. If a generation begins, play its rollouts first."""
        rounds = self.args.steps_per_generation
        is_new = self._step % (rounds * self.num_iterations) == 0
        if self._passes is None or (is_new and self._played_at != self._step):
            self._passes = self._played_passes(generation_batch)
            self._played_at = self._step
        return self._passes[self._step % rounds]

    def training_step(self, model: Any, inputs: Any, *args: Any) -> torch.Tensor:
        """Run the parts of a pass, and return the sum of their losses.

        The gradients of the parts add up. Ranks exchange them once per
        optimizer step, in the last part of its last pass.
        """
        model.train()  # otherwise, TRL treats the batch as part of an evaluation
        if self._step % self.args.gradient_accumulation_steps == 0:
            self._step_prefix = None
        loss = torch.zeros((), device=self.accelerator.device)
        with small_tiles_on_cpu(self.accelerator.device):
            *before, last = range(len(self._parts(inputs)))
            for self._part in before:
                with self.accelerator.no_sync(model):
                    # GRPOTrainer's method would count each part as a pass.
                    loss += super(GRPOTrainer, self).training_step(model, inputs, *args)
            self._part = last
            loss += super().training_step(model, inputs, *args)
        self._part = 0
        return loss

    def _played_passes(self, inputs: Any) -> list[list[dict[str, Any]]]:
        """Play and score a generation, and distribute its rows over passes."""
        batch = self._generate_and_score_completions(inputs)
        rollout_of_row = self._rollout_of_row()
        real = slice(len(rollout_of_row))  # without padding rows
        rows = {
            name: value[real] if isinstance(value, torch.Tensor) and value.ndim else value
            for name, value in batch.items()
        }
        prompts = Prompts.of(rows["prompt_ids"], rows["prompt_mask"])
        self._common_prefix = prompts.common if self.shares_prompts else ()

        def most_parts(own: list[int]) -> list[int]:
            return [max(counts) for counts in zip(*gather_object([own]), strict=True)]

        rounds = self.args.steps_per_generation
        common = len(self._common_prefix) if self.shares_prompts else None
        return passes_of(
            rows, rollout_of_row, rounds, self.num_generations, most_parts, common=common
        )

    def _is_last_part(self) -> bool:
        """Whether an optimizer step follows the current part."""
        accumulated: int = self.args.gradient_accumulation_steps
        if self._passes is None:
            return accumulated == 1
        parts = self._passes[self._step % self.args.steps_per_generation]
        return (self._step + 1) % accumulated == 0 and self._part == len(parts) - 1

    # ------------------------------------------------------------------ scores

    def take_logps(self) -> torch.Tensor:
        """Return and forget the log-probabilities of the last forward pass with gradients."""
        logps, self._logps = self._logps, None
        if logps is None:
            raise InfrastructureError(
                "TRL computed a loss without log-probabilities; install a supported version of TRL"
            )
        return logps

    def score_sample(self, ids: torch.Tensor, mask: torch.Tensor, keep: int) -> None:
        """Run the forward pass of an update on these rows, to measure its memory."""
        self.model.train()
        model = self.accelerator.unwrap_model(self.model)
        self._scored(model, ids, mask, keep, {"compute_entropy": True})

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """Return log-probabilities, entropies and auxiliary loss of completions as TRL does, but
        compute shared prompts once."""
        step = batch_size or len(input_ids)
        parts = [
            self._scored(
                model,
                input_ids[start : start + step],
                attention_mask[start : start + step],
                logits_to_keep,
                options,
            )
            for start in range(0, len(input_ids), step)
        ]
        logps, entropies, aux = zip(*parts, strict=True)
        self._logps = torch.cat(logps) if torch.is_grad_enabled() else None
        return (
            torch.cat(logps) if self._logps is None else self._logps,
            torch.cat(entropies) if options.get("compute_entropy") else None,
            torch.stack(aux).mean() if options.get("compute_aux_loss") else None,
        )

    def _scored(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, keep: int, options: dict[str, Any]
    ) -> Any:
        with small_tiles_on_cpu(ids.device):
            if self.shares_prompts and not options.get("compute_aux_loss"):
                unwrapped = self.accelerator.unwrap_model(model)
                is_last = self._is_last_part()
                with self.accelerator.autocast():
                    prefix = self._prefix_of_step(unwrapped, ids.device)
                    scores = completion_scores(
                        model, unwrapped, ids, mask, keep, prefix=prefix, is_last=is_last
                    )
                if is_last:
                    self._step_prefix = None
                if scores is not None:
                    entropy = scores.entropy[:, -keep:] if options.get("compute_entropy") else None
                    return scores.log_probs[:, -keep:], entropy, None
            return super()._get_per_token_logps_and_entropies(model, ids, mask, keep, **options)

    def _prefix_of_step(self, model: Any, device: torch.device) -> StepPrefix | None:
        """Return the prefix that all passes of this optimizer step share; None if there is none,
        if the step has only one part, or without gradients."""
        if not self._common_prefix or not torch.is_grad_enabled():
            return None
        if self._step_prefix is None and not self._is_last_part():
            self._step_prefix = StepPrefix(model, self._common_prefix, device)
        return self._step_prefix
