"""Which cases a step plays: those proposed, but for the ones that rarely teach anything.

A pure function of seed, step, what all ranks proposed and what was remembered, so that a run
that goes on draws what it would have drawn, and no two ranks draw the same case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparring.learning.difficulty import Difficulty, Floats

_STREAM = 0x5A7E  # keeps these random numbers apart from others of the same seed and step


@dataclass(frozen=True, slots=True)
class Drawn:
    """What one rank plays: a case for each of its groups, and others to replace dead ones."""

    cases: tuple[str, ...]
    spares: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()


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
    """What `rank` plays, where the ranks were proposed these cases."""
    numbers = np.random.default_rng([_STREAM, seed, step])
    chances = difficulty.chances(step) if by_difficulty else np.ones(len(difficulty.case_ids))
    places = [[difficulty.place_of(case) for case in mine] for mine in proposed]
    taken = {place for mine in places for place in mine}
    needed = 2 * len(taken) + spares * len(proposed)
    in_order = _weighted_order(chances, numbers)[:needed].tolist()
    others = iter([place for place in in_order if place not in taken])
    cases: list[list[int]] = []
    passed_over: list[list[int]] = []
    for mine in places:
        kept, left = [], []
        for place in mine:
            other = next(others, None) if numbers.random() >= chances[place] else None
            kept.append(place if other is None else other)
            if other is not None:
                left.append(place)
        cases.append(kept)
        passed_over.append(left)
    spare = list(others)[rank :: len(proposed)][:spares]
    name = difficulty.case_ids.__getitem__
    return Drawn(
        tuple(map(name, cases[rank])), tuple(map(name, spare)), tuple(map(name, passed_over[rank]))
    )


def _weighted_order(chances: Floats, numbers: np.random.Generator) -> npt.NDArray[np.int64]:
    """All cases in random order, promising ones first as often as their chance says."""
    keys = numbers.exponential(size=len(chances)) / chances
    return np.argsort(keys, kind="stable")
