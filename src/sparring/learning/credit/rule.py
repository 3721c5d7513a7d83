"""The interface of the rules by which rollouts become gradients."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sparring.learning.engine import Ranks
from sparring.learning.groups import Group


@dataclass(frozen=True, slots=True)
class Credit:
    """What a rule gives one row, with a number for each token of its completion: advantages in the
    policy's loss, and weights in the loss that predicts tokens. None where it gives nothing."""

    advantages: array[float] | None = None
    targets: array[float] | None = None


class Rule(Protocol):
    """One rule, made from the settings of a training."""

    def teaches(self, group: Group) -> bool:
        """Return whether a group is worth learning from. One that no rule learns from is
        replaced."""
        ...

    def credit(self, groups: Sequence[Group], ranks: Ranks) -> list[Credit]:
        """Return the credit of each row of these groups, rollout by rollout. All ranks call this
        together, each with its own groups, and `ranks` exchanges what depends on all of them."""
        ...
