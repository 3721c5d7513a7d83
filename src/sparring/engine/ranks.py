"""Finds this process's rank and the world size, and exchanges values between ranks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from accelerate.utils import broadcast_object_list, gather_object

from sparring.contracts.errors import WorldSizeError
from sparring.learning.rollout_collector import Place

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Launched:
    """The rank of this process and the number of processes."""

    rank: int
    world_size: int

    @classmethod
    def here(cls) -> Launched:
        """Read torchrun's `RANK` and `WORLD_SIZE`; without them, a single process."""

        def number(name: str, default: int) -> int:
            return int(os.environ.get(name, default))

        return cls(rank=number("RANK", 0), world_size=number("WORLD_SIZE", 1))

    @property
    def place(self) -> Place:
        """Rank and world size in the type that the rollout collector takes."""
        return Place(self.rank, self.world_size)

    def require(self, world_size: int) -> None:
        """Raise WorldSizeError unless `world_size` processes were started."""
        if self.world_size != world_size:
            raise WorldSizeError(
                f"{world_size} processes were requested, but {self.world_size} started; start them "
                f"with `sparring train --processes N`, or with torchrun --nproc-per-node N"
            )


def from_rank_0(find: Callable[[], Value], launched: Launched) -> Value:
    """Call `find` on rank 0 only, and return its result on every rank. All ranks must call this; if
    `find` raises, the others wait until they are ended."""
    values: list[Any] = [find() if launched.rank == 0 else None]
    if launched.world_size > 1:
        broadcast_object_list(values)
    value: Value = values[0]
    return value


def gathered(mine: list[Value]) -> list[Value]:
    """Return the concatenated lists of all ranks."""
    values: list[Value] = gather_object(mine)
    return values
