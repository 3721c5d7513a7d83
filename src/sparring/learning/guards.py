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


# The first that holds is the one that is told: what lies behind comes before what follows from it.
_RULES: Mapping[str, _Rule] = {
    "not_finite": _Rule(
        "loss",
        lambda value, _: not math.isfinite(value),
        "the loss was {value}",
        "a lower learning_rate or max_grad_norm, or dtype='float32'",
    ),
    "truncated": _Rule(
        "truncated",
        lambda value, limit: value > limit,
        "{value:.0%} of the rollouts were cut off by the token budget",
        "a larger max_completion_length, or fewer tool_rounds",
    ),
    "no_tool_call": _Rule(
        "call_rate",
        lambda value, limit: value <= limit,
        "{value:.0%} of the rollouts called a tool",
        "worked example turns in the cases to copy from, or a warm start",
    ),
    "dead_groups": _Rule(
        "teaching_groups",
        lambda value, limit: value <= limit,
        "{value:.0%} of the groups had rewards that differ",
        "easier cases, more num_generations, or a warm start",
    ),
    "entropy": _Rule(
        "entropy",
        lambda value, limit: value < limit,
        "the mean entropy was {value:.2g}: the model always says the same",
        "a lower learning_rate, a higher temperature, or beta > 0",
    ),
}
_UNSCORED = (
    "hardly any rollout had a reward, so that no group could be compared (guard dead_groups); see "
    "why in `sparring rollout list`"
)
_NOTHING_LEFT = (
    "every group was solved for {steps} steps: nothing is left to learn from these cases; stop "
    "here, or add harder ones"
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
        self._solved = 0
        if not has_tools:
            del self._guards["no_tool_call"]

    def look(self, step: int, row: Row, steps: int = 1) -> None:
        """Figures of the last `steps` steps; raises where a guard stops the training."""
        self._note_what_is_solved(step, row, steps)
        for name, guard in self._guards.items():
            value = row.get(_RULES[name].figure)
            if guard.action == "off" or value is None:
                continue
            if not self._is_bad(name, float(value), guard, row):
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

    def _is_bad(self, name: str, value: float, guard: Guard, row: Row) -> bool:
        if name == "dead_groups" and _is_all_solved(row):
            return False  # nothing is wrong
        if name == "entropy" and not row.get("teaching_groups", 1):
            return False  # there are no tokens that it is the entropy of
        return _RULES[name].is_bad(value, guard.limit)

    def _note_what_is_solved(self, step: int, row: Row, steps: int) -> None:
        guard = self._guards["dead_groups"]
        if guard.action == "off" or not _is_all_solved(row):
            self._solved = 0
            return
        self._solved += steps
        if self._solved - steps < guard.steps <= self._solved:
            self._warn(f"step {step}: {_NOTHING_LEFT.format(steps=self._solved)}")

    def _act(self, name: str, guard: Guard, step: int, row: Row) -> None:
        rule, held = _RULES[name], self._held[name]
        told = f"{rule.told.format(value=float(row[rule.figure]))}"
        told += f", for {held} steps in a row" if held > 1 else ""
        told += f" (guard {name}); try {rule.advice}"
        if name == "dead_groups" and _is_all_unscored(row):
            told = _UNSCORED
        if guard.action == "stop":
            raise GuardStop(
                f"step {step}: {told}. To go on all the same, set guards.{name}=warn in a new run"
            )
        if name not in self._is_warned:
            self._is_warned.add(name)
            self._warn(f"step {step}: {told}")


def _is_all_solved(row: Row) -> bool:
    return bool(row.get("dead/solved", 0) >= row.get("groups", math.inf))


def _is_all_unscored(row: Row) -> bool:
    return bool(row.get("dead/unscored", 0) >= row.get("groups", math.inf))
