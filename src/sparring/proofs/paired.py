"""The difference between two players of the same cases, with one interval that decides.

The case is the unit: rollouts of one case resemble each other, so a case counts once, as the
difference of its two mean rewards, and cases are what the bootstrap draws from. Each drawn mean
is divided by its own standard error (a bootstrap-t), which keeps the interval right where
differences are skewed, as they are when hardly anything is left to fail.

Half a case is added on either side, of the size of the larger differences, as Agresti and Min
add half a pair to the cells of a 2×2 table (2005, doi:10.1002/sim.1781): a suite in which few
cases came out differently says little about those that it does not hold. The fewer did, the more
is added. Simulated in benchmarks/proof_calibration.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

_TAIL = 0.025
_DRAWS = 4_000
_AT_ONCE = 4_000_000
_POWER = 0.8
_ADDED = 0.5  # cases on either side, and up to twice as many where few differ
_FEW = 8
_LEAST = 6


class Standing(StrEnum):
    """What an interval says of a difference."""

    BETTER = "better"
    NOT_SHOWN = "not shown"
    WORSE = "worse"


@dataclass(frozen=True, slots=True)
class Difference:
    """After minus before, over cases that both have played.

    `differing` is how many cases came out differently. `smallest_effect` is what these cases
    would have shown four times out of five. `mcnemar` is the exact p-value, where there is one
    passed-or-failed rollout per case. `chances` is over how many looks the error was shared out.
    """

    before: float
    after: float
    value: float
    low: float
    high: float
    cases: int
    differing: int
    smallest_effect: float
    chances: int = 1
    mcnemar: float | None = None

    @property
    def standing(self) -> Standing:
        """Five flips to one side are luck once in sixteen times, whatever a bootstrap says."""
        if self.differing < _LEAST:
            return Standing.NOT_SHOWN
        if self.low > 0:
            return Standing.BETTER
        return Standing.WORSE if self.high < 0 else Standing.NOT_SHOWN


def paired_difference(
    before: Mapping[str, float],
    after: Mapping[str, float],
    *,
    chances: int = 1,
    is_single: bool = False,
    seed: int = 0,
) -> Difference | None:
    """By case: mean rewards of the one and of the other; None where they share no case.

    `chances` is among how many candidates `after` was picked on these very cases: the best of
    ten looks good by luck alone, so each gets a tenth of the error (Bonferroni). Where each case
    was played a `single` time, and passed or failed, the exact test is given as well.
    """
    shared = [case for case in before if case in after]
    if not shared:
        return None
    first = np.array([before[case] for case in shared])
    second = np.array([after[case] for case in shared])
    differences = second - first
    # Turned so that it is a gain: the other way round must give the same, with signs changed.
    is_loss = (differences.mean(), (differences**3).mean()) < (0.0, 0.0)
    turned = -differences if is_loss else differences
    low, high = _interval(turned, _TAIL / chances, np.random.default_rng(seed))
    low, high = (-high, -low) if is_loss else (low, high)
    return Difference(
        before=float(first.mean()),
        after=float(second.mean()),
        value=float(differences.mean()),
        low=max(-1.0, low),
        high=min(1.0, high),
        cases=len(shared),
        differing=int(np.count_nonzero(differences)),
        smallest_effect=smallest_effect(differences, chances=chances),
        chances=chances,
        mcnemar=_mcnemar(first, second) if is_single else None,
    )


def smallest_effect(differences: NDArray[Any], *, chances: int = 1) -> float:
    """What would be shown with a power of 80 %, if it were there.

    An effect makes cases differ that did not before, so the variance grows with it: the answer
    is the root of effect² = z²(variance + size·effect − effect²) / cases.
    """
    sample = _Augmented.of(differences)
    mean = sample.weights @ sample.values / sample.total
    variance = max(sample.weights @ sample.values**2 / sample.total - mean**2, 0.0)
    variance += sample.floor
    degrees = max(len(differences) - 1, 1)
    z = special.stdtrit(degrees, 1 - _TAIL / chances) + special.stdtrit(degrees, _POWER)
    square = float(z) ** 2
    linear = square * sample.size
    quadratic = sample.total + square
    found = linear + math.sqrt(linear**2 + 4 * quadratic * square * variance)
    return min(1.0, found / (2 * quadratic))


@dataclass(frozen=True, slots=True)
class _Augmented:
    """The differences that there are, how often each is, and what was added: how large, and how
    many on either side."""

    values: NDArray[Any]
    weights: NDArray[Any]
    size: float
    added: float

    @property
    def total(self) -> float:
        return float(self.weights.sum())

    @property
    def floor(self) -> float:
        """The variance that is never gone below: a draw without any difference is not certain."""
        return 2 * self.added * self.size**2 / self.total

    @classmethod
    def of(cls, differences: NDArray[Any]) -> _Augmented:
        values, counts = np.unique(np.round(differences, 12), return_counts=True)
        there = differences[np.abs(differences) > 1e-12]
        known = min(1.0, len(there) / _FEW)
        size = _large_size(there) ** known  # of few, nearer to a whole flip
        added = _ADDED * (2 - known)
        return cls(
            np.concatenate([values, [size, -size]]),
            np.concatenate([counts.astype(float), [added, added]]),
            size,
            added,
        )


def _large_size(differences: NDArray[Any]) -> float:
    """Each difference weighs by its square: it is the large ones that an interval is about."""
    if not len(differences):
        return 1.0
    squares = differences**2
    return float(np.sqrt((squares**2).sum() / squares.sum()))


def _interval(
    differences: NDArray[Any], tail: float, random: np.random.Generator
) -> tuple[float, float]:
    sample = _Augmented.of(differences)
    total = sample.total
    drawn = round(total)
    means, squares = _drawn(sample, drawn, max(_DRAWS, math.ceil(25 / tail)), random)
    floor = sample.floor
    mean = float(sample.weights @ sample.values / total)
    square = float(sample.weights @ sample.values**2 / total)
    error = math.sqrt((square - mean**2 + floor) / total)
    studentised = (means - mean) / np.sqrt((np.maximum(squares - means**2, 0) + floor) / total)
    low, high = np.quantile(studentised, [tail, 1 - tail])
    return mean - float(high) * error, mean - float(low) * error


def _drawn(
    sample: _Augmented, size: int, draws: int, random: np.random.Generator
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Means, and means of squares, of samples drawn again; a part at a time, for memory's sake."""
    means, squares = [], []
    part = max(1, _AT_ONCE // len(sample.values))
    for start in range(0, draws, part):
        wanted = min(part, draws - start)
        counts = random.multinomial(size, sample.weights / sample.total, size=wanted)
        means.append(counts @ sample.values / size)
        squares.append(counts @ sample.values**2 / size)
    return np.concatenate(means), np.concatenate(squares)


def _mcnemar(before: NDArray[Any], after: NDArray[Any]) -> float | None:
    if not np.isin(np.concatenate([before, after]), (0.0, 1.0)).all():
        return None
    won = int(((before == 0) & (after == 1)).sum())
    lost = int(((before == 1) & (after == 0)).sum())
    if not won + lost:
        return 1.0
    return float(min(1.0, 2 * special.bdtr(min(won, lost), won + lost, 0.5)))
