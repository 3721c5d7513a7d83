"""The kinds of run. Each is one entry of `KINDS`, which both planes read.

A new kind is one entry here, its spec, and what each plane finds by the kind's name: its job in
`sparring.jobs.<kind>`, and its view on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import InvalidInput
from sparring.contracts.proof_specs import AuditSpec, CheckSpec, ProveSpec
from sparring.contracts.ship_specs import ShipSpec
from sparring.contracts.specs import EvalSpec, RunSpec
from sparring.contracts.summaries import (
    AuditSummary,
    CheckSummary,
    EvalSummary,
    ProveSummary,
    ShipSummary,
    Summary,
    TrainSummary,
)
from sparring.contracts.training import TrainSpec


@dataclass(frozen=True, slots=True)
class RunKind:
    """The properties of one kind of run."""

    name: str
    spec: type[RunSpec]
    summary: type[Summary]
    id_prefix: str = ""
    budget_settings: str = ""
    steps_setting: str = "max_steps"
    plays_held_out: bool = False
    has_metrics: bool = False


KINDS: Mapping[str, RunKind] = {
    kind.name: kind
    for kind in (
        RunKind(
            name="train",
            spec=TrainSpec,
            summary=TrainSummary,
            budget_settings="max_steps, replacement_groups or validation_cases",
            has_metrics=True,
        ),
        RunKind(
            name="eval",
            spec=EvalSpec,
            summary=EvalSummary,
            budget_settings="cases",
            plays_held_out=True,
        ),
        RunKind(
            name="check",
            spec=CheckSpec,
            summary=CheckSummary,
            id_prefix="check-",
            budget_settings="cases, rollouts, dry_steps or num_generations",
            steps_setting="dry_steps",
        ),
        RunKind(
            name="audit",
            spec=AuditSpec,
            summary=AuditSummary,
            id_prefix="audit-",
        ),
        RunKind(
            name="prove",
            spec=ProveSpec,
            summary=ProveSummary,
            id_prefix="proof-",
            budget_settings="cases or rollouts",
            plays_held_out=True,
        ),
        RunKind(
            name="ship",
            spec=ShipSpec,
            summary=ShipSummary,
            id_prefix="ship-",
            budget_settings="cases, rollouts or validation_cases",
            plays_held_out=True,
        ),
    )
}


def run_kind(name: str, place: Path | str) -> RunKind:
    """Return the kind called `name`. The error names `place`, the source of the name."""
    if (kind := KINDS.get(name)) is None:
        known = ", ".join(sorted(KINDS))
        raise InvalidInput(f"{place}: kind is {name!r}; this version knows {known}")
    return kind
