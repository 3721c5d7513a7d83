"""Values that ranks share, before there is a trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from accelerate.utils import broadcast_object_list, gather_object

from sparring.learning.engine import Launched

Value = TypeVar("Value")


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
