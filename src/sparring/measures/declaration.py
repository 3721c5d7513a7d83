"""Declaring a measure: a plain or async function of a rollout that returns a verdict."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import overload

from sparring.contracts.errors import MeasureError
from sparring.contracts.rollouts import Rollout
from sparring.contracts.verdicts import Verdict

Word = Verdict | bool | float
Judge = Callable[[Rollout], Word | Awaitable[Word]]


@dataclass(frozen=True, slots=True)
class Measure:
    """A judge with a name.

    `low` and `high` declare the scale of its scores, which are brought to 0…1; a score
    counts as correct from `threshold` (on the scale of 0…1) upwards. `seconds` is its
    deadline, where the run's own is not right for it. A side condition (a format, a length, no
    failed tool) may be met by an answer that says nothing; the audit then does not object to it.
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
                f"measure {self.name}: the range must rise, not {self.low}…{self.high}"
            )

    def __call__(self, rollout: Rollout) -> Word | Awaitable[Word]:
        """Judge directly, as in a unit test of the measure."""
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
    """Turn a function of a rollout into a measure.

    @measure
    def polite(rollout):
        if "please" in rollout.answer:
            return passed("says please")
        return failed("does not say please")
    """

    def declare(function: Judge) -> Measure:
        if len(inspect.signature(function).parameters) != 1:
            raise MeasureError(
                f"measure {function.__name__} must take one argument, the rollout; what it needs "
                "is on it: answer, expected, messages, tool_calls, world, case"
            )
        low, high = range
        return Measure(
            name or function.__name__, function, threshold, low, high, seconds, side_condition
        )

    return declare if judge is None else declare(judge)
