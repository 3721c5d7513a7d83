"""Chooses the cases of a step, and may replace proposed cases that were rarely learned from.

The choice is a pure function of the seed, the step, the proposals of all ranks and the difficulty
statistics. So a resumed run draws the same cases, and no two ranks draw the same replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparring.learning.difficulty import Difficulty, Floats

_STREAM = 0x5A7E  # makes these random numbers differ from others with the same seed and step


@dataclass(frozen=True, slots=True)
class Drawn:
    """The cases that one rank plays: one per group, and spares for the replacement of dead groups.
    `skipped` are the proposed cases that were replaced."""

    cases: tuple[str, ...]
    spares: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def draw(
    proposed: Sequence[Sequence[str]],
    difficulty: Difficulty,
    *,
    seed: int,
    step: int,
    rank: int = 0,
    spares: int = 0,
    by_difficulty: bool = True,
) -> Drawn:
    """Return the cases that `rank` plays, given the cases proposed for each rank.

    `spares` is the maximum number of spare cases per rank.
    """
    rng = np.random.default_rng([_STREAM, seed, step])
    chances = difficulty.chances(step) if by_difficulty else np.ones(len(difficulty.case_ids))
    places = [[difficulty.place_of(case) for case in mine] for mine in proposed]
    taken = {place for mine in places for place in mine}
    # At most len(taken) cases in this order are proposed ones, and at most as many are replaced.
    needed = 2 * len(taken) + spares * len(proposed)
    in_order = _weighted_order(chances, rng)[:needed].tolist()
    others = iter([place for place in in_order if place not in taken])
    cases: list[list[int]] = []
    skipped: list[list[int]] = []
    for mine in places:
        played, left_out = [], []
        for place in mine:
            other = next(others, None) if rng.random() >= chances[place] else None
            played.append(place if other is None else other)
            if other is not None:
                left_out.append(place)
        cases.append(played)
        skipped.append(left_out)
    spare = list(others)[rank :: len(proposed)][:spares]
    name = difficulty.case_ids.__getitem__
    return Drawn(
        tuple(map(name, cases[rank])), tuple(map(name, spare)), tuple(map(name, skipped[rank]))
    )


def _weighted_order(chances: Floats, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the indices of all cases in the order of weighted sampling without replacement."""
    keys = rng.exponential(size=len(chances)) / chances
    return np.argsort(keys, kind="stable")
