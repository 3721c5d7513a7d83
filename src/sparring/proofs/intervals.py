"""Confidence intervals of shares of cases."""

from __future__ import annotations

import math

from sparring.contracts.summaries import Share

_Z95 = 1.959963984540054
_MIN_VARIANCE = 1e-12  # less is rounding


def share_of_cases(shares: list[float], *, rollouts: int | None = None) -> Share | None:
    """Return the mean of shares, one per case (the share of its rollouts that passed).

    The interval treats the case as the unit: rollouts of one case are correlated, so counting each
    as independent evidence would make it too narrow. It is never narrower than that of `rollouts`
    independent rollouts. With one rollout per case, it is Wilson's interval. Returns None without
    cases.
    """
    count = len(shares)
    if count == 0:
        return None
    mean = sum(shares) / count
    # The variance of shares is at most a Bernoulli variable's, and smaller with several rollouts
    # per case. The effective count is the number of Bernoulli trials whose mean has the same
    # variance as the mean of the shares.
    variance = sum((share - mean) ** 2 for share in shares) / max(count - 1, 1)
    bernoulli = mean * (1 - mean) * count / max(count - 1, 1)
    can_estimate = variance > _MIN_VARIANCE and bernoulli > 0
    effective = count * bernoulli / variance if can_estimate else float(count)
    return _wilson(mean, effective if rollouts is None else min(effective, rollouts), count)


def _wilson(mean: float, effective: float, count: int) -> Share:
    square = _Z95**2
    middle = (mean + square / (2 * effective)) / (1 + square / effective)
    spread = (
        _Z95
        / (1 + square / effective)
        * math.sqrt(mean * (1 - mean) / effective + square / (4 * effective**2))
    )
    return Share(mean, max(0.0, middle - spread), min(1.0, middle + spread), count)
