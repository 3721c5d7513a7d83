"""Whether a run that was started some time ago is still within what a person has set since."""

from __future__ import annotations

from typing import Any

from sparring.contracts.errors import LockedField, OverBudget
from sparring.contracts.specs import EvalSpec, RunSpec
from sparring.contracts.training import TrainSpec
from sparring.operations.budgets import refuse_over_budget
from sparring.operations.operation import Caller
from sparring.operations.settling import COMMAND, settle
from sparring.settings.names import flatten, nested


def refuse_outgrown(spec: RunSpec, caller: Caller) -> None:
    """An operator's run goes on only as it could be started now: what it set itself under the
    locks of today, the rest as the locks of the file have it, and all within the budget."""
    if not isinstance(spec, TrainSpec | EvalSpec):
        return
    every = settings_of(spec)
    own = {name: value for name, value in every.items() if spec.sources.get(name) == COMMAND}
    settled = settle(spec.environment, spec.kind, nested(own), caller)
    for name, setting in settled.resolved.settings.items():
        if setting.lock is None or not setting.lock.binds_owner:
            continue
        if name in every and every[name] != setting.value:
            raise LockedField(
                f"{name} is locked to {setting.value!r} by {setting.lock.source}, and this run was "
                f"started with {every[name]!r}; plan a new one"
            )
    if isinstance(spec, TrainSpec):
        refuse_over_budget(settled)
        steps, most = spec.settings.max_steps, settled.budget.steps
        if most is not None and (steps is None or steps > most):
            raise OverBudget(
                f"at most {most} steps a run, and this one was started for "
                f"{steps or 'a whole pass'}; plan a new one"
            )


def settings_of(spec: RunSpec) -> dict[str, Any]:
    """What was set for a run, by dotted name; defaults are left to be what they are now."""
    told = spec.model_dump(mode="json")
    values = {**told.get("settings", {}), **told.get("play", {}), **told["supervision"]}
    values |= {name: told.get(name) for name in ("config", "processes", "nodes", "rendezvous")}
    values |= {"model": spec.policy.model, "family": spec.policy.family}
    every = dict(flatten(values))
    return {name: every[name] for name in spec.sources if name in every}
