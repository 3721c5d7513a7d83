"""Checks the metrics of each step, and warns or stops if the run cannot improve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import GuardStop
from sparring.contracts.training import Action, Guard, Guards

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Rule:
    """A metric, the condition under which it is bad, and the texts of the message."""

    metric: str
    is_bad: Callable[[float, float], bool]
    finding: str
    advice: str


# If several guards would stop the run, the first one does, so causes precede their effects.
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
        "a larger max_completion_length, or a smaller max_turns",
    ),
    "no_tool_call": _Rule(
        "call_rate",
        lambda value, limit: value <= limit,
        "{value:.0%} of the rollouts called a tool",
        "worked examples in the cases, or a warm start",
    ),
    "entropy": _Rule(
        "entropy",
        lambda value, limit: value < limit,
        "the mean entropy was {value:.2g}: the model always gives the same answer",
        "a lower learning_rate, a higher temperature, or beta > 0",
    ),
    "dead_groups": _Rule(
        "teaching_groups",
        lambda value, limit: value <= limit,
        "{value:.0%} of the groups had a gradient",
        "easier cases, more num_generations, or a warm start",
    ),
}
_UNSCORED = (
    "no group had two rollouts to learn from: they have no reward, or were cut off "
    "(guard dead_groups); "
    "`sparring rollout list` shows the reasons"
)
_CUT_OFF = (
    "all reward may come from rollouts that the token budget cut off, which are masked by "
    "default; try a larger max_completion_length"
)
_HINT_STEPS = 3
_HINT = (
    "no group had a gradient for {steps} steps, so nothing was learned; the guard dead_groups "
    "stops the run after"
)
_NOTHING_LEFT = (
    "every group was solved for {steps} steps: nothing is left to learn from these cases; stop "
    "the run, or add harder cases to the suite"
)


class GuardMonitor:
    """Counts the consecutive steps in which each guard's condition holds, and acts on them.

    All ranks check the same metrics, so they stop at the same step.
    """

    def __init__(
        self,
        guards: Guards,
        *,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._guards: dict[str, Guard] = {name: getattr(guards, name) for name in _RULES}
        self._warn = warn
        self._bad_steps: dict[str, int] = dict.fromkeys(_RULES, 0)
        self._warned: set[str] = set()
        self._solved_steps = 0
        self._waiting_steps = 0
        self._broken_gradients = (0, 0)  # the last step with one, and how many steps in a row

    def look(self, step: int, row: Row, steps: int = 1) -> None:
        """Check the metrics of the last `steps` steps; raise GuardStop if a guard stops the run.

        A row without groups is of a step that learns from rollouts of an earlier one. Such steps
        count with the next row that has groups; only a loss that is not finite acts at once.
        """
        has_groups = "groups" in row
        covered = self._waiting_steps + steps
        self._waiting_steps = 0 if has_groups else covered
        if has_groups:
            self._warn_if_solved(step, row, covered)
            self._warn_if_truncated(step, row)
        for name, guard in self._guards.items():
            value = row.get(_RULES[name].metric)
            if guard.action == "off" or value is None or not (has_groups or name == "not_finite"):
                continue
            if not self._is_bad(name, float(value), guard, row):
                self._bad_steps[name] = 0
                self._warned.discard(name)
                if name == "dead_groups":
                    self._warned.discard(_HINT)
                continue
            self._bad_steps[name] += steps if name == "not_finite" else covered
            if self._bad_steps[name] >= guard.steps:
                self._act(name, guard, step, row)
            elif name == "dead_groups" and guard.action == "stop":
                self._hint(guard, step)

    @property
    def on_broken_gradients(self) -> Action:
        """The action of the guard `not_finite`."""
        return self._guards["not_finite"].action

    def gradient_is_broken(self, step: int) -> None:
        """Warn that a step is skipped because its gradient is not finite, or raise GuardStop after
        `steps` of these in a row."""
        problem = f"step {step}: the gradient is not finite"
        last_step, in_a_row = self._broken_gradients
        in_a_row = in_a_row + 1 if last_step == step - 1 else 1
        self._broken_gradients = (step, in_a_row)
        guard = self._guards["not_finite"]
        if guard.action == "stop" and in_a_row >= guard.steps:
            advice = _RULES["not_finite"].advice
            raise GuardStop(f"{problem}; try {advice} in a new run", guard="not_finite")
        self._warn(f"{problem}; the step is skipped")

    def _is_bad(self, name: str, value: float, guard: Guard, row: Row) -> bool:
        if name == "dead_groups" and _is_all_solved(row):
            return False  # `_warn_if_solved` reports this case
        if name == "entropy" and not row.get("teaching_groups", 1) and not _is_mostly_wrong(row):
            return False  # the model's one answer is right, or nothing is scored
        return _RULES[name].is_bad(value, guard.limit)

    def _warn_if_solved(self, step: int, row: Row, steps: int) -> None:
        guard = self._guards["dead_groups"]
        if guard.action == "off" or not _is_all_solved(row):
            self._solved_steps = 0
            return
        self._solved_steps += steps
        if self._solved_steps - steps < guard.steps <= self._solved_steps:
            self._warn(f"step {step}: {_NOTHING_LEFT.format(steps=self._solved_steps)}")

    def _warn_if_truncated(self, step: int, row: Row) -> None:
        """Warn once if all groups failed and the step's reward is low enough to come from truncated
        rollouts alone, which are masked by default."""
        has_all_failed = row.get("dead/failed", 0) >= row.get("groups", math.inf)
        rewards = row.get("reward", 0) * (1 - row.get("unscored", 0))
        has_reward = 0 < rewards <= row.get("truncated", 0) * row.get("reward_max", 1)
        if has_all_failed and has_reward and _CUT_OFF not in self._warned:
            self._warned.add(_CUT_OFF)
            self._warn(f"step {step}: {_CUT_OFF}")

    def _hint(self, guard: Guard, step: int) -> None:
        """Say that nothing is learned, once, some steps before the guard acts."""
        dead_steps = self._bad_steps["dead_groups"]
        if dead_steps >= _HINT_STEPS and _HINT not in self._warned:
            self._warned.add(_HINT)
            advice = _RULES["dead_groups"].advice
            self._warn(f"step {step}: {_HINT.format(steps=dead_steps)} {guard.steps}; try {advice}")

    def _act(self, name: str, guard: Guard, step: int, row: Row) -> None:
        rule, bad_steps = _RULES[name], self._bad_steps[name]
        problem = f"{rule.finding.format(value=float(row[rule.metric]))}"
        problem += f", for {bad_steps} steps in a row" if bad_steps > 1 else ""
        problem += f" (guard {name}); try {rule.advice}"
        if name == "dead_groups" and _is_all_unscored(row):
            problem = _UNSCORED
        if guard.action == "stop":
            raise GuardStop(
                f"step {step}: {problem}. To continue anyway, set guards.{name}=warn in a new run",
                guard=name,
            )
        if name not in self._warned:
            self._warned.add(name)
            self._warn(f"step {step}: {problem}")


def _is_all_solved(row: Row) -> bool:
    return bool(row.get("dead/solved", 0) >= row.get("groups", math.inf))


def _is_mostly_wrong(row: Row) -> bool:
    """Whether more groups are scored and not solved than are solved."""
    solved = row.get("dead/solved", 0)
    return bool(row.get("groups", 0) - row.get("dead/unscored", 0) - solved > solved)


def _is_all_unscored(row: Row) -> bool:
    return bool(row.get("dead/unscored", 0) >= row.get("groups", math.inf))
