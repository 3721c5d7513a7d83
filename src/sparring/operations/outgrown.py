"""Whether a run that was started some time ago is still within what a person has set since."""

from __future__ import annotations

from typing import Any

from sparring.contracts.errors import LockedField
from sparring.contracts.proof_specs import AuditSpec, CheckSpec, ProveSpec
from sparring.contracts.specs import EvalSpec, PlaySettings, RunSpec
from sparring.contracts.training import TrainSpec
from sparring.operations.budgets import refuse_over_budget
from sparring.operations.operation import Caller
from sparring.operations.settling import COMMAND, Settled, settle
from sparring.settings.fields import Kind
from sparring.settings.names import flatten, nested
from sparring.settings.resolving import same

_OF_A_PROOF = frozenset(PlaySettings.model_fields) - {"num_generations", "seed"}
_ABSENT = object()


def refuse_outgrown(spec: RunSpec, caller: Caller) -> None:
    """For operators: a run goes on, or is proved, only as it could be started now. What it set
    itself must be free, all else as the project has it, and all of it within the budget."""
    kind: Kind = "eval" if isinstance(spec, EvalSpec | AuditSpec) else "train"
    settled = settle(spec.environment, kind, nested(asked_of(spec)), caller)
    refuse_over_budget(spec, settled.budget, settled.project.file)
    then, now = every_setting(spec), _today(settled)
    names = _OF_A_PROOF if isinstance(spec, ProveSpec) else now.keys() | then.keys()
    for name in sorted(names):
        lock = settled.lock_on(name)
        before, today = then.get(name, _ABSENT), now.get(name, _ABSENT)
        if before is _ABSENT and "." not in name:  # runs of this kind have no such setting
            continue
        if lock is not None and not same(before, today):
            raise LockedField(
                f"{name} is locked to {_words(today)} by {lock.source}, and this run was started "
                f"with {_words(before)}; plan a new one"
            )


def settings_of(spec: RunSpec) -> dict[str, Any]:
    """What was set for a run, by dotted name; defaults are left to be what they are now."""
    every = every_setting(spec)
    return {name: every[name] for name in spec.sources if name in every}


def asked_of(spec: RunSpec) -> dict[str, Any]:
    """Of those, what was asked for this very run; the rest is as the project has it."""
    told = settings_of(spec).items()
    return {name: value for name, value in told if spec.sources[name] == COMMAND}


def every_setting(spec: RunSpec) -> dict[str, Any]:
    """All of them, by dotted name, as a run has them."""
    told = spec.model_dump(mode="json")
    values = {**told.get("settings", {}), **told.get("play", {}), **told["supervision"]}
    if isinstance(spec, TrainSpec | CheckSpec):
        values |= {name: told.get(name) for name in ("processes", "nodes")}
    if isinstance(spec, TrainSpec):
        values["rendezvous"] = spec.rendezvous
    values |= {"config": spec.config, "model": spec.policy.model, "family": spec.policy.family}
    return dict(flatten(values))


def _today(settled: Settled) -> dict[str, Any]:
    """What a run of this environment would have now."""
    shared = settled.shared()
    values = {**settled.typed().model_dump(mode="json")}
    values |= shared["supervision"].model_dump(mode="json")
    beside = ("processes", "nodes", "rendezvous", "model", "family")
    values |= {name: settled.values[name] for name in beside if name in settled.values}
    return dict(flatten({**values, "config": settled.config}))


def _words(value: Any) -> str:
    return "nothing" if value is _ABSENT else repr(value)[:200]
