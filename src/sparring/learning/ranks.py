"""The processes that train together: which one this is, and what they exchange."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

from sparring.contracts.errors import WorldSizeError


@dataclass(frozen=True, slots=True)
class Launched:
    """The rank of this process and the number of processes."""

    rank: int
    world_size: int

    @classmethod
    def here(cls) -> Launched:
        """Read torchrun's `RANK` and `WORLD_SIZE`; without them, a single process."""
        return cls(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))

    def require(self, world_size: int) -> None:
        """Raise WorldSizeError unless `world_size` processes were started."""
        if self.world_size != world_size:
            raise WorldSizeError(
                f"{world_size} processes were requested, but {self.world_size} started; start them "
                f"with `sparring train --processes N`, or with torchrun --nproc-per-node N"
            )


class Ranks(Protocol):
    """The processes that train together, as one of them sees them."""

    @property
    def rank(self) -> int:
        """The number of this process; rank 0 reports for all."""
        ...

    def gather(self, mine: list[Any]) -> list[Any]:
        """Return the concatenated lists of all ranks. All ranks call this together."""
        ...
