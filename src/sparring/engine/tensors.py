"""A batch as the tensors that TRL's loss takes: padded streams, in passes, with a second loss.

A pass has the rows of some rollouts. If rollouts have several rows, a pass runs in parts, one after
another, so that it has no more tokens than with one row per rollout. `Echo` computes the loss on
tool results from the log-probabilities of the update's forward pass. These are of the
temperature-scaled softmax, as in the policy's loss, because both losses share that pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from trl.trainer.utils import pad

from sparring.learning.engine import Stream

Tensors = dict[str, Any]  # TRL's batch: padded tensors, and a few scalars, by TRL's names
WEIGHTS, TOOLS = "echo_weights", "echo_tools"
_PROMPT_FIELDS = ("prompt_ids", "prompt_mask")
_LEARNED_FIELDS = ("tool_mask", "advantages", WEIGHTS, TOOLS)


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


def passes_of(
    batch: Tensors,
    rollout_of_row: Sequence[int],
    count: int,
    group: int,
    most: Callable[[list[int]], list[int]] = lambda own: own,
    *,
    common: int | None = None,
) -> list[list[Tensors]]:
    """Split a batch into `count` passes of whole rollouts, and each pass into parts.

    Whole groups are shuffled, because the rows of a group share their prompt; TRL shuffles single
    rows. Each part is only as wide as its longest rows. `most` returns the largest of each number
    over all ranks: every rank gets as many parts as the one with the most, and as many rows in each
    of them, by parts and rows that change no weights. With `common`, rows with the same prompt
    compute it once, without the first `common` tokens, which all prompts share.
    """
    rollouts = max(rollout_of_row) + 1
    order = torch.arange(rollouts).view(-1, group)[torch.randperm(rollouts // group)].flatten()
    rows_of: list[list[int]] = [[] for _ in range(rollouts)]
    for row, rollout in enumerate(rollout_of_row):
        rows_of[rollout].append(row)
    has_one_row_each = len(rollout_of_row) == rollouts
    sizes = _Sizes(batch, common)
    passes = []
    for chosen in order.view(count, -1).tolist():
        rows = [row for rollout in chosen for row in rows_of[rollout]]
        groups = len({rollout // group for rollout in chosen})
        passes.append([rows] if has_one_row_each else list(sizes.parts(rows, len(chosen), groups)))
    numbers = most([len(parts) for parts in passes])
    filled: list[list[list[int]]] = [
        parts + [[]] * (number - len(parts)) for parts, number in zip(passes, numbers, strict=True)
    ]
    row_counts = iter(most([max(1, len(rows)) for parts in filled for rows in parts]))

    def part_of(parts: list[list[int]], rows: list[int]) -> Tensors:
        size = next(row_counts)
        return _picked(batch, rows, size) if rows else _without_effect(batch, parts[0][0], size)

    return [[part_of(parts, rows) for rows in parts] for parts in filled]


class _Sizes:
    """The lengths of the rows of a batch."""

    def __init__(self, batch: Tensors, common: int | None) -> None:
        self._prompts = (batch["prompt_mask"].sum(dim=1) - (common or 0)).tolist()
        self._completions = batch["completion_mask"].sum(dim=1).tolist()
        numbers: dict[tuple[int, ...], int] = {}
        ids = (tuple(ids) for ids in batch["prompt_ids"].tolist())
        self._prompt_of_row = [numbers.setdefault(each, len(numbers)) for each in ids]
        self._is_shared = common is not None

    def parts(self, rows: Sequence[int], rollouts: int, groups: int) -> Iterator[list[int]]:
        """Split rows into parts that have no more tokens than one row for each of the rollouts,
        which belong to `groups` groups, if all rows had maximum length.

        Rows are sorted by prompt, because rows with the same prompt in a part share it. Shared
        prompts are counted twice over: computed once, and kept as keys and values for each row.
        """
        prompt, completion = max(self._prompts), max(self._completions)
        most_computed = (groups if self._is_shared else rollouts) * prompt + rollouts * completion
        most_kept = rollouts * (prompt + completion)
        part: list[int] = []
        for row in sorted(rows, key=lambda row: self._prompt_of_row[row]):
            computed, kept = self._tokens([*part, row])
            if part and (computed > most_computed or kept > most_kept):
                yield part
                part = []
            part.append(row)
        yield part

    def _tokens(self, rows: Sequence[int]) -> tuple[int, int]:
        """Return how many tokens of these rows, padded to the longest, are computed and kept."""
        prompt = max(self._prompts[row] for row in rows)
        completion = max(self._completions[row] for row in rows)
        kept = int(len(rows) * (prompt + completion))
        if not self._is_shared:
            return kept, kept
        prompts = len({self._prompt_of_row[row] for row in rows})
        return int(prompts * prompt + len(rows) * completion), kept


def _picked(batch: Tensors, rows: Sequence[int], size: int) -> Tensors:
    """Return these rows, without the columns that are padding in all of them. Copies of the first
    row that are not learned from make them `size` rows."""
    places = torch.tensor([*rows, *[rows[0]] * (size - len(rows))])
    picked = {name: value[places] if _has_rows(value) else value for name, value in batch.items()}
    for name in _LEARNED_FIELDS:
        if name in picked and len(rows) < size:
            picked[name][len(rows) :] = 0
    completion = picked["completion_mask"]
    width = max(1, int(completion.sum(dim=1).max()))
    start = int((picked["prompt_mask"].sum(dim=0) == 0).sum())

    def trim(name: str, value: Any) -> Any:
        if name in _PROMPT_FIELDS:
            return value[:, start:]
        if _has_rows(value) and value.ndim == 2 and value.shape[1] == completion.shape[1]:
            return value[:, :width]
        return value

    return {name: trim(name, value) for name, value in picked.items()}


def _without_effect(batch: Tensors, row: int, size: int) -> Tensors:
    """Return a part with the prompt and the first completion token of one row, `size` times, and
    zero loss."""
    picked = _picked(batch, [row], size)
    width = picked["completion_mask"].shape[1]

    def first(name: str, value: Any) -> Any:
        if name in _PROMPT_FIELDS or not _has_rows(value):
            return value
        kept = value[:, :1] if value.ndim == 2 and value.shape[1] == width else value
        return torch.zeros_like(kept) if name in _LEARNED_FIELDS else kept

    return {name: first(name, value) for name, value in picked.items()}


def _has_rows(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0


class Echo:
    """Computes the loss of tool results by the weights that the streams have. With coefficient 0,
    only their cross-entropy is measured."""

    def __init__(self, coefficient: float) -> None:
        self._coefficient = coefficient
        self._names: list[str] = []
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def carry(self, tensors: Tensors, streams: Sequence[Stream]) -> None:
        """Add the weights and the tool of each token to the tensors of these streams. Adds nothing
        if no rank has a tool result."""
        if all(each.targets is None for each in streams):
            return
        shape = tensors["completion_ids"].shape
        weights, tools = torch.zeros(shape), torch.zeros(shape, dtype=torch.long)
        for number, stream in enumerate(streams):
            if stream.targets is not None:
                weights[number, : len(stream.targets)] = torch.tensor(stream.targets)
            for body in stream.row.bodies:
                tools[number, body.start : body.stop] = 1 + self._number_of(body.tool)
        device = tensors["completion_ids"].device
        tensors[WEIGHTS], tensors[TOOLS] = weights.to(device), tools.to(device)

    def loss(self, logps: torch.Tensor, inputs: Tensors, scale: float) -> Any:
        """Return ECHO's loss of this pass; None without tool results or with coefficient 0.

        `scale` is the number of ranks times the optimizer steps per generation: gradients are
        averaged over ranks, and the weights are normalised over the whole generation.
        """
        if TOOLS not in inputs:
            return None
        self._measure(logps.detach(), inputs[TOOLS])
        if not self._coefficient:
            return None
        return -(logps * inputs[WEIGHTS]).sum() * (self._coefficient * scale)

    def take_sums(self) -> dict[str, float]:
        """Return the summed cross-entropy and the token count of each tool since the last call."""
        sums: dict[str, float] = {}
        for tool, (total, count) in self._sums.items():
            sums |= {f"env_loss/{tool}": total, f"env_tokens/{tool}": count}
        self._sums.clear()
        return sums

    def _measure(self, logps: torch.Tensor, tools: torch.Tensor) -> None:
        for number in sorted(set(tools.flatten().tolist())):
            if number:
                picked = logps[tools == number]
                sums = self._sums[self._names[number - 1]]
                sums[0] -= float(picked.sum())
                sums[1] += picked.numel()

    def _number_of(self, tool: str) -> int:
        if tool not in self._names:
            self._names.append(tool)
        return self._names.index(tool)
