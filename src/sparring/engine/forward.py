"""The forward pass of an update: TRL's, with the prompts that rows share computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from sparring.engine.cpu_head import small_tiles_on_cpu
from sparring.engine.shared_prompts import StepPrefix, completion_scores

Plain = Callable[..., Any]  # TRL's method: log-probabilities, entropies and auxiliary loss


@dataclass(slots=True)
class Forward:
    """Scores completions. With `shares_prompts`, `common_prefix` is what all prompts of the batch
    begin with: the parts of an optimizer step compute it once, and the last part ends that."""

    accelerator: Any
    shares_prompts: bool = False
    common_prefix: tuple[int, ...] = ()
    is_last_part: bool = True
    _of_step: StepPrefix | None = field(default=None, init=False)

    def begin_step(self) -> None:
        """Begin an optimizer step: its parts share a new prefix."""
        self._of_step = None

    def scores(
        self,
        plain: Plain,
        model: Any,
        ids: torch.Tensor,
        mask: torch.Tensor,
        keep: int,
        options: dict[str, Any],
    ) -> Any:
        """Return log-probabilities, entropies and auxiliary loss of the last `keep` tokens."""
        with small_tiles_on_cpu(ids.device):
            if self.shares_prompts and not options.get("compute_aux_loss"):
                unwrapped, is_last = self.accelerator.unwrap_model(model), self.is_last_part
                with self.accelerator.autocast():
                    prefix = self._prefix(unwrapped, ids.device)
                    scores = completion_scores(
                        model, unwrapped, ids, mask, keep, prefix=prefix, is_last=is_last
                    )
                if is_last:
                    self._of_step = None
                if scores is not None:
                    entropy = scores.entropy[:, -keep:] if options.get("compute_entropy") else None
                    return scores.log_probs[:, -keep:], entropy, None
            return plain(model, ids, mask, keep, **options)

    def _prefix(self, model: Any, device: torch.device) -> StepPrefix | None:
        """Return the prefix that all parts of this optimizer step share; None if there is none,
        if the step has only one part, or without gradients."""
        if not self.common_prefix or not torch.is_grad_enabled():
            return None
        if self._of_step is None and not self.is_last_part:
            self._of_step = StepPrefix(model, self.common_prefix, device)
        return self._of_step
