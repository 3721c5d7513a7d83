"""Finds the cases that TRL will propose in later steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from sparring.contracts.errors import InfrastructureError


class CaseOrder:
    """Returns the cases of later steps. Steps must be requested in increasing order.

    `sampler` is a second instance of TRL's sampler, at the beginning of the epoch that starts at
    `first_step`. It has a separate random generator, so looking ahead does not advance TRL's. A
    generation takes `boundary` steps.
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
        """Return the cases that TRL will propose at this step, one per group, by rank."""
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
    """Yield the data set positions of each generation's cases, over any number of epochs.

    TRL's sampler repeats each position for every rollout, and each batch for every pass.
    """
    rows = sampler.batch_size * sampler.mini_repeat_count
    while True:
        numbers = iter(sampler)
        while chunk := list(islice(numbers, rows)):
            yield chunk[:: sampler.mini_repeat_count]
            deque(islice(numbers, (sampler.repeat_count - 1) * rows), maxlen=0)
