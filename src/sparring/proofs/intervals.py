"""Confidence intervals of shares of cases."""

from __future__ import annotations

import math
from dataclasses import dataclass

_Z95 = 1.959963984540054
_MAX_EFFECTIVE = 1e12  # keeps the effective count finite if shares hardly differ


@dataclass(frozen=True, slots=True)
class Share:
    """A share of cases with its 95 % interval. `count` is the number of cases."""

    value: float
    low: float
    high: float
    count: int


def share_of_cases(shares: list[float]) -> Share | None:
    """Return the mean of per-case shares, with an interval that treats the case as the unit.

    Rollouts of one case are correlated, so counting each as independent evidence would make the
    interval too narrow. With one rollout per case this is Wilson's interval.
    Returns None without cases.
    """
    count = len(shares)
    if count == 0:
        return None
    mean = sum(shares) / count
    # The variance of shares is at most a Bernoulli variable's, and smaller with several rollouts
    # per case. The effective count is the sample size at which a Bernoulli mean has the observed
    # variance.
    variance = sum((share - mean) ** 2 for share in shares) / max(count - 1, 1)
    bernoulli = mean * (1 - mean) * count / max(count - 1, 1)
    effective = count * bernoulli / variance if variance > 0 and bernoulli > 0 else float(count)
    return _wilson(mean, min(effective, _MAX_EFFECTIVE), count)


def _wilson(mean: float, effective: float, count: int) -> Share:
    square = _Z95**2
    middle = (mean + square / (2 * effective)) / (1 + square / effective)
    spread = (
        _Z95
        / (1 + square / effective)
        * math.sqrt(mean * (1 - mean) / effective + square / (4 * effective**2))
    )
    return Share(mean, max(0.0, middle - spread), min(1.0, middle + spread), count)
