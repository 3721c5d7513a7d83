"""The parity gate: the sampler's log-probabilities beside those of an update's forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sparring.learning.parity import Parity, likely_cause, refuse_disagreement

if TYPE_CHECKING:
    from sparring.engine.grpo import PolicyTrainer

_ROWS = 16
_EXPLAINING_ROWS = 4
_COMPARED = (
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
    "tool_mask",
    "sampling_per_token_logps",
)


class ParityGate:
    """Compares the first rows of a batch, over all ranks, and refuses a disagreement."""

    def __init__(self, trainer: PolicyTrainer) -> None:
        self._trainer = trainer

    def check(self, batch: dict[str, Any]) -> Parity | None:
        """None where no rank had anything to compare."""
        picked = {name: batch[name][:_ROWS] for name in _COMPARED}
        mask = (picked["completion_mask"] * picked["tool_mask"]).bool()
        trained = self._recomputed(picked)
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
            dtype="bfloat16" if self._computes_in_bfloat16() else "float32",
        )

    def refuse(self, parity: Parity, batch: dict[str, Any]) -> None:
        """Where it does not hold, with the likely cause."""
        if parity.holds:
            return
        few = {name: batch[name][:_EXPLAINING_ROWS] for name in _COMPARED}
        mask = (few["completion_mask"] * few["tool_mask"]).bool()
        trained, plain = self._recomputed(few), self._recomputed(few, temperature=1.0)
        compared = (few["sampling_per_token_logps"], trained, plain)
        refuse_disagreement(parity, likely_cause(*(each[mask].tolist() for each in compared)))

    @torch.no_grad()
    def _recomputed(self, rows: dict[str, Any], temperature: float | None = None) -> torch.Tensor:
        """Log-probabilities as the update computes them, without dropout."""
        trainer = self._trainer
        ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
        mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
        keep = rows["completion_ids"].size(1)
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

    def _computes_in_bfloat16(self) -> bool:
        model = self._trainer.model
        return bool(self._trainer.args.bf16) or next(model.parameters()).dtype == torch.bfloat16
