"""Batch arithmetic, solved once and said.

A step learns from whole groups, and every process holds whole groups of its own. Numbers
that do not divide are brought to the nearest ones that do, with a note for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparring.contracts.errors import SettingError
from sparring.contracts.training import TrainSettings


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The numbers of a run, per process where nothing else is said."""

    cases_per_step: int
    rollouts_per_case: int
    rows_per_pass: int
    passes_per_step: int
    steps_per_generation: int
    world_size: int
    steps: int
    steps_per_epoch: int
    boundary: int
    checkpoint_steps: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The arithmetic in one line."""
        cases = self.cases_per_step * self.world_size
        told = (
            f"{self.steps} steps of {cases} cases × {self.rollouts_per_case} rollouts = "
            f"{cases * self.rollouts_per_case} rollouts"
        )
        return told + (f" on {self.world_size} processes" if self.world_size > 1 else "")


def solve(
    settings: TrainSettings,
    *,
    training_cases: int,
    world_size: int = 1,
    num_iterations: int = 1,
    steps_per_generation: int | None = None,
) -> BatchPlan:
    """The plan for these settings. `num_iterations` and `steps_per_generation` are TRL's."""
    notes: list[str] = []
    group = settings.num_generations
    cases = _cases_per_step(settings, training_cases, world_size, notes)
    rows = cases * group
    per_pass = largest_divisor(rows, settings.cases_per_batch * group)
    passes = rows // per_pass
    if settings.per_device_train_batch_size is not None:
        per_pass = largest_divisor(rows, settings.per_device_train_batch_size)
        passes = rows // per_pass
        if per_pass != settings.per_device_train_batch_size:
            notes.append(
                f"{settings.per_device_train_batch_size} rows a pass do not divide the {rows} rows "
                f"of a step; taking {passes} passes of {per_pass}"
            )
    generation = steps_per_generation or passes
    if generation % passes:
        raise SettingError(
            f"engine.steps_per_generation is {generation}, and a step has {passes} passes; make it "
            "a multiple of that, so that checkpoints can fall between generations"
        )
    boundary = generation * num_iterations // passes
    chunk = cases * world_size * (generation // passes)
    if chunk > training_cases:
        raise SettingError(
            f"a generation takes {chunk} cases and there are {training_cases} training cases; "
            "lower engine.steps_per_generation, or cases_per_batch"
        )
    per_epoch = training_cases // chunk * boundary
    steps = settings.max_steps or max(1, math.ceil(settings.num_train_epochs * per_epoch))
    if steps % boundary:
        notes.append(f"{steps} steps end inside of a generation; doing {_up(steps, boundary)}")
        steps = _up(steps, boundary)
    every = _up(settings.checkpoint_steps, boundary)
    if every != settings.checkpoint_steps:
        notes.append(
            f"checkpoints fall on generations, so every {every} steps instead of every "
            f"{settings.checkpoint_steps}"
        )
    return BatchPlan(
        cases_per_step=cases,
        rollouts_per_case=group,
        rows_per_pass=per_pass,
        passes_per_step=passes,
        steps_per_generation=generation,
        world_size=world_size,
        steps=steps,
        steps_per_epoch=per_epoch,
        boundary=boundary,
        checkpoint_steps=every,
        notes=tuple(notes),
    )


def _cases_per_step(
    settings: TrainSettings, training_cases: int, world_size: int, notes: list[str]
) -> int:
    wanted = settings.cases_per_batch * settings.gradient_accumulation_steps
    if wanted * world_size <= training_cases:
        return wanted
    fit = training_cases // world_size
    if not fit:
        raise SettingError(
            f"{training_cases} training cases cannot be shared by {world_size} processes; take "
            "fewer processes, or more cases"
        )
    notes.append(
        f"{wanted * world_size} cases a step are more than the {training_cases} training cases; "
        f"taking {fit * world_size}"
    )
    return fit


def largest_divisor(whole: int, most: int) -> int:
    """The largest number up to `most` that divides `whole`."""
    return next(number for number in range(min(most, whole), 0, -1) if whole % number == 0)


def _up(number: int, step: int) -> int:
    return math.ceil(number / step) * step
