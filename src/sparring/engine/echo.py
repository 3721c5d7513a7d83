"""ECHO's loss, from the log-probabilities that the update computes anyway.

They are those of the temperature-scaled softmax, as the policy's are: one forward pass has
one temperature.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from sparring.contracts.training import Normalization
from sparring.learning.rows import LearningRow
from sparring.learning.world_model import Totals, weight_of_a_token

WEIGHTS, TOOLS = "echo_weights", "echo_tools"


class Echo:
    """Carries weights and tools of observed tokens beside TRL's rows, and turns them into a
    loss. With coefficient 0 it only measures."""

    def __init__(self, coefficient: float, normalization: Normalization, longest: int) -> None:
        self._coefficient = coefficient
        self._normalization = normalization
        self._longest = longest
        self._names: list[str] = []
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def carry(self, batch: dict[str, Any], rows: Sequence[LearningRow], totals: Totals) -> None:
        """Add what `loss` needs to a batch of TRL's, whose rows these are; nothing where no rank
        has a tool result."""
        if not totals.tokens:
            return
        shape = batch["completion_ids"].shape
        weights, tools = torch.zeros(shape), torch.zeros(shape, dtype=torch.long)
        for number, row in enumerate(rows):
            weight = weight_of_a_token(
                self._normalization, row.observed_tokens, totals, self._longest
            )
            for body in row.bodies:
                weights[number, body.start : body.stop] = weight
                tools[number, body.start : body.stop] = 1 + self._number_of(body.tool)
        device = batch["completion_ids"].device
        batch[WEIGHTS], batch[TOOLS] = weights.to(device), tools.to(device)

    def loss(self, logps: torch.Tensor, inputs: dict[str, Any], scale: float) -> Any:
        """What to add to the loss of this pass; None where there is nothing to add. `scale`
        undoes the mean over ranks, as the weights count the tokens of all of them."""
        if TOOLS not in inputs:
            return None
        self._measure(logps.detach(), inputs[TOOLS])
        if not self._coefficient:
            return None
        return -(logps * inputs[WEIGHTS]).sum() * (self._coefficient * scale)

    def take_sums(self) -> dict[str, float]:
        """Cross-entropy and tokens of each tool since this was last asked."""
        taken: dict[str, float] = {}
        for tool, (total, count) in self._sums.items():
            taken |= {f"env_loss/{tool}": total, f"env_tokens/{tool}": count}
        self._sums.clear()
        return taken

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
