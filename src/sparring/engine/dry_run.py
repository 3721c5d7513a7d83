"""Runs a few training steps and discards them, to measure their cost and find failures.

They are complete training steps, including the optimizer step. On a GPU, one more step has the
longest completions that the settings allow, so that a run that would exhaust the memory after an
hour does so in the dry run.
"""

from __future__ import annotations

import contextlib
import resource
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from sparring.engine.building import Built
from sparring.engine.hooks import Hooks
from sparring.learning.rows import LearningRollout, LearningRow


@dataclass(frozen=True, slots=True)
class DryStep:
    """Wall-clock and CPU seconds of the update of a step, and of the whole step with playing."""

    update: float
    update_cpu: float
    whole: float
    whole_cpu: float


class _AllStepsDone(Exception):
    """Ends the training after the last dry step."""


@dataclass(slots=True)
class DryRun:
    """Measures dry steps into `done`. Build a training run with `hooks`, then call `run`."""

    steps: int = 2
    done: list[DryStep] = field(default_factory=list)
    parity: str = ""
    on_doing: Callable[[str, int], None] = lambda _doing, _step: None
    _began: tuple[float, float] = (0.0, 0.0)
    _scored: tuple[float, float] = (0.0, 0.0)
    _total_steps: int = 0
    _longest: int | None = None

    def hooks(self) -> Hooks:
        """Return the hooks that measure the steps."""
        return Hooks(
            on_step=lambda _step, _row: self._end_step(),
            on_doing=self._note,
            on_learned=self._learned_in_step,
            on_parity=lambda parity: setattr(self, "parity", str(parity)),
        )

    def run(self, built: Built, *, longest: int | None = None) -> None:
        """Train for `steps` steps. With `longest`, train for one more step whose completions have
        `longest` tokens."""
        self._longest = longest
        self._total_steps = self.steps + (longest is not None)
        with contextlib.suppress(_AllStepsDone):
            built.trainer.train()

    def _learned_in_step(self, learned: list[LearningRollout]) -> list[LearningRollout]:
        if self._longest is None or len(self.done) < self.steps:
            return learned
        longest = self._longest
        return [
            replace(each, rows=tuple(stretched(row, longest) for row in each.rows))
            for each in learned
        ]

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
        if len(self.done) >= self._total_steps:
            raise _AllStepsDone


def memory_used() -> tuple[str, int]:
    """Return the kind of memory, and this process's peak use in bytes."""
    if torch.cuda.is_available():
        return "GPU", int(torch.cuda.max_memory_allocated())
    return "main memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def stretched(row: LearningRow, length: int) -> LearningRow:
    """Return the row with its completion padded to `length` tokens. The mask includes the
    padding."""
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
