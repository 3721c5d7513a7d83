"""Holding a run against what its project may spend, before it starts."""

from __future__ import annotations

from sparring.contracts.errors import OverBudget
from sparring.contracts.training import TrainSettings
from sparring.operations.settling import Settled

_VALIDATION_CASES = 64
_LEVERS = (
    " (steps x cases x num_generations, as many again that may be replaced, and validation before "
    "each checkpoint); lower max_steps, replacement_groups or validation_cases"
)


def refuse_rollouts_over_budget(settled: Settled, rollouts: int | None, bound: str) -> None:
    """For runs that only play: so many rollouts at most; None where nobody can tell."""
    _refuse_rollouts(settled, rollouts, bound)


def refuse_over_budget(settled: Settled, *, cases: int | None = None) -> None:
    """Steps and rollouts of this run, as far as its settings tell. Runs at once are no reason to
    refuse one: it waits for its turn."""
    budget = settled.budget
    if settled.kind == "eval":
        _refuse_rollouts(settled, rollouts_of_evaluation(settled, cases), "cases")
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
    _refuse_rollouts(settled, rollouts_of_training(settled, steps) if steps else None, "max_steps")


def _refuse_rollouts(settled: Settled, most: int | None, bound: str) -> None:
    allowed = settled.budget.rollouts
    if allowed is None:
        return
    place = _place(settled, "budget.rollouts")
    if most is None:
        raise OverBudget(f"{place}: the project has a budget of rollouts, so set {bound}")
    if most > allowed:
        raise OverBudget(
            f"{place}: at most {allowed:,} rollouts a run; this one could play {most:,}"
            + (_LEVERS if bound == "max_steps" else f"; lower {bound}")
        )


def rollouts_of_training(settled: Settled, steps: int) -> int:
    """With every group replaced that may be, and validation before each checkpoint."""
    settings = TrainSettings.model_validate(settled.own())
    groups = settings.cases_per_batch * settings.gradient_accumulation_steps
    replaced = groups if settings.replacement_groups is None else settings.replacement_groups
    world = int(settled.values["processes"]) * int(settled.values["nodes"])
    learned_from = steps * world * (groups + replaced) * settings.num_generations
    validated = settings.validation_cases
    per_checkpoint = _VALIDATION_CASES if validated is None else validated
    return learned_from + per_checkpoint * (steps // settings.checkpoint_steps + 2)


def rollouts_of_evaluation(settled: Settled, cases: int | None) -> int | None:
    return None if cases is None else cases * int(settled.values["num_generations"])


def _place(settled: Settled, name: str) -> str:
    return settled.project.file.document.place_of(name)
