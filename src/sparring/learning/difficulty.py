"""Tracks how often training learned from the groups of each case.

All ranks hold the same statistics, and every checkpoint saves them. Results lose weight with age,
because the difficulty of a case changes while the model learns.
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
