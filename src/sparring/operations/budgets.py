"""Holding a run against what its project may spend, before it starts."""

from __future__ import annotations

from pathlib import Path

from sparring.contracts.errors import OverBudget
from sparring.contracts.training import TrainSettings
from sparring.operations.settling import Settled
from sparring.run_folder import RunFolder
from sparring.runs.local import is_held

_VALIDATION_CASES = 64
_LEVERS = (
    " (steps x cases x num_generations, as many again that may be replaced, and validation before "
    "each checkpoint); lower max_steps, replacement_groups or validation_cases"
)


def refuse_over_budget(settled: Settled, runs: Path, *, cases: int | None = None) -> None:
    """Steps and rollouts of this run, as far as its settings tell, and how many run already."""
    _refuse_too_long(settled, cases)
    _refuse_too_many(settled, runs)


def _refuse_too_long(settled: Settled, cases: int | None) -> None:
    budget = settled.project.file.budget
    if settled.kind == "eval":
        _refuse_rollouts(settled, _of_evaluation(settled, cases), "cases")
        return
    steps = settled.values["max_steps"]
    if steps is None and (budget.steps or budget.rollouts):
        raise OverBudget(
            f"{_place(settled, 'budget')}: the project has a budget, so say how long the run is: "
            "set max_steps"
        )
    if budget.steps and steps > budget.steps:
        raise OverBudget(
            f"{_place(settled, 'budget.steps')}: at most {budget.steps} steps a run; "
            f"max_steps is {steps}"
        )
    _refuse_rollouts(settled, _of_training(settled, steps) if steps else None, "max_steps")


def _refuse_too_many(settled: Settled, runs: Path) -> None:
    """Runs at the same time, by who holds their folders now."""
    most = settled.project.file.budget.runs_at_once
    if most is None or not runs.is_dir():
        return
    running = [path.name for path in runs.iterdir() if is_held(RunFolder(path))]
    if len(running) >= most:
        raise OverBudget(
            f"{_place(settled, 'budget.runs_at_once')}: at most {most} runs at once, and there "
            f"are {', '.join(running[:5])}; wait for one, or stop it"
        )


def _refuse_rollouts(settled: Settled, most: int | None, bound: str) -> None:
    allowed = settled.project.file.budget.rollouts
    if allowed is None:
        return
    place = _place(settled, "budget.rollouts")
    if most is None:
        raise OverBudget(f"{place}: the project has a budget of rollouts, so set {bound}")
    if most > allowed:
        raise OverBudget(
            f"{place}: at most {allowed:,} rollouts a run; this one could play {most:,}"
            + (_LEVERS if settled.kind == "train" else "")
        )


def _of_training(settled: Settled, steps: int) -> int:
    """With every group replaced that may be, and validation before each checkpoint."""
    settings = TrainSettings.model_validate(settled.own())
    groups = settings.cases_per_batch * settings.gradient_accumulation_steps
    replaced = groups if settings.replacement_groups is None else settings.replacement_groups
    world = int(settled.values["processes"]) * int(settled.values["nodes"])
    learned_from = steps * world * (groups + replaced) * settings.num_generations
    validated = settings.validation_cases
    per_checkpoint = _VALIDATION_CASES if validated is None else validated
    return learned_from + per_checkpoint * (steps // settings.checkpoint_steps + 2)


def _of_evaluation(settled: Settled, cases: int | None) -> int | None:
    return None if cases is None else cases * int(settled.values["num_generations"])


def _place(settled: Settled, name: str) -> str:
    return settled.project.file.document.place_of(name)
