"""How much memory a pass of the update takes, and how many rows of it fit.

What autograd keeps for the backward pass is counted in a few forward passes on made-up rows. It
is counted tensor by tensor, not read off the machine, so that the same model and settings always
give the same number.
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
_ON_A_CPU = 2.0  # GiB a pass: the machine is somebody's laptop
_SHARE = 0.6  # of what is free
_LAST_RESORT = 0.85
_OVERHEAD = 1.3  # gradients of activations, and tiles of the head
_PROMPT_TRIED, _WIDTH_TRIED = 96, 32  # tokens
_OPTIMIZER_BYTES = 12  # a trainable weight: gradient, and two moments


@dataclass(frozen=True, slots=True)
class PassCost:
    """Bytes that a pass needs: once, for each row, and for each token of a row's completion."""

    once: float
    row: float
    token: float

    def of(self, rows: int, width: int) -> float:
        return _OVERHEAD * (self.once + rows * (self.row + self.token * width))


@dataclass(frozen=True, slots=True)
class PassSize:
    """How many rows go through the model at once, and the bytes that they and a token take."""

    rows: int
    bytes: int
    token: int
    free: int

    def plain_rows(self, tokens: int) -> int:
        """Rows of so many tokens that take as much where nothing is shared between them."""
        return max(1, int(self.bytes // max(1, self.token * tokens)))

    def __str__(self) -> str:
        return f"{self.rows} rows a pass, {self.bytes / GIB:.1f} GiB"


def choose_rows(
    cost: PassCost,
    *,
    width: int,
    rows: int,
    device: str,
    wanted: float | None,
    needed_besides: int,
) -> PassSize:
    """The most rows whose pass fits: a divisor of `rows`, so that every pass is alike. Raises
    NotEnoughMemory where not even one row does."""
    free = max(0, _free(device) - needed_besides)
    allowed = _SHARE * free if wanted is None else min(wanted * GIB, _LAST_RESORT * free)
    if wanted is None and device == "cpu":
        allowed = min(allowed, _ON_A_CPU * GIB)
    for count in (each for each in range(rows, 0, -1) if rows % each == 0):
        needed = cost.of(count, width)
        if needed <= allowed or (count == 1 and needed <= _LAST_RESORT * free):
            return PassSize(count, round(needed), round(_OVERHEAD * cost.token), free)
    raise NotEnoughMemory(
        f"one row of {width} tokens takes {cost.of(1, width) / GIB:.1f} GiB in the update, and "
        f"{free / GIB:.1f} GiB are free beside the model and its optimizer; lower "
        "max_completion_length, set gradient_checkpointing=true, or take a smaller model"
    )


def optimizer_bytes(model: Any) -> int:
    """What gradients and optimizer will take once the first step is done."""
    return sum(
        _OPTIMIZER_BYTES * weights.numel()
        for weights in model.parameters()
        if weights.requires_grad
    )


def measure_pass(score: Any, model: Any, *, prompt: int) -> PassCost:
    """`score(ids, mask, keep)` runs completions of `keep` tokens through the model, as the update
    does. Three small passes tell what is needed once, by row, and by token. The first two grow
    with the prompt, of which a part is enough to measure."""
    tried = min(prompt, _PROMPT_TRIED)
    few, more, short = (
        _held(score, model, tried, rows, tokens)
        for rows, tokens in ((2, _WIDTH_TRIED), (3, _WIDTH_TRIED), (3, _WIDTH_TRIED // 2))
    )
    token = max(0.0, (more - short) / (3 * _WIDTH_TRIED / 2))
    row = max(0.0, more - few - token * _WIDTH_TRIED)
    once = max(0.0, few - 2 * (row + token * _WIDTH_TRIED))
    scale = prompt / tried
    return PassCost(once * scale, row * scale, token)


def _held(score: Any, model: Any, prompt: int, rows: int, width: int) -> int:
    vocabulary = model.config.get_text_config().vocab_size
    device = next(model.parameters()).device
    ids = torch.arange(prompt + width, device=device).remainder(vocabulary).repeat(rows, 1)
    with counted_for_backward(model) as held:
        score(ids, torch.ones_like(ids), width)
    return held.bytes


@dataclass(slots=True)
class Held:
    bytes: int = 0
    _seen: set[int] = field(default_factory=set)

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()


@contextmanager
def counted_for_backward(model: Any) -> Iterator[Held]:
    """Bytes that autograd keeps within this block, weights left out. Draws no random numbers."""
    held = Held()
    held._seen.update(each.untyped_storage().data_ptr() for each in model.parameters())
    kept: list[torch.Tensor] = []  # else a storage that is freed and used again counts once

    def pack(tensor: torch.Tensor) -> Any:
        held.add(tensor)
        kept.append(tensor.detach())  # with its graph, it would keep itself alive

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
