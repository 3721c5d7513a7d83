"""Runs a few training steps and discards them, to measure their cost and find failures.

They are complete training steps, including the optimizer step. On a GPU, one more step has the
longest completions that the settings allow, so that a run that would exhaust the memory after an
hour does so in the dry run.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sparring.learning.engine import Parity
from sparring.learning.reporting import Hooks, LearnedGroup
from sparring.learning.rows import LearningRow
from sparring.learning.work import Built


@dataclass(frozen=True, slots=True)
class DryStep:
    """Wall-clock and CPU seconds of the update of a step, and the seconds of the whole step with
    playing."""

    update: float
    update_cpu: float
    whole: float


@dataclass(slots=True)
class DryRun:
    """Measures dry steps into `done`. Build a training run with `hooks`, then call `run`."""

    steps: int = 2
    done: list[DryStep] = field(default_factory=list)
    parity: str = ""
    on_doing: Callable[[str, int], None] = lambda _doing, _step: None
    _scored: tuple[float, float] = (0.0, 0.0)
    _longest: int | None = None

    def hooks(self) -> Hooks:
        """Return the hooks that measure the steps."""
        return Hooks(
            on_doing=self._note, on_learned=self._learned_in_step, on_parity=self._note_parity
        )

    def run(self, built: Built, *, longest: int | None = None) -> None:
        """Train for `steps` steps. With `longest`, train for one more step whose completions have
        `longest` tokens."""
        self._longest = longest
        built.engine.restore(None)
        for _ in range(self.steps + (longest is not None)):
            began = time.monotonic()
            built.steps.take()
            ended, cpu = _now()
            self.done.append(DryStep(ended - self._scored[0], cpu - self._scored[1], ended - began))

    def _learned_in_step(self, learned: LearnedGroup) -> LearnedGroup:
        if self._longest is None or len(self.done) < self.steps:
            return learned
        longest = self._longest
        return tuple(
            replace(each, rows=tuple(stretched(row, longest) for row in each.rows))
            for each in learned
        )

    def _note(self, doing: str, step: int) -> None:
        self.on_doing(doing, step)
        if doing == "scoring":
            self._scored = _now()

    def _note_parity(self, parity: Parity) -> None:
        self.parity = str(parity)


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
