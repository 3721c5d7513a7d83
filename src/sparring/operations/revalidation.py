"""Checks an existing run against the current locks and budget."""

from __future__ import annotations

from typing import Any

from sparring.contracts.errors import LockedField
from sparring.contracts.proof_specs import AuditSpec, CheckSpec, ProveSpec
from sparring.contracts.ship_specs import ShipSpec
from sparring.contracts.specs import COMMAND, EvalSpec, PlaySettings, RunSpec, Table
from sparring.contracts.training import TrainSpec
from sparring.operations.budgets import refuse_over_budget
from sparring.operations.operation import Caller
from sparring.operations.resolution import RunSettings, resolve_run
from sparring.settings.fields import Kind
from sparring.settings.layers import same
from sparring.settings.names import flatten, nested

_PROOF_SETTINGS = frozenset(PlaySettings.model_fields) - {"num_generations", "seed"}
_ABSENT = object()


def revalidate(spec: RunSpec, caller: Caller) -> None:
    """Raise LockedField or OverBudget if the caller could not start this run now.

    Settings that the run's command set must not be locked, locked settings must have the project's
    values, and the run must be within the budget.
    """
    kind: Kind = "eval" if isinstance(spec, EvalSpec | AuditSpec) else "train"
    run_settings = resolve_run(spec.environment, kind, nested(request_of(spec)), caller)
    refuse_over_budget(spec, run_settings.budget, run_settings.project.file)
    then, now = all_settings(spec), _today(run_settings)
    names = _PROOF_SETTINGS if isinstance(spec, ProveSpec | ShipSpec) else now.keys() | then.keys()
    for name in sorted(names):
        lock = run_settings.lock_on(name)
        before, today = then.get(name, _ABSENT), now.get(name, _ABSENT)
        if before is _ABSENT and "." not in name:  # runs of this kind have no such setting
            continue
        if before == {} or today == {}:  # the fields of a table are compared one by one
            continue
        if lock is not None and not same(before, today):
            raise LockedField(
                f"{name} is locked to {_as_text(today)} by {lock.source}, and this run was started "
                f"with {_as_text(before)}; plan a new run"
            )


def settings_of(spec: RunSpec) -> Table:
    """Return the settings of a run that are not defaults, by dotted name."""
    settings = all_settings(spec)
    return {name: settings[name] for name in spec.sources if name in settings}


def request_of(spec: RunSpec) -> Table:
    """Return the settings that the command set for this run, by dotted name."""
    settings = settings_of(spec).items()
    return {name: value for name, value in settings if spec.sources[name] == COMMAND}


def all_settings(spec: RunSpec) -> Table:
    """Return all settings of a run, by dotted name."""
    tables = spec.model_dump(mode="json")
    values = {**tables.get("settings", {}), **tables.get("play", {}), **tables["supervision"]}
    if isinstance(spec, TrainSpec | CheckSpec):
        values |= {name: tables.get(name) for name in ("processes", "nodes")}
    if isinstance(spec, TrainSpec):
        values["rendezvous"] = spec.rendezvous
    values |= {"config": spec.config, "model": spec.policy.model, "family": spec.policy.family}
    return dict(flatten(values))


def _today(run_settings: RunSettings) -> Table:
    """Return the settings that a new run of this environment would have."""
    shared = run_settings.shared()
    values = run_settings.settings.model_dump(mode="json")
    values |= shared["supervision"].model_dump(mode="json")
    names = ("processes", "nodes", "rendezvous", "model", "family")
    values |= {name: run_settings.values[name] for name in names if name in run_settings.values}
    return dict(flatten({**values, "config": run_settings.config}))


def _as_text(value: Any) -> str:
    return "nothing" if value is _ABSENT else repr(value)[:200]
