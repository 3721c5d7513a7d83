"""Estimates a run's cost from completed checks and trainings of its environment and model."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from sparring.contracts.errors import InvalidInput
from sparring.contracts.kinds import CheckSpec
from sparring.contracts.specs import EvalSpec, Frozen
from sparring.contracts.summaries import CheckSummary
from sparring.contracts.training import TrainSpec
from sparring.operations.operation import Caller
from sparring.operations.resolution import RunSettings
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import find_summary, read_summary
from sparring.runs.index import Index, Query
from sparring.runs.lifecycle import RunState
from sparring.runs.status import recent_rows

_MAX_RUNS_READ = 20
_EXTRA = "loading, warm start, validation and proof"


@dataclass(frozen=True, slots=True)
class Done:
    """A completed check or training run."""

    kind: str
    folder: RunFolder


class Cost(Frozen):
    """The size of a run, and its estimated hours."""

    steps: int | None = Field(
        default=None,
        description="optimizer steps; null for an evaluation or without max_steps",
    )
    rollouts: int | None = Field(
        default=None, description="rollouts that a training learns from, or an evaluation plays"
    )
    rollouts_at_most: int | None = Field(
        default=None, description="upper bound, including replaced groups and validation"
    )
    hours: float | None = Field(default=None, description="estimated hours; null if unknown")
    basis: str = ""


def cost_of(spec: TrainSpec | EvalSpec, before: Sequence[Done]) -> Cost:
    """Return the cost of a run. Its hours are estimated from `before`, preferably from a check."""
    most = spec.max_rollouts
    if isinstance(spec, EvalSpec):
        return Cost(rollouts=most, rollouts_at_most=most, basis="cases x rollouts")
    steps, per_step = spec.settings.max_steps, spec.settings.rollouts_per_step(spec.world_size)
    if steps is None:
        return _cost_of_epochs(spec, before)
    size = {"steps": steps, "rollouts": steps * per_step, "rollouts_at_most": most}
    for done in sorted(before, key=lambda each: each.kind != "check"):
        seconds = _seconds_per_rollout(done.folder, done.kind)
        if seconds is not None:
            hours = float(f"{seconds * steps * per_step / 3600:.3g}")
            extra = "warm start and proof" if done.kind == "check" else _EXTRA
            basis = f"{done.folder.id} took {seconds:.2f} s per rollout; {extra} are extra"
            return Cost(**size, hours=hours, basis=basis)
    basis = "the time is unknown: no recent check or training of this environment and model has it"
    return Cost(**size, basis=basis)


def _cost_of_epochs(spec: TrainSpec, before: Sequence[Done]) -> Cost:
    """Return the cost of a training without `max_steps`: its hours are those of a check of the same
    plan, which knows the number of training cases."""
    basis = "max_steps is not set: num_train_epochs sets the length"
    for done in before:
        estimate = find_summary(done.folder, CheckSummary) if done.kind == "check" else None
        if estimate is None or estimate.estimate is None:
            continue
        checked = CheckSpec.model_validate(done.folder.read_spec())
        if _length_of(checked) == _length_of(spec):
            steps = f"{basis}; {done.folder.id} expects {estimate.estimate.steps} steps"
            return Cost(hours=float(f"{estimate.estimate.hours.value:.3g}"), basis=steps)
    return Cost(basis=basis)


def _length_of(spec: TrainSpec | CheckSpec) -> tuple[float | None, ...]:
    """Return what sets the number of steps, and the rollouts of a step, for the same cases."""
    settings = spec.settings
    per_step = settings.rollouts_per_step(spec.world_size)
    return settings.max_steps, settings.num_train_epochs, settings.num_generations, per_step


def completed_before(run_settings: RunSettings, caller: Caller) -> list[Done]:
    """Return the checks and trainings of this model among the environment's 20 newest completed
    runs, newest first. If the plan leaves the model to the agent, so must they."""
    if not caller.runs.is_dir():
        return []
    states = (RunState.COMPLETED,)
    query = Query(states=states, environment=run_settings.name, count=_MAX_RUNS_READ)
    model = str(run_settings.checked.model.model or "")
    return [
        Done(row.kind, RunFolder(caller.runs / row.id))
        for row in Index(caller.runs).page(query)
        if (row.model if model else row.named_model) == model and row.kind in ("check", "train")
    ]


def expected_hours(spec: TrainSpec, caller: Caller) -> float | None:
    """Return the hours that the newest check of this environment, model and length expected a
    training to take; None without one."""
    states = (RunState.COMPLETED,)
    query = Query(states=states, environment=spec.environment, kind="check", count=_MAX_RUNS_READ)
    for row in Index(caller.runs).page(query):
        folder = RunFolder(caller.runs / row.id)
        with contextlib.suppress(InvalidInput, ValueError):  # a check that cannot be read
            check = CheckSpec.model_validate(folder.read_spec())
            estimate = read_summary(folder, CheckSummary).estimate
            is_same = check.policy.model == spec.policy.model
            if estimate and is_same and _length_of(check) == _length_of(spec):
                return estimate.hours.value
    return None


def _seconds_per_rollout(folder: RunFolder, kind: str) -> float | None:
    try:
        spec = (CheckSpec if kind == "check" else TrainSpec).model_validate(folder.read_spec())
        return _seconds_per_step(folder, kind) / spec.settings.rollouts_per_step(spec.world_size)
    except (InvalidInput, KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _seconds_per_step(folder: RunFolder, kind: str) -> float:
    if kind == "check":
        estimate = read_summary(folder, CheckSummary).estimate
        if estimate is None:
            raise ValueError("the check measured no step")
        return estimate.hours.value * 3600 / estimate.steps  # validation included
    seconds = [float(row["seconds"]) for row in recent_rows(folder) if "loss" in row]
    return sum(seconds) / len(seconds)
