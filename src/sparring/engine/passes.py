"""How the rows of a generation are laid out over the passes that learn from them."""

from __future__ import annotations

from typing import Any

import torch
from trl.trainer.utils import split_tensor_dict

Batch = dict[str, Any]
_OF_PROMPTS = ("prompt_ids", "prompt_mask")


def passes_of(batch: Batch, count: int, group: int) -> list[Batch]:
    """Shuffled by whole groups, which share their prompt, where TRL scatters single rows; each
    pass only as wide as its longest rows."""
    return [_trimmed(each) for each in split_tensor_dict(_shuffled(batch, group), count)]


def _shuffled(batch: Batch, group: int) -> Batch:
    rows = len(batch["prompt_ids"])
    order = torch.arange(rows).view(-1, group)[torch.randperm(rows // group)].flatten()
    return {name: value[order] if _has_rows(value) else value for name, value in batch.items()}


def _trimmed(batch: Batch) -> Batch:
    """Without the columns that are padding in every row of this pass."""
    completion = batch["completion_mask"]
    width = max(1, int(completion.sum(dim=1).max()))
    start = int((batch["prompt_mask"].sum(dim=0) == 0).sum())

    def trim(name: str, value: Any) -> Any:
        if name in _OF_PROMPTS:
            return value[:, start:]
        if _has_rows(value) and value.ndim == 2 and value.shape[1] == completion.shape[1]:
            return value[:, :width]
        return value

    return {name: trim(name, value) for name, value in batch.items()}


def _has_rows(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0
