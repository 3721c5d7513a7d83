"""Declares measures: functions, synchronous or async, that return a verdict on a rollout."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import overload

from sparring.contracts.errors import MeasureError
from sparring.contracts.rollouts import Rollout
from sparring.contracts.verdicts import Verdict

JudgeResult = Verdict | bool | float
Judge = Callable[[Rollout], JudgeResult | Awaitable[JudgeResult]]


@dataclass(frozen=True, slots=True)
class Measure:
    """A named judge.

    `low` and `high` declare the range of its scores, which are rescaled to 0…1; a rescaled
    score of at least `threshold` counts as correct. `seconds` overrides the run's deadline.
    `is_side_condition` marks a measure that worthless answers may pass, such as a format, a length
    or no failed tool; the audit does not report that as a fault.
    """

    name: str
    judge: Judge
    threshold: float = 1.0
    low: float = 0.0
    high: float = 1.0
    seconds: float | None = None
    is_side_condition: bool = False

    def __post_init__(self) -> None:
        if not self.high > self.low:
            raise MeasureError(
                f"measure {self.name}: the upper end of the range must be greater than "
                f"the lower end, got {self.low}…{self.high}"
            )

    def __call__(self, rollout: Rollout) -> JudgeResult | Awaitable[JudgeResult]:
        """Call the judge directly, without deadline and rescaling, for unit tests."""
        return self.judge(rollout)


@overload
def measure(judge: Judge) -> Measure: ...


@overload
def measure(
    *,
    name: str | None = None,
    threshold: float = 1.0,
    range: tuple[float, float] = (0.0, 1.0),
    seconds: float | None = None,
    side_condition: bool = False,
) -> Callable[[Judge], Measure]: ...


def measure(
    judge: Judge | None = None,
    *,
    name: str | None = None,
    threshold: float = 1.0,
    range: tuple[float, float] = (0.0, 1.0),
    seconds: float | None = None,
    side_condition: bool = False,
) -> Measure | Callable[[Judge], Measure]:
    """Turn a function of a rollout into a measure, directly or as a decorator with options.

    @measure
    def polite(rollout):
        if "please" in rollout.answer:
            return passed("says please")
        return failed("does not say please")
    """

    def declare(function: Judge) -> Measure:
        if len(inspect.signature(function).parameters) != 1:
            raise MeasureError(
                f"measure {function.__name__} must take one argument, the rollout, which has "
                "answer, expected, messages, tool_calls, world and case"
            )
        low, high = range
        return Measure(
            name or function.__name__, function, threshold, low, high, seconds, side_condition
        )

    return declare if judge is None else declare(judge)
