"""Which process this is among those that train together; agreeing among them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from accelerate.utils import broadcast_object_list, gather_object

from sparring.contracts.errors import WorldSizeError
from sparring.learning.practice import Place

Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class Launched:
    """What torchrun told this process; one of one where nobody did."""

    rank: int
    world_size: int

    @classmethod
    def here(cls) -> Launched:
        def number(name: str, default: int) -> int:
            return int(os.environ.get(name, default))

        return cls(rank=number("RANK", 0), world_size=number("WORLD_SIZE", 1))

    @property
    def place(self) -> Place:
        return Place(self.rank, self.world_size)

    def require(self, world_size: int) -> None:
        """Fail at the start where another number of processes came up than was asked for."""
        if self.world_size != world_size:
            raise WorldSizeError(
                f"{world_size} processes were asked for and {self.world_size} came up; start them "
                f"with `sparring train --processes N`, or with torchrun --nproc-per-node N"
            )


def told_by_rank_0(find: Callable[[], Told], launched: Launched) -> Told:
    """What rank 0 found, on every rank; the others do not look."""
    told: list[Any] = [find() if launched.rank == 0 else None]
    if launched.world_size > 1:
        broadcast_object_list(told)
    found: Told = told[0]
    return found


def gathered(mine: list[Told]) -> list[Told]:
    """The lists of all ranks, one behind the other."""
    every: list[Told] = gather_object(mine)
    return every
