"""What is remembered of each case: how often its groups taught something.

All ranks remember the same, it is saved with every checkpoint, and it fades: a model that has
moved may find an easy case hard, or a hard one easy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparring.contracts.specs import FORMAT

Floats = npt.NDArray[np.float64]
_HALF_LIFE = 50.0  # steps after which what was seen counts half
_PRIOR = 0.5  # Jeffreys: one group that taught nothing halves the chance of its case


@dataclass(frozen=True, slots=True)
class Seen:
    """One group of a case, as ranks tell one another."""

    case_id: str
    taught: bool
    mean_reward: float | None


class Difficulty:
    """The memory of all training cases. What was never played is as promising as can be."""

    def __init__(self, case_ids: Sequence[str]) -> None:
        self.case_ids = case_ids
        self._place = {case_id: place for place, case_id in enumerate(case_ids)}
        self._taught = np.zeros(len(case_ids))
        self._idle = np.zeros(len(case_ids))
        self._last = np.zeros(len(case_ids), dtype=np.int64)
        self._reward = np.full(len(case_ids), np.nan)

    def place_of(self, case_id: str) -> int:
        return self._place[case_id]

    def chances(self, step: int) -> Floats:
        """For each case, how likely a group of it teaches, relative to one never played."""
        fade = 0.5 ** ((step - self._last) / _HALF_LIFE)
        taught, idle = self._taught * fade, self._idle * fade
        expected = (_PRIOR + taught) / (2 * _PRIOR + taught + idle)
        return np.minimum(1.0, expected / 0.5)

    def remember(self, seen: Iterable[Seen], step: int) -> None:
        for each in seen:
            place = self._place[each.case_id]
            fade = 0.5 ** ((step - self._last[place]) / _HALF_LIFE)
            self._taught[place] = self._taught[place] * fade + each.taught
            self._idle[place] = self._idle[place] * fade + (not each.taught)
            self._last[place] = step
            if each.mean_reward is not None:
                self._reward[place] = each.mean_reward

    def to_dict(self) -> dict[str, Any]:
        """What was played, for a checkpoint; people can read it, too."""
        played = np.flatnonzero(self._taught + self._idle)
        return {
            "format": FORMAT,
            "cases": {
                self.case_ids[place]: {
                    "taught": float(self._taught[place]),
                    "idle": float(self._idle[place]),
                    "step": int(self._last[place]),
                    "reward": None if np.isnan(self._reward[place]) else float(self._reward[place]),
                }
                for place in played.tolist()
            },
        }

    def recall(self, saved: Mapping[str, Any]) -> None:
        """Go on from what a checkpoint remembered; cases that are gone are left out."""
        for case_id, each in saved["cases"].items():
            if (place := self._place.get(case_id)) is None:
                continue
            self._taught[place], self._idle[place] = each["taught"], each["idle"]
            self._last[place] = each["step"]
            self._reward[place] = np.nan if each["reward"] is None else each["reward"]
