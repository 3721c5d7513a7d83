"""Watching a training, and saying when it cannot get anywhere, with the cause and the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import GuardStop
from sparring.contracts.guards import Action, Guard, Guards

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Rule:
    """When a figure is bad, and what to tell of it."""

    figure: str
    is_bad: Callable[[float, float], bool]
    told: str
    advice: str


_RULES: Mapping[str, _Rule] = {
    "no_tool_call": _Rule(
        "call_rate",
        lambda value, limit: value <= limit,
        "{share:.0%} of the rollouts called a tool",
        "worked example turns in the cases to copy from, or a warm start",
    ),
    "dead_groups": _Rule(
        "live_groups",
        lambda value, limit: value <= limit,
        "{share:.0%} of the groups had rewards that differ",
        "easier cases, more num_generations, or a warm start",
    ),
    "entropy": _Rule(
        "entropy",
        lambda value, limit: value < limit,
        "the mean entropy was {value:.2g}: the model always says the same",
        "a lower learning_rate, a higher temperature, or beta > 0",
    ),
    "truncated": _Rule(
        "truncated",
        lambda value, limit: value > limit,
        "{share:.0%} of the rollouts were cut off by the token budget",
        "a larger max_completion_length, or fewer tool_rounds",
    ),
    "not_finite": _Rule(
        "loss",
        lambda value, _: not math.isfinite(value),
        "the loss was {value}",
        "a lower learning_rate or max_grad_norm, or dtype='float32'",
    ),
}
_NOTHING_LEFT = (
    "every group was solved in the last {steps} steps: nothing is left to learn from these cases; "
    "stop here, or add harder ones"
)


class Watch:
    """Counts how long each condition has held. All ranks see the same figures, and so come to
    the same end."""

    def __init__(
        self,
        guards: Guards,
        *,
        has_tools: bool,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._guards: dict[str, Guard] = {name: getattr(guards, name) for name in _RULES}
        self._warn = warn
        self._held: dict[str, int] = dict.fromkeys(_RULES, 0)
        self._is_warned: set[str] = set()
        if not has_tools:
            del self._guards["no_tool_call"]

    def look(self, step: int, row: Row, steps: int = 1) -> None:
        """Figures of the last `steps` steps; raises where a guard stops the training."""
        for name, guard in self._guards.items():
            value = row.get(_RULES[name].figure)
            if guard.action == "off" or value is None:
                continue
            if not _RULES[name].is_bad(value, guard.limit):
                self._held[name] = 0
                self._is_warned.discard(name)
                continue
            self._held[name] += steps
            if self._held[name] >= guard.steps:
                self._act(name, guard, step, row)

    @property
    def on_broken_gradients(self) -> Action:
        return self._guards["not_finite"].action

    def gradient_is_broken(self, step: int) -> None:
        """A gradient that is not finite must not reach the weights."""
        told = f"step {step}: the gradient is not finite"
        if self.on_broken_gradients == "stop":
            raise GuardStop(f"{told}; try {_RULES['not_finite'].advice} in a new run")
        self._warn(f"{told}; the step is skipped")

    def _act(self, name: str, guard: Guard, step: int, row: Row) -> None:
        rule, held = _RULES[name], self._held[name]
        value = float(row[rule.figure])
        told = f"step {step}: {rule.told.format(value=value, share=value)}"
        told += f", for {held} steps in a row" if held > 1 else ""
        told += f" (guard {name}); try {rule.advice}"
        action = guard.action
        if name == "dead_groups" and _is_all_solved(row):
            action, told = "warn", f"step {step}: {_NOTHING_LEFT.format(steps=held)}"
        if action == "stop":
            raise GuardStop(f"{told}. To go on all the same, set guards.{name}=warn")
        if name not in self._is_warned:
            self._is_warned.add(name)
            self._warn(told)


def _is_all_solved(row: Row) -> bool:
    return bool(row.get("dead/solved", 0) >= row.get("groups", math.inf))
