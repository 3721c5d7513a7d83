"""GRPO's advantages: each rollout's reward beside those of its group (arXiv 2402.03300).

The numbers are TRL's: single precision, the sample deviation with 1e-4 added, and no advantage for
a rollout without a reward. They do not depend on the machine: sums run from left to right, and
square roots are rounded correctly, which some builds of torch do not promise.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from sparring.contracts.errors import SettingError
from sparring.contracts.training import TrainSettings
from sparring.learning.credit.rule import Credit
from sparring.learning.engine import Ranks
from sparring.learning.groups import Group, Outcome

Scale: TypeAlias = Literal["group", "batch", "none"]
_Floats: TypeAlias = npt.NDArray[np.float32]
_EPSILON = np.float32(1e-4)


class GroupRelative:
    """Gives every token the advantage of its rollout, which is 0 in a group without a gradient: its
    equal rewards may differ from their mean by rounding."""

    def __init__(self, settings: TrainSettings) -> None:
        self._size = settings.num_generations
        self._scale = scale_of(settings.engine)

    def teaches(self, group: Group) -> bool:
        """Return whether the rewards of the group differ."""
        return group.outcome is Outcome.LIVE

    def credit(self, groups: Sequence[Group], ranks: Ranks) -> list[Credit]:
        """Return advantages, for rewards beside those of their group or of the whole batch."""
        learned = [(each, self.teaches(group)) for group in groups for each in group.learned]
        rewards = ranks.gather([each.reward for each, _ in learned])
        start = ranks.rank * len(learned)  # every rank has as many rollouts
        mine = advantages(rewards, self._size, self._scale)[start : start + len(learned)]
        return [
            Credit(advantages=array("f", [value if is_live else 0.0]) * len(row.completion))
            for (rollout, is_live), value in zip(learned, mine, strict=True)
            for row in rollout.rows
        ]


def advantages(rewards: Sequence[float | None], group: int, scale: Scale = "group") -> list[float]:
    """Return one advantage per reward. Rewards are those of all ranks, `group` after `group`.

    `scale` divides by the deviation of the group, by that of the whole batch, or not at all.
    """
    known = np.array([np.nan if each is None else each for each in rewards], np.float32)
    groups = known.reshape(-1, group)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = groups - _mean(groups)
        if scale != "none":
            found /= _deviation(groups if scale == "group" else known.reshape(1, -1)) + _EPSILON
    return [float(each) for each in np.nan_to_num(found, nan=0.0).ravel()]


def scale_of(engine: Mapping[str, Any]) -> Scale:
    """Return TRL's `scale_rewards` as the table of engine settings has it."""
    wanted = engine.get("scale_rewards", "group")
    named: Scale = {True: "group", False: "none"}.get(wanted, wanted)
    if named not in get_args(Scale):
        raise SettingError(
            f"engine.scale_rewards is {wanted!r}; choose from {', '.join(get_args(Scale))}"
        )
    return named


def _mean(rows: _Floats) -> _Floats:
    """Return the mean of each row without its missing values, as a column."""
    total = np.zeros(len(rows), np.float32)
    for column in np.nan_to_num(rows, nan=0.0).T:
        total += column
    mean: _Floats = (total / _count(rows))[:, None]
    return mean


def _deviation(rows: _Floats) -> _Floats:
    """Return the sample deviation of each row, as a column; missing with fewer than two values."""
    count = _count(rows)[:, None]
    correction = np.where(count > 1, count / (count - 1), np.float32(np.nan))
    variance: _Floats = _mean((rows - _mean(rows)) ** 2) * correction
    deviation: _Floats = np.sqrt(variance)
    return deviation


def _count(rows: _Floats) -> _Floats:
    count: _Floats = (~np.isnan(rows)).sum(axis=1).astype(np.float32)
    return count
