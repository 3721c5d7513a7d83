"""Intervals around a share."""

from __future__ import annotations

import math
from dataclasses import dataclass

_Z95 = 1.959963984540054
_MOST = 1e12  # shares that hardly differ are worth many cases, not infinitely many


@dataclass(frozen=True, slots=True)
class Share:
    """A share of cases with its 95 % interval. `count` is how many cases stand behind it."""

    value: float
    low: float
    high: float
    count: int


def share_of_cases(shares: list[float]) -> Share | None:
    """The mean of per-case shares, with an interval that treats the case as the unit.

    Rollouts of one case resemble each other, so counting each as evidence of its own would
    make the interval too narrow. With one rollout per case this is Wilson's interval.
    """
    count = len(shares)
    if count == 0:
        return None
    mean = sum(shares) / count
    # Between cases, a share varies at most as a coin does; several rollouts per case make it
    # less. The effective number of cases is the one at which a coin would vary as seen.
    variance = sum((share - mean) ** 2 for share in shares) / max(count - 1, 1)
    coin = mean * (1 - mean) * count / max(count - 1, 1)
    effective = count * coin / variance if variance > 0 and coin > 0 else float(count)
    return _wilson(mean, min(effective, _MOST), count)


def _wilson(mean: float, effective: float, count: int) -> Share:
    square = _Z95**2
    middle = (mean + square / (2 * effective)) / (1 + square / effective)
    spread = (
        _Z95
        / (1 + square / effective)
        * math.sqrt(mean * (1 - mean) / effective + square / (4 * effective**2))
    )
    return Share(mean, max(0.0, middle - spread), min(1.0, middle + spread), count)
