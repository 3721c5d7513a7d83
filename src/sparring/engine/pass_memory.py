"""Measures the memory of an update pass, and chooses the number of rows per pass.

The bytes that autograd saves for the backward pass are counted in a few forward passes on synthetic
rows. Counting tensors, instead of reading the allocator, always gives the same number for the same
model and settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from sparring.contracts.errors import NotEnoughMemory
from sparring.memory import free_memory

GIB = 1 << 30
_CPU_LIMIT = 2.0  # GiB per pass by default, because the machine may be a laptop
_SHARE = 0.6  # of the free memory, for a pass of several rows
_SHARE_FOR_ONE_ROW = 0.85
_OVERHEAD = 1.3  # factor for gradients of activations and tiles of the head
_SAMPLE_PROMPT, _SAMPLE_WIDTH = 96, 32  # tokens
_OPTIMIZER_BYTES = 12  # per trainable weight: gradient and two moments


@dataclass(frozen=True, slots=True)
class PassCost:
    """The bytes that a pass takes: for the prefix that all prompts share, per prompt, per row, and
    per token of a row's completion."""

    once: float
    row: float
    token: float
    prompt: float = 0.0

    def of(self, rows: int, width: int, prompts: int = 1) -> float:
        """Return the bytes of a pass of `rows` rows, which have `prompts` different prompts and
        completions of `width` tokens."""
        fixed = self.once + prompts * self.prompt
        return _OVERHEAD * (fixed + rows * (self.row + self.token * width))


@dataclass(frozen=True, slots=True)
class PassSize:
    """The rows per pass, the bytes of such a pass and of one token, and the free bytes."""

    rows: int
    bytes: int
    token: int
    free: int

    def plain_rows(self, tokens: int) -> int:
        """Return how many rows of `tokens` tokens fit into `bytes` if they share no prompt; at
        least 1."""
        return max(1, int(self.bytes // max(1, self.token * tokens)))

    def __str__(self) -> str:
        return f"{self.rows} rows per pass, {self.bytes / GIB:.1f} GiB"


def choose_rows(
    cost: PassCost,
    *,
    width: int,
    rows: int,
    group: int,
    device: str,
    wanted: float | None,
    needed_besides: int,
) -> PassSize:
    """Return the largest pass that fits. Its rows divide `rows`, so that all passes are equal.
    `group` rows have the same prompt.

    `wanted` limits passes of several rows, in GiB. `needed_besides` is the bytes that gradients and
    optimizer will take. Raises NotEnoughMemory if not even one row fits.
    """
    free = max(0, _free(device) - needed_besides)
    allowed = _SHARE * free if wanted is None else min(wanted * GIB, _SHARE_FOR_ONE_ROW * free)
    if wanted is None and device == "cpu":
        allowed = min(allowed, _CPU_LIMIT * GIB)
    for count in (each for each in range(rows, 0, -1) if rows % each == 0):
        needed = cost.of(count, width, prompts_in(count, group))
        if needed <= allowed or (count == 1 and needed <= _SHARE_FOR_ONE_ROW * free):
            return PassSize(count, round(needed), round(_OVERHEAD * cost.token), free)
    raise NotEnoughMemory(
        f"one row of {width} tokens takes {cost.of(1, width) / GIB:.1f} GiB in the update, but "
        f"only {free / GIB:.1f} GiB are free after the model and its optimizer; lower "
        "max_completion_length, set gradient_checkpointing=true, or use a smaller model"
    )


def prompts_in(rows: int, group: int) -> int:
    """Return how many different prompts the rows of a pass have at most."""
    if rows % group == 0:
        return rows // group
    return 1 if group % rows == 0 else rows // group + 2


def optimizer_bytes(model: Any) -> int:
    """Return the bytes that gradients and optimizer state take after the first step."""
    return sum(
        _OPTIMIZER_BYTES * weights.numel()
        for weights in model.parameters()
        if weights.requires_grad
    )


def measure_pass(score: Any, model: Any, *, prompt: int, common: int | None = None) -> PassCost:
    """Return the cost of a pass, measured on three small passes.

    `score(ids, mask, keep)` runs completions of `keep` tokens through the model, as the update
    does. The cost of a prompt and of a row are measured with a short prompt, and scaled up to
    `prompt` tokens, of which all prompts share the first `common` (default: all).
    """
    measured = min(prompt, _SAMPLE_PROMPT)
    two_rows, three_rows, short_rows = (
        _saved_bytes(score, model, measured, rows, tokens)
        for rows, tokens in ((2, _SAMPLE_WIDTH), (3, _SAMPLE_WIDTH), (3, _SAMPLE_WIDTH // 2))
    )
    token = max(0.0, (three_rows - short_rows) / (3 * _SAMPLE_WIDTH / 2))
    row = max(0.0, three_rows - two_rows - token * _SAMPLE_WIDTH)
    once = max(0.0, two_rows - 2 * (row + token * _SAMPLE_WIDTH))
    scale = prompt / measured
    shared = prompt if common is None else common
    return PassCost(
        once * shared / measured, row * scale, token, once * (prompt - shared) / measured
    )


def _saved_bytes(score: Any, model: Any, prompt: int, rows: int, width: int) -> int:
    vocabulary = model.config.get_text_config().vocab_size
    device = next(model.parameters()).device
    ids = torch.arange(prompt + width, device=device).remainder(vocabulary).repeat(rows, 1)
    with count_saved_bytes(model) as held:
        score(ids, torch.ones_like(ids), width)
    return held.bytes


@dataclass(slots=True)
class Held:
    """Adds up the bytes of tensors, and counts each storage once."""

    bytes: int = 0
    _seen: set[int] = field(default_factory=set)

    def add(self, tensor: torch.Tensor) -> None:
        """Add the bytes of this tensor's storage, unless it was counted before."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()


@contextmanager
def count_saved_bytes(model: Any) -> Iterator[Held]:
    """Count the bytes, without weights, that autograd saves inside the context. Restores torch's
    random state."""
    held = Held()
    held._seen.update(each.untyped_storage().data_ptr() for each in model.parameters())
    alive: list[torch.Tensor] = []  # a freed storage could be reused and would not be counted

    def pack(tensor: torch.Tensor) -> Any:
        held.add(tensor)
        alive.append(tensor.detach())  # the graph would form a cycle and never be freed

    rng = torch.get_rng_state()
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
            yield held
    finally:
        torch.set_rng_state(rng)


def _free(device: str) -> int:
    if device.startswith("cuda"):
        free, _ = torch.cuda.mem_get_info()
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return int(free + unused)
    return free_memory()
