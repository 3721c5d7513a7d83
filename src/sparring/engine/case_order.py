"""Looks ahead in the order in which TRL will propose cases."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from sparring.contracts.errors import InfrastructureError


class CaseOrder:
    """The cases of the steps to come, by rank. Steps must be asked for in increasing order.

    `sampler` is a copy of TRL's with a random generator of its own, at the beginning of the epoch
    of `first_step`: looking ahead does not advance TRL's. A generation takes `boundary` steps.
    """

    def __init__(
        self,
        sampler: Any,
        cases_at: Callable[[Sequence[int]], Sequence[str]],
        *,
        world_size: int,
        first_step: int,
        boundary: int,
    ) -> None:
        self._cases_at = cases_at
        self._world_size = world_size
        self._boundary = boundary
        self._step = first_step - boundary
        self._chunks = _chunks_of(sampler)

    def __call__(self, step: int) -> list[list[str]]:
        """Return the cases that TRL will propose at this step, by rank."""
        if step <= self._step:
            raise InfrastructureError(
                f"the cases of step {step} were requested after those of step {self._step}"
            )
        chunk: list[int] = []
        while self._step < step:
            chunk = next(self._chunks)
            self._step += self._boundary
        cases = list(self._cases_at(chunk))
        share = len(cases) // self._world_size
        return [cases[start : start + share] for start in range(0, len(cases), share)]


def _chunks_of(sampler: Any) -> Iterator[list[int]]:
    """Yield the positions in the data set of each generation's cases, epoch after epoch.

    TRL's sampler repeats each position for every rollout, and all of a batch for every pass.
    """
    rows = sampler.batch_size * sampler.mini_repeat_count
    while True:
        numbers = iter(sampler)
        while chunk := list(islice(numbers, rows)):
            yield chunk[:: sampler.mini_repeat_count]
            deque(islice(numbers, (sampler.repeat_count - 1) * rows), maxlen=0)
