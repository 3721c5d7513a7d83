"""Measures the memory of an update pass, and chooses the number of rows per pass.

The bytes that autograd saves for the backward pass are counted in a few forward passes on synthetic
rows. Counting tensors, instead of reading the allocator, always gives the same number for the same
model and settings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from sparring.contracts.errors import NotEnoughMemory
from sparring.engine.configuration import device_of, plan_of
from sparring.learning.batches import largest_divisor
from sparring.learning.engine import Announce, Opening, from_rank_0
from sparring.machine import free_memory
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, read_lines, write_json

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


def fit_passes(
    trainer: Any,
    opening: Opening,
    prompt_tokens: Callable[[], tuple[int, int]],
    announce: Announce = lambda _: None,
) -> PassSize | None:
    """Split the rows of a step into passes that fit into memory, and return their size. If weights
    are sharded or quantized, or `engine` sets `steps_per_generation`, change nothing and return
    None.

    The number is chosen once and stored in the run's folder, so that a resumed run repeats bit for
    bit. Each restart after running out of memory halves it.
    """
    settings, folder, plan = opening.settings, opening.folder, trainer.plan
    if trainer.is_sharded() or "steps_per_generation" in settings.engine or settings.quantization:
        return None

    def stored_or_chosen() -> PassSize:
        with contextlib.suppress(OSError, ValueError, KeyError):
            content = read_json(folder.passes)
            return PassSize(*(int(content[name]) for name in ("rows", "bytes", "token", "free")))
        model = trainer.accelerator.unwrap_model(trainer.model)
        prompt, common = prompt_tokens()
        return choose_rows(
            measure_pass(trainer.score_sample, model, prompt=prompt, common=common),
            width=settings.max_completion_length,
            rows=plan.rows_per_pass,
            group=plan.rollouts_per_case,
            device=device_of(settings),
            wanted=settings.pass_memory,
            needed_besides=optimizer_bytes(model),
        )

    chosen = from_rank_0(stored_or_chosen, trainer)
    if trainer.rank == 0:
        write_json(folder.passes, {"format": 1, **asdict(chosen)})
    kills = from_rank_0(lambda: memory_restarts(folder), trainer)
    rows = largest_divisor(plan.rows_per_pass, max(1, chosen.rows >> kills))
    if kills:
        announce(_after_kills(kills, rows, chosen.rows))
    if rows < plan.rows_per_pass:
        capped = settings.model_copy(update={"per_device_train_batch_size": rows})
        trainer.use_plan(plan_of(capped, len(opening.case_ids), plan.world_size))
    return replace(chosen, rows=rows, bytes=chosen.bytes * rows // chosen.rows)


def _after_kills(kills: int, rows: int, before: int) -> str:
    restarts = f"restarts after running out of memory: {kills}"
    if rows == before:
        return (
            f"{restarts}; a pass has {rows} rows and cannot be split further: lower "
            "max_completion_length or set gradient_checkpointing"
        )
    return (
        f"{restarts}; {rows} rows a pass instead of {before}: a step learns from the same rows, "
        "and only rounding differs"
    )


def memory_restarts(folder: RunFolder) -> int:
    """Return how often the run was restarted because it ran out of memory."""
    return sum(
        event.get("event") == "restart" and event.get("cause") == "out_of_memory"
        for event in read_lines(folder.events)
    )


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
    return sum(held.values())


@contextmanager
def count_saved_bytes(model: Any) -> Iterator[dict[int, int]]:
    """Note the bytes of each storage, by its address and without weights, that autograd saves
    inside the context. Restores torch's random state."""
    held: dict[int, int] = {}
    weights = {each.untyped_storage().data_ptr() for each in model.parameters()}
    alive: list[torch.Tensor] = []  # a freed storage could be reused and would not be counted

    def pack(tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held.setdefault(storage.data_ptr(), storage.nbytes())
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
