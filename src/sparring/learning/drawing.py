"""Chooses the cases of a step, and may replace proposed cases that were rarely learned from.

`Difficulty` tracks how often training learned from the groups of each case. All ranks hold the same
statistics, and every checkpoint saves them. Results lose weight with age, because the difficulty of
a case changes while the model learns. The choice is a pure function of the seed, the step, the
proposals of all ranks and these statistics. So a resumed run draws the same cases, and no two ranks
draw the same replacement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparring.contracts.specs import FORMAT

Floats = npt.NDArray[np.float64]
_HALF_LIFE = 50.0  # steps after which a result has half of its weight
_PRIOR = 0.5  # Jeffreys prior: one group that was not learned from halves the chance of its case


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of one group of a case, as ranks exchange it.

    `taught` means that the step learned from the group.
    """

    case_id: str
    taught: bool
    mean_reward: float | None


class Difficulty:
    """Statistics of all training cases.

    The chance of a case is an estimate of how likely its next group is to be learned from, in
    (0, 1]. A case that was never played has chance 1.
    """

    def __init__(self, case_ids: Sequence[str]) -> None:
        self.case_ids = case_ids
        self._index_of = {case_id: index for index, case_id in enumerate(case_ids)}
        self._taught = np.zeros(len(case_ids))  # groups that were learned from, decayed
        self._idle = np.zeros(len(case_ids))  # all other groups, decayed
        self._last_step = np.zeros(len(case_ids), dtype=np.int64)
        self._last_reward = np.full(len(case_ids), np.nan)

    def place_of(self, case_id: str) -> int:
        """Return the index of a case in `case_ids`."""
        return self._index_of[case_id]

    def chances(self, step: int) -> Floats:
        """Return the chance of each case at this step, in the order of `case_ids`."""
        decay = 0.5 ** ((step - self._last_step) / _HALF_LIFE)
        taught, idle = self._taught * decay, self._idle * decay
        expected = (_PRIOR + taught) / (2 * _PRIOR + taught + idle)
        return np.minimum(1.0, expected / 0.5)

    def remember(self, seen: Iterable[Seen], step: int) -> None:
        """Add the results of groups that were played for this step."""
        for result in seen:
            index = self._index_of[result.case_id]
            decay = 0.5 ** ((step - self._last_step[index]) / _HALF_LIFE)
            self._taught[index] = self._taught[index] * decay + result.taught
            self._idle[index] = self._idle[index] * decay + (not result.taught)
            self._last_step[index] = step
            if result.mean_reward is not None:
                self._last_reward[index] = result.mean_reward

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics of all cases that were played, for a checkpoint."""
        played = np.flatnonzero(self._taught + self._idle)
        return {
            "format": FORMAT,
            "cases": {
                self.case_ids[index]: {
                    "taught": float(self._taught[index]),
                    "idle": float(self._idle[index]),
                    "step": int(self._last_step[index]),
                    "reward": _none_if_nan(self._last_reward[index]),
                }
                for index in played.tolist()
            },
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the statistics of a checkpoint; cases that no longer exist are ignored."""
        for case_id, case in saved["cases"].items():
            if (index := self._index_of.get(case_id)) is None:
                continue
            self._taught[index], self._idle[index] = case["taught"], case["idle"]
            self._last_step[index] = case["step"]
            self._last_reward[index] = np.nan if case["reward"] is None else case["reward"]


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


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
