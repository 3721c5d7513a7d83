"""The paired difference between two models on the same cases, with its confidence interval.

The case is the unit: rollouts of one case are correlated, so a case counts once, as the
difference of its two mean rewards, and the bootstrap draws cases. Each drawn mean is divided by
its own standard error (a bootstrap-t), which keeps the coverage correct for skewed differences,
which occur when almost every case passes.

Half a pseudo-case of each sign is added, of the size of the larger differences, as Agresti and Min
add half a pair to the cells of a 2×2 table (2005, doi:10.1002/sim.1781). A sample in which few
cases differ carries little information about the other cases, so if fewer than eight differ, up to
one pseudo-case of each sign is added. benchmarks/proof_calibration.py simulates the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sparring.contracts.summaries import Difference

_TAIL = 0.025
_DRAWS = 4_000
_CHUNK = 4_000_000
_POWER = 0.8
_ADDED = 0.5  # pseudo-cases of each sign; up to twice as many if few cases differ
_FEW = 8
ROUNDING = 1e-12  # smaller differences of means are due to the order of summation


def paired_difference(
    before: Mapping[str, float],
    after: Mapping[str, float],
    *,
    chances: int = 1,
    is_single: bool = False,
    seed: int = 0,
) -> Difference | None:
    """Compare mean rewards by case; None if the two sides share no case.

    `chances` is the number of candidates that `after` was picked from on the same cases: the best
    of ten looks good by luck alone, so each gets a tenth of the error rate (Bonferroni). With
    `is_single`, each case was played once, and McNemar's exact test is added for pass/fail rewards.
    """
    shared = [case for case in before if case in after]
    if not shared:
        return None
    first = np.array([before[case] for case in shared])
    second = np.array([after[case] for case in shared])
    differences = second - first
    # A loss is computed as a gain, so that swapping the sides only changes the signs.
    is_loss = (differences.mean(), (differences**3).mean()) < (0.0, 0.0)
    gains = -differences if is_loss else differences
    low, high = _interval(gains, _TAIL / chances, np.random.default_rng(seed))
    low, high = (-high, -low) if is_loss else (low, high)
    most = max(1.0, float(np.abs(differences).max()))  # reward functions may leave 0 … 1
    return Difference(
        before=float(first.mean()),
        after=float(second.mean()),
        value=float(differences.mean()),
        low=max(-most, low),
        high=min(most, high),
        cases=len(shared),
        differing=int(np.count_nonzero(np.abs(differences) > ROUNDING)),
        smallest_effect=min(most, smallest_effect(differences, chances=chances)),
        chances=chances,
        mcnemar=_mcnemar(first, second) if is_single else None,
    )


def smallest_effect(differences: NDArray[Any], *, chances: int = 1) -> float:
    """Return the smallest effect that these cases detect with 80 % power.

    A larger effect makes more cases differ, so the variance grows with the effect. The result is
    the root of effect² = z²(variance + size·effect − effect²) / total, in which the total includes
    pseudo-cases.
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
    root = linear + math.sqrt(linear**2 + 4 * quadratic * square * variance)
    return root / (2 * quadratic)


@dataclass(frozen=True, slots=True)
class _Augmented:
    """Distinct differences with their counts, including `added` pseudo-cases of `size` and as many
    of `-size`."""

    values: NDArray[Any]
    weights: NDArray[Any]
    size: float
    added: float

    @property
    def total(self) -> float:
        """The number of cases, pseudo-cases included."""
        return float(self.weights.sum())

    @property
    def floor(self) -> float:
        """The variance added to each draw: a draw without differences is still uncertain."""
        return 2 * self.added * self.size**2 / self.total

    @classmethod
    def of(cls, differences: NDArray[Any]) -> _Augmented:
        values, counts = np.unique(np.round(differences, 12), return_counts=True)
        nonzero = differences[np.abs(differences) > ROUNDING]
        confidence = min(1.0, len(nonzero) / _FEW)
        size = _typical_size(nonzero) ** confidence  # closer to a full flip if few cases differ
        added = _ADDED * (2 - confidence)
        return cls(
            np.concatenate([values, [size, -size]]),
            np.concatenate([counts.astype(float), [added, added]]),
            size,
            added,
        )


def _typical_size(differences: NDArray[Any]) -> float:
    """Return the root mean square of the differences, weighted by their squares, because larger
    differences dominate the interval; 1 without differences."""
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
    means, squares = _draw(sample, drawn, max(_DRAWS, math.ceil(25 / tail)), random)
    floor = sample.floor
    mean = float(sample.weights @ sample.values / total)
    square = float(sample.weights @ sample.values**2 / total)
    error = math.sqrt((square - mean**2 + floor) / total)
    studentised = (means - mean) / np.sqrt((np.maximum(squares - means**2, 0) + floor) / total)
    low, high = np.quantile(studentised, [tail, 1 - tail])
    return mean - float(high) * error, mean - float(low) * error


def _draw(
    sample: _Augmented, size: int, draws: int, random: np.random.Generator
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return means and mean squares of bootstrap samples, drawn in chunks to bound memory."""
    means, squares = [], []
    chunk = max(1, _CHUNK // len(sample.values))
    for start in range(0, draws, chunk):
        count = min(chunk, draws - start)
        counts = random.multinomial(size, sample.weights / sample.total, size=count)
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
