"""Verdicts: the decisions of measures about rollouts, each with a reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """The kinds of verdict."""

    PASSED = "passed"
    FAILED = "failed"
    SCORED = "scored"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One measure's decision about one rollout. `score` is None only for CANNOT_TELL."""

    outcome: Outcome
    reason: str
    score: float | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with the name of its measure and the measure's weight in the reward.

    `weight` is 0 for a measure that does not contribute to the reward. `cause` describes the
    failure of a measure that raised or exceeded its deadline.
    """

    measure: str
    verdict: Verdict
    weight: float
    threshold: float = 1.0
    cause: str | None = None
    has_timed_out: bool = False

    @property
    def is_correct(self) -> bool | None:
        """Whether the score reaches the threshold; None if the measure cannot tell."""
        if self.verdict.score is None:
            return None
        return self.verdict.score >= self.threshold


def passed(reason: str) -> Verdict:
    """Return the verdict that a rollout passes the measure."""
    return Verdict(Outcome.PASSED, _checked(reason), 1.0)


def failed(reason: str) -> Verdict:
    """Return the verdict that a rollout fails the measure."""
    return Verdict(Outcome.FAILED, _checked(reason), 0.0)


def scored(score: float, reason: str) -> Verdict:
    """Return a verdict with a score: between 0 and 1, or within the measure's `range`."""
    if isinstance(score, bool) or not math.isfinite(score):
        raise ValueError(f"a score must be a finite number, not {score!r}")
    return Verdict(Outcome.SCORED, _checked(reason), float(score))


def cannot_tell(reason: str) -> Verdict:
    """Return the verdict that the measure cannot decide: the rollout stays unscored."""
    return Verdict(Outcome.CANNOT_TELL, _checked(reason), None)


def _checked(reason: str) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError("a verdict needs a reason: say why in a few words")
    return reason
