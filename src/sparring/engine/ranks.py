"""Which process this is among those that train together; agreeing among them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sparring.contracts.errors import WorldSizeError
from sparring.learning.practice import Place


@dataclass(frozen=True, slots=True)
class Launched:
    """What torchrun told this process; one of one where nobody did."""

    rank: int
    local_rank: int
    world_size: int

    @classmethod
    def here(cls) -> Launched:
        def number(name: str, default: int) -> int:
            return int(os.environ.get(name, default))

        return cls(
            rank=number("RANK", 0),
            local_rank=number("LOCAL_RANK", 0),
            world_size=number("WORLD_SIZE", 1),
        )

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
