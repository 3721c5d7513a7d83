"""Streams as the padded tensors that TRL's loss takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from trl.trainer.utils import pad

from sparring.learning.engine import Stream

Tensors = dict[str, Any]  # TRL's batch: padded tensors, and a few scalars, by TRL's names


def padded(streams: Sequence[Stream], padding: int, device: torch.device) -> Tensors:
    """Return TRL's tensors of these streams: prompts padded left, completions right."""
    rows = [each.row for each in streams]
    prompts = [torch.tensor(row.prompt.tolist()) for row in rows]
    completions = [torch.tensor(row.completion.tolist()) for row in rows]
    columns = {
        "prompt_ids": pad(prompts, padding, "left"),
        "prompt_mask": pad([torch.ones_like(ids) for ids in prompts], 0, "left"),
        "completion_ids": pad(completions, padding, "right"),
        "completion_mask": pad([torch.ones_like(ids) for ids in completions], 0, "right"),
        "tool_mask": pad([torch.tensor(list(row.mask)) for row in rows], 1, "right"),
        "sampling_per_token_logps": pad([torch.tensor(row.logprobs) for row in rows], 0.0, "right"),
        "advantages": pad([torch.tensor(each.advantages) for each in streams], 0.0, "right"),
    }
    return {name: column.to(device) for name, column in columns.items()}


def attended(tensors: Tensors) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return prompt and completion as one sequence, its attention mask, and the width of the
    completion."""
    ids = torch.cat([tensors["prompt_ids"], tensors["completion_ids"]], dim=1)
    mask = torch.cat([tensors["prompt_mask"], tensors["completion_mask"]], dim=1)
    return ids, mask, tensors["completion_ids"].size(1)


def sampled(tensors: Tensors) -> torch.Tensor:
    """Return the mask of the tokens that are learned from."""
    mask: torch.Tensor = tensors["completion_mask"] * tensors["tool_mask"]
    return mask


def corrections(
    differences: torch.Tensor, mode: str, low: float | None, high: float | None
) -> torch.Tensor:
    """Return the weights that correct for a sampler whose probabilities differ from the trainer's.

    `differences` are the trainer's log-probabilities minus the sampler's, 0 where nothing is
    learned. `mode` is TRL's `vllm_importance_sampling_mode`: by token or by whole row, and cutting
    weights off at the limits or leaving such tokens out.
    """
    level, _, way = mode.partition("_")
    ratio = (differences.sum(dim=-1, keepdim=True) if level == "sequence" else differences).exp()
    if way == "truncate":
        return ratio.clamp(min=low, max=high)
    is_outside = torch.zeros_like(ratio, dtype=torch.bool)
    if low is not None:
        is_outside |= ratio < low
    if high is not None:
        is_outside |= ratio > high
    return ratio.masked_fill(is_outside, 0.0)
