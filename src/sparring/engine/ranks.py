"""Identifies this process among those that train together, and shares values between them."""

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
    """Rank and world size from torchrun's environment; a single process without it."""

    rank: int
    world_size: int

    @classmethod
    def here(cls) -> Launched:
        """Read the environment of this process."""

        def number(name: str, default: int) -> int:
            return int(os.environ.get(name, default))

        return cls(rank=number("RANK", 0), world_size=number("WORLD_SIZE", 1))

    @property
    def place(self) -> Place:
        """The same for the rollout collector."""
        return Place(self.rank, self.world_size)

    def require(self, world_size: int) -> None:
        """Raise WorldSizeError unless this many processes run."""
        if self.world_size != world_size:
            raise WorldSizeError(
                f"{world_size} processes were requested, but {self.world_size} started; start them "
                f"with `sparring train --processes N`, or with torchrun --nproc-per-node N"
            )


def from_rank_0(find: Callable[[], Value], launched: Launched) -> Value:
    """Call `find` on rank 0 only, and return its result on every rank."""
    values: list[Any] = [find() if launched.rank == 0 else None]
    if launched.world_size > 1:
        broadcast_object_list(values)
    value: Value = values[0]
    return value


def gathered(mine: list[Value]) -> list[Value]:
    """Return the concatenated lists of all ranks."""
    values: list[Value] = gather_object(mine)
    return values
