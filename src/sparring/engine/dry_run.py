"""A few real steps that are thrown away: what they take, and whether they work at all.

Everything is as in training, up to the optimizer's step; nothing is validated or saved. On a GPU
one more step is done at the longest sequence that the settings allow, so that a run which would
be out of memory after an hour is so now.
"""

from __future__ import annotations

import resource
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from sparring.engine.building import Built
from sparring.engine.grpo import Hooks
from sparring.learning.rows import LearningRow


@dataclass(frozen=True, slots=True)
class DryStep:
    """What a step took, beside playing: seconds, and seconds of CPU; and all of it."""

    update: float
    update_cpu: float
    whole: float
    whole_cpu: float


class _Enough(Exception):
    """As many steps as were asked for are done."""


@dataclass(slots=True)
class DryRun:
    """Its hooks go into the training that is built; then it runs."""

    steps: int = 2
    done: list[DryStep] = field(default_factory=list)
    parity: str = ""
    on_doing: Callable[[str, int], None] = lambda _doing, _step: None
    _began: tuple[float, float] = (0.0, 0.0)
    _scored: tuple[float, float] = (0.0, 0.0)
    _most: int = 0

    def hooks(self) -> Hooks:
        return Hooks(
            on_step=lambda _step, _row: self._end_step(),
            on_doing=self._note,
            on_parity=lambda parity: setattr(self, "parity", str(parity)),
        )

    def run(self, built: Built, *, longest: int | None = None) -> None:
        """Train for so many steps; with `longest`, one more with every row stretched to it."""
        practice: Any = built.practice
        plain = practice.rows

        def rows(proposed: Sequence[Sequence[str]], step: int) -> list[LearningRow]:
            played: list[LearningRow] = plain(proposed, step)
            is_last = longest is not None and len(self.done) == self.steps
            return [stretched(row, longest or 0) for row in played] if is_last else played

        practice.rows = rows
        self._most = self.steps + (longest is not None)
        try:
            built.trainer.train()
        except _Enough:
            pass
        finally:
            practice.rows = plain

    def _note(self, doing: str, step: int) -> None:
        self.on_doing(doing, step)
        if doing == "playing":
            self._began = _now()
        elif doing == "scoring":
            self._scored = _now()

    def _end_step(self) -> None:
        ended = _now()
        self.done.append(
            DryStep(
                update=ended[0] - self._scored[0],
                update_cpu=ended[1] - self._scored[1],
                whole=ended[0] - self._began[0],
                whole_cpu=ended[1] - self._began[1],
            )
        )
        if len(self.done) >= self._most:
            raise _Enough


def memory_used() -> tuple[str, int]:
    """The most that was taken so far, in bytes, and of what."""
    if torch.cuda.is_available():
        return "GPU", int(torch.cuda.max_memory_allocated())
    return "main memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def stretched(row: LearningRow, length: int) -> LearningRow:
    """The row, its completion repeated up to this many tokens, all of them learned from."""
    missing = length - len(row.completion)
    if missing <= 0:
        return row
    return replace(
        row,
        completion=row.completion + array("i", [row.completion[-1]] * missing),
        mask=row.mask + b"\x01" * missing,
        logprobs=row.logprobs + array("f", [-1.0] * missing),
    )


def _now() -> tuple[float, float]:
    return time.monotonic(), time.process_time()
