"""Computes ECHO's loss from the log-probabilities of the update's forward pass.

The log-probabilities are those of the temperature-scaled softmax, as in the policy's loss, because
both losses share the forward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from sparring.engine.tensors import Tensors
from sparring.learning.engine import Stream

WEIGHTS, TOOLS = "echo_weights", "echo_tools"


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
