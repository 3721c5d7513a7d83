"""Checks a run's spec against the project's budget.

The check reads the spec, not the settings, so that it also applies to a run that is resumed.
"""

from __future__ import annotations

from sparring.contracts.errors import OverBudget
from sparring.contracts.kinds import run_kind
from sparring.contracts.specs import RunSpec
from sparring.settings.project_file import Budget, ProjectFile


def refuse_over_budget(spec: RunSpec, budget: Budget, file: ProjectFile) -> None:
    """Raise OverBudget if a run of this spec could exceed the budget's steps or rollouts.

    The other limits apply later: beyond `runs_at_once` a run waits, and after `hours` it is
    stopped.
    """
    kind, steps = run_kind(spec.kind, "the run"), spec.optimizer_steps
    place = file.document.place_of("budget")
    if steps is None and (budget.steps or budget.rollouts):
        raise OverBudget(
            f"{place}: the project has a budget, so the run needs a length: set max_steps"
        )
    if budget.steps is not None and steps is not None and steps > budget.steps:
        raise OverBudget(
            f"{file.document.place_of('budget.steps')}: at most {budget.steps} steps per run; "
            f"{kind.steps_setting} is {steps}"
        )
    settings = kind.budget_settings
    if budget.rollouts is None or not settings:
        return
    place, most = file.document.place_of("budget.rollouts"), spec.max_rollouts
    if most is None:
        raise OverBudget(f"{place}: the project has a budget of rollouts, so set {settings}")
    if most > budget.rollouts:
        raise OverBudget(
            f"{place}: at most {budget.rollouts:,} rollouts per run; this one could play {most:,}; "
            f"lower {settings}"
        )
