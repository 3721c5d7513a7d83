"""What a measure says of a rollout: an outcome, always with a reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SCORED = "scored"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One measure's word on one rollout. `score` is None only where it cannot tell."""

    outcome: Outcome
    reason: str
    score: float | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with the measure it came from and its share in the reward.

    `weight` is 0 for a measure that is shown but not rewarded. `cause` says what broke
    where the measure itself raised or ran out of time.
    """

    measure: str
    verdict: Verdict
    weight: float
    threshold: float = 1.0
    cause: str | None = None

    @property
    def is_correct(self) -> bool | None:
        """Passed, or scored at least the threshold; None where it cannot tell."""
        if self.verdict.score is None:
            return None
        return self.verdict.score >= self.threshold


def passed(reason: str) -> Verdict:
    """The rollout did what this measure asks for."""
    return Verdict(Outcome.PASSED, _told(reason), 1.0)


def failed(reason: str) -> Verdict:
    """The rollout did not do what this measure asks for."""
    return Verdict(Outcome.FAILED, _told(reason), 0.0)


def scored(score: float, reason: str) -> Verdict:
    """A share between 0 and 1; declare a range on the measure to use another scale."""
    if isinstance(score, bool) or not math.isfinite(score):
        raise ValueError(f"a score must be a finite number, not {score!r}")
    return Verdict(Outcome.SCORED, _told(reason), float(score))


def cannot_tell(reason: str) -> Verdict:
    """No judgement: the rollout stays unscored rather than counting as wrong."""
    return Verdict(Outcome.CANNOT_TELL, _told(reason), None)


def _told(reason: str) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError("a verdict needs a reason: say in a few words why")
    return reason
