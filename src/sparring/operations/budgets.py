"""Holding a run against what its project may spend, by what its spec says it could play at most.

The spec, not the settings that led to it: a run that goes on is held to the budget of today.
"""

from __future__ import annotations

from sparring.contracts.errors import OverBudget
from sparring.contracts.proof_specs import CheckSpec, ProveSpec
from sparring.contracts.specs import EvalSpec, RunSpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.settings.project_file import Budget, ProjectFile

_VALIDATION_CASES = 64
_LEVERS = {
    "train": "max_steps, replacement_groups or validation_cases",
    "eval": "cases",
    "check": "cases, rollouts, dry_steps or num_generations",
    "prove": "cases or rollouts",
}


def refuse_over_budget(spec: RunSpec, budget: Budget, file: ProjectFile) -> None:
    """Steps and rollouts, as far as the spec tells. Runs at once are no reason to refuse one: it
    waits for its turn; hours end it."""
    steps = steps_of(spec)
    place = file.document.place_of("budget")
    if isinstance(spec, TrainSpec) and steps is None and (budget.steps or budget.rollouts):
        raise OverBudget(
            f"{place}: the project has a budget, so say how long the run is: set max_steps"
        )
    if budget.steps is not None and steps is not None and steps > budget.steps:
        name = "dry_steps" if isinstance(spec, CheckSpec) else "max_steps"
        raise OverBudget(
            f"{file.document.place_of('budget.steps')}: at most {budget.steps} steps a run; "
            f"{name} is {steps}"
        )
    if budget.rollouts is None or spec.kind not in _LEVERS:
        return
    place, levers = file.document.place_of("budget.rollouts"), _LEVERS[spec.kind]
    most = most_rollouts(spec)
    if most is None:
        raise OverBudget(f"{place}: the project has a budget of rollouts, so set {levers}")
    if most > budget.rollouts:
        raise OverBudget(
            f"{place}: at most {budget.rollouts:,} rollouts a run; this one could play {most:,}; "
            f"lower {levers}"
        )


def steps_of(spec: RunSpec) -> int | None:
    """Optimizer steps, also those of a check, which are thrown away."""
    if isinstance(spec, TrainSpec):
        return spec.settings.max_steps
    return spec.dry_steps if isinstance(spec, CheckSpec) else None


def most_rollouts(spec: RunSpec) -> int | None:
    """With every group replaced that may be, and validation before each checkpoint; None where
    nobody can tell."""
    if isinstance(spec, TrainSpec):
        steps = spec.settings.max_steps
        if steps is None:
            return None
        return _learned_from(spec, spec.settings, steps) + _validated(spec.settings, steps)
    if isinstance(spec, CheckSpec):
        played = spec.rollouts * (spec.cases + spec.other_cases * len(spec.others))
        timed = spec.settings.num_generations
        return played + timed + _learned_from(spec, spec.settings, spec.dry_steps)
    if isinstance(spec, ProveSpec):
        return None if spec.cases is None else 2 * spec.rollouts * spec.cases
    if isinstance(spec, EvalSpec):
        return None if spec.cases is None else spec.cases * spec.play.num_generations
    return 0


def rollouts_of_a_step(spec: TrainSpec | CheckSpec) -> int:
    settings = spec.settings
    groups = settings.cases_per_batch * settings.gradient_accumulation_steps
    return spec.processes * spec.nodes * groups * settings.num_generations


def _learned_from(spec: TrainSpec | CheckSpec, settings: TrainSettings, steps: int) -> int:
    groups = settings.cases_per_batch * settings.gradient_accumulation_steps
    replaced = groups if settings.replacement_groups is None else settings.replacement_groups
    world = spec.processes * spec.nodes
    return steps * world * (groups + replaced) * settings.num_generations


def _validated(settings: TrainSettings, steps: int) -> int:
    told = settings.validation_cases
    per_checkpoint = _VALIDATION_CASES if told is None else told
    return per_checkpoint * (steps // settings.checkpoint_steps + 2)
