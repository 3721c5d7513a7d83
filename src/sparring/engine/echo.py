"""Computes ECHO's loss from the log-probabilities of the update's forward pass.

The log-probabilities are those of the temperature-scaled softmax, as in the policy's loss, because
both losses share the forward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from sparring.contracts.training import Normalization
from sparring.learning.echo_weights import Totals, token_weight
from sparring.learning.rows import LearningRollout

WEIGHTS, TOOLS = "echo_weights", "echo_tools"


class Echo:
    """Adds the weight and the tool of each tool-result token to TRL's batches, and computes the
    loss of these tokens. With coefficient 0, only their cross-entropy is measured."""

    def __init__(self, coefficient: float, normalization: Normalization, longest: int) -> None:
        self._coefficient = coefficient
        self._normalization = normalization
        self._longest = longest
        self._names: list[str] = []
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def carry(
        self, batch: dict[str, Any], learned: Sequence[LearningRollout], totals: Totals
    ) -> None:
        """Add weights and tool numbers to TRL's batch, which begins with the rows of `learned`.

        `totals` are those of all ranks. Adds nothing if no rank has a tool result.
        """
        if not totals.tokens:
            return
        shape = batch["completion_ids"].shape
        weights, tools = torch.zeros(shape), torch.zeros(shape, dtype=torch.long)
        rows = [(row, each.observed_tokens) for each in learned for row in each.rows]
        for number, (row, in_rollout) in enumerate(rows):
            weight = token_weight(self._normalization, in_rollout, totals, self._longest)
            for body in row.bodies:
                weights[number, body.start : body.stop] = weight
                tools[number, body.start : body.stop] = 1 + self._number_of(body.tool)
        device = batch["completion_ids"].device
        batch[WEIGHTS], batch[TOOLS] = weights.to(device), tools.to(device)

    def loss(self, logps: torch.Tensor, inputs: dict[str, Any], scale: float) -> Any:
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
