"""Compares the sampler's log-probabilities with those of an update's forward pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from accelerate.utils import gather_object

from sparring.engine.tensors import Tensors, attended, sampled
from sparring.learning.engine import Parity, likely_cause

if TYPE_CHECKING:
    from trl import GRPOTrainer

_ROWS = 16
_EXPLAINING_ROWS = 4
_PARTS = ("prompt", "completion")
_COMPARED = (
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
    "tool_mask",
    "sampling_per_token_logps",
)


@dataclass(frozen=True, slots=True)
class Suspect:
    """The row with the largest gap, and the prompt of its last sampled turn. `dtype` is the
    precision in which the trainer computes."""

    row: int
    prompt: list[int]
    gap: float
    dtype: str


# Returns the trainer's log-probabilities of a completion after a prompt; with True, those of the
# model without its adapter.
Score = Callable[[list[int], list[int], bool], list[float]]
# Returns the cause of a gap, or an empty string. All ranks call it, and it must call `Score`
# the same number of times on each.
FindFault = Callable[[Suspect, Score], str]


class ParityGate:
    """Compares sampler and trainer over all ranks, and finds the cause if they disagree.

    With `find_fault`, `check` compares all rows with the log-probabilities that it is given.
    Otherwise, it recomputes and compares the first 16 rows of each rank.
    """

    def __init__(self, trainer: GRPOTrainer, *, find_fault: FindFault | None = None) -> None:
        self._trainer = trainer
        self._find_fault = find_fault

    def check(self, batch: Tensors, trained: torch.Tensor | None = None) -> Parity | None:
        """Return the gap over all ranks; None if no rank has sampled tokens to compare.

        `trained` are the trainer's log-probabilities of all rows, under the weights that sampled
        them.
        """
        picked = batch
        if self._find_fault is None or trained is None:
            picked = {name: batch[name][:_ROWS] for name in _COMPARED}
            trained = self.recomputed(picked)
        mask = sampled(picked).bool()
        gaps = (picked["sampling_per_token_logps"] - trained).abs()[mask]
        tokens = torch.tensor([float(gaps.numel())], device=gaps.device)
        total = gaps.sum().reshape(1)
        largest = gaps.max().reshape(1) if gaps.numel() else torch.zeros_like(total)
        figures = torch.cat([tokens, total, largest])
        gathered = self._trainer.accelerator.gather(figures).view(-1, 3)
        count = int(gathered[:, 0].sum())
        if not count:
            return None
        return Parity(
            tokens=count,
            largest=float(gathered[:, 2].max()),
            mean=float(gathered[:, 1].sum()) / count,
            dtype=self._dtype,
        )

    def cause(self, batch: Tensors, trained: torch.Tensor | None = None) -> str:
        """Return the likely cause of a gap: a fault of the sampling servers, or what the numbers
        of a few rows suggest."""
        few = {name: batch[name][:_EXPLAINING_ROWS] for name in _COMPARED}
        mask = sampled(few).bool()
        again, plain = self.recomputed(few), self.recomputed(few, temperature=1.0)
        compared = (few["sampling_per_token_logps"], again, plain)
        cause = likely_cause(*(each[mask].tolist() for each in compared))
        return self._fault(batch, trained) or cause

    def _fault(self, batch: Tensors, trained: torch.Tensor | None) -> str:
        """Return the fault found by the rank with the largest gap; empty without `find_fault`."""
        if self._find_fault is None or trained is None:
            return ""
        suspect = _suspect_of(batch, trained, self._dtype)
        found = (suspect.gap, self._find_fault(suspect, self._score))
        return str(max(gather_object([found]))[1])

    def _score(
        self, prompt: list[int], completion: list[int], without_adapter: bool
    ) -> list[float]:
        device = self._trainer.accelerator.device
        rows = {
            name: torch.tensor([ids], device=device)
            for name, ids in (("prompt_ids", prompt), ("completion_ids", completion))
        }
        rows |= {f"{name}_mask": torch.ones_like(rows[f"{name}_ids"]) for name in _PARTS}
        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        is_adapter_off = without_adapter and hasattr(model, "disable_adapter")
        with model.disable_adapter() if is_adapter_off else nullcontext():
            scored: list[float] = self.recomputed(rows)[0].tolist()
            return scored

    @torch.no_grad()
    def recomputed(self, rows: Tensors, temperature: float | None = None) -> torch.Tensor:
        """Return the log-probabilities of completions as the update computes them, without dropout.

        `temperature` overrides the setting.
        """
        trainer = self._trainer
        ids, mask, keep = attended(rows)
        was_training = trainer.model.training
        trainer.model.eval()
        try:
            if temperature is None:
                logps: torch.Tensor
                logps, _, _ = trainer._get_per_token_logps_and_entropies(
                    trainer.model,
                    ids,
                    mask,
                    keep,
                    batch_size=trainer.args.per_device_train_batch_size,
                )
                return logps
            logits = trainer.model(input_ids=ids, attention_mask=mask).logits[:, :-1] / temperature
            logprobs = torch.log_softmax(logits.float(), dim=-1)
            return logprobs.gather(2, ids[:, 1:, None]).squeeze(2)[:, -keep:]
        finally:
            trainer.model.train(was_training)

    @property
    def _dtype(self) -> str:
        """The precision in which the trainer computes."""
        is_stored_in_bfloat16 = next(self._trainer.model.parameters()).dtype == torch.bfloat16
        return "bfloat16" if self._trainer.args.bf16 or is_stored_in_bfloat16 else "float32"


def _suspect_of(batch: Tensors, trained: torch.Tensor, dtype: str) -> Suspect:
    """Return the row with the largest gap, with the tokens before its last sampled turn."""
    mask = sampled(batch).bool()
    gaps = (batch["sampling_per_token_logps"] - trained).abs() * mask
    row = int(gaps.amax(dim=1).argmax())
    is_sampled = mask[row].tolist()
    start = len(is_sampled) - 1 - is_sampled[::-1].index(True) if any(is_sampled) else 0
    while start and is_sampled[start - 1]:
        start -= 1
    shown = batch["prompt_mask"][row].bool()
    prompt = batch["prompt_ids"][row][shown].tolist()
    prompt += batch["completion_ids"][row][:start].tolist()
    return Suspect(row, prompt, float(gaps[row].max()), dtype)
