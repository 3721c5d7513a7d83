"""Resolves batch sizes and notes every adjustment.

A step learns from whole groups, and every process holds whole groups. Sizes that do not divide
evenly are rounded, with a note for each: rows per pass and cases per step down, steps and the
checkpoint interval up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparring.contracts.errors import SettingError
from sparring.contracts.training import TrainSettings


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batch sizes of a run. `cases_per_step` and the rows and passes are per process.

    `steps_per_generation` is TRL's: the number of passes that one generation of rollouts is split
    into. `boundary` is the number of optimizer steps that learn from one generation.
    """

    cases_per_step: int
    rollouts_per_case: int
    rows_per_pass: int
    passes_per_step: int
    steps_per_generation: int
    world_size: int
    steps: int
    steps_per_epoch: int
    boundary: int
    save_steps: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the numbers of steps, cases and rollouts in one line."""
        cases = self.cases_per_step * self.world_size
        text = (
            f"{self.steps} steps of {cases} cases × {self.rollouts_per_case} rollouts = "
            f"{cases * self.rollouts_per_case} rollouts a step"
        )
        return text + (f" on {self.world_size} processes" if self.world_size > 1 else "")


def resolve_batches(
    settings: TrainSettings,
    *,
    training_cases: int,
    world_size: int = 1,
    num_iterations: int = 1,
    steps_per_generation: int | None = None,
) -> BatchPlan:
    """Return the batch plan for these settings.

    `num_iterations` and `steps_per_generation` are TRL's. Raises SettingError if no plan fits.
    """
    notes: list[str] = []
    group = settings.num_generations
    cases = _cases_per_step(settings, training_cases, world_size, notes)
    rows = cases * group
    per_pass = _rows_per_pass(settings, rows, notes)
    passes = rows // per_pass
    generation = steps_per_generation or passes
    if generation % passes:
        raise SettingError(
            f"engine.steps_per_generation is {generation}, but a step has {passes} passes; use "
            f"a multiple of {passes}, so that checkpoints can be saved between generations"
        )
    boundary = generation * num_iterations // passes
    chunk = cases * world_size * (generation // passes)
    if chunk > training_cases:
        raise SettingError(
            f"a generation takes {chunk} cases, but there are {training_cases} training cases; "
            "lower engine.steps_per_generation, or cases_per_batch"
        )
    per_epoch = training_cases // chunk * boundary
    steps = settings.max_steps or max(1, math.ceil(settings.num_train_epochs * per_epoch))
    if steps % boundary:
        notes.append(f"{steps} steps end inside a generation; training for {_up(steps, boundary)}")
        steps = _up(steps, boundary)
    save_steps = _up(settings.save_steps, boundary)
    if save_steps != settings.save_steps:
        notes.append(
            f"checkpoints are saved between generations: every {save_steps} steps instead of "
            f"every {settings.save_steps}"
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
        save_steps=save_steps,
        notes=tuple(notes),
    )


def _rows_per_pass(settings: TrainSettings, rows: int, notes: list[str]) -> int:
    wanted = settings.per_device_train_batch_size
    if wanted is None:
        return largest_divisor(rows, settings.cases_per_batch * settings.num_generations)
    per_pass = largest_divisor(rows, wanted)
    if per_pass != wanted:
        notes.append(
            f"{wanted} rows per pass do not divide the {rows} rows of a step; using "
            f"{rows // per_pass} passes of {per_pass}"
        )
    return per_pass


def _cases_per_step(
    settings: TrainSettings, training_cases: int, world_size: int, notes: list[str]
) -> int:
    wanted = settings.cases_per_batch * settings.gradient_accumulation_steps
    if wanted * world_size <= training_cases:
        return wanted
    fit = training_cases // world_size
    if not fit:
        raise SettingError(
            f"{training_cases} training cases cannot be shared by {world_size} processes; start "
            "fewer processes, or add cases"
        )
    notes.append(
        f"{wanted * world_size} cases per step are more than the {training_cases} training cases; "
        f"using {fit * world_size}"
    )
    return fit


def largest_divisor(whole: int, most: int) -> int:
    """Return the largest number up to `most` that divides `whole`."""
    return next(number for number in range(min(most, whole), 0, -1) if whole % number == 0)


def _up(number: int, step: int) -> int:
    return math.ceil(number / step) * step
