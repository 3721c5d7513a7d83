"""Starting a look before training: a check of an environment, or an audit of its measures."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sparring.contracts.errors import NotPermitted
from sparring.contracts.proof_specs import (
    OPENROUTER,
    OPENROUTER_KEY,
    OPENROUTER_MODELS,
    AuditSpec,
    CheckSpec,
)
from sparring.contracts.specs import EndpointSpec, Frozen, PlaySettings
from sparring.contracts.training import TrainSettings
from sparring.operations.budgets import refuse_over_budget
from sparring.operations.operation import FOR_OWNERS, Caller, Forms, Role, operation
from sparring.operations.settling import settle
from sparring.operations.starting import Started, start
from sparring.secrets import read_key


class StartCheck(Frozen):
    environment: str = Field(description="its name; for owners also FILE:NAME")
    cases: int = Field(default=12, ge=2, le=1000, description="that the model to be trained plays")
    rollouts: int = Field(default=16, ge=2, le=256, description="of each case")
    others: tuple[EndpointSpec, ...] | None = Field(
        default=None,
        description="models that play it, too; by default OpenRouter's, where a key is set",
        json_schema_extra=FOR_OWNERS,
    )
    other_cases: int = Field(default=3, ge=1, le=1000, description="that each of them plays")
    minutes: float = Field(default=10.0, gt=0, le=1440, description="for each model")
    dry_steps: int = Field(default=2, ge=0, le=20, description="steps that are tried")
    price_per_hour: float | None = Field(default=None, gt=0, description="of the machine")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="those of the training that is planned"
    )


class StartAudit(Frozen):
    environment: str = Field(description="its name; for owners also FILE:NAME")
    cases: int = Field(default=8, ge=2, le=1000, description="cases that null players answer")
    settings: dict[str, Any] = Field(default_factory=dict)


@operation(
    "check.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(
        cli="check", tool="check_environment", known_as=("test_environment", "test_inference")
    ),
)
def start_check(request: StartCheck, caller: Caller) -> Started:
    """Find out whether an environment can be learned from, and what training it would take.

    It is a run that goes on by itself, for minutes. Its results have a verdict (learnable, too
    easy, too hard, broken, …), why, what to do about it, and an estimate of the training.
    """
    if not caller.is_owner and request.others is not None:
        raise NotPermitted("which servers are played is the owner's to say; leave `others` out")
    settled = settle(request.environment, "train", request.settings, caller)
    others = _default_models(caller) if request.others is None else request.others
    spec = CheckSpec(
        **settled.shared(),
        settings=TrainSettings.model_validate(settled.own()),
        processes=settled.values["processes"],
        nodes=settled.values["nodes"],
        cases=request.cases,
        rollouts=request.rollouts,
        others=others,
        other_cases=request.other_cases,
        minutes=request.minutes,
        dry_steps=request.dry_steps,
        price_per_hour=request.price_per_hour,
    )
    refuse_over_budget(spec, settled.budget, settled.project.file)
    return start(spec, caller, runs_at_once=settled.budget.runs_at_once)


@operation(
    "audit.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="audit measures", known_as=("lint_rewards",)),
)
def start_audit(request: StartAudit, caller: Caller) -> Started:
    """Look for faults in an environment's measures, with players that know nothing."""
    settled = settle(request.environment, "eval", request.settings, caller)
    spec = AuditSpec(
        **settled.shared(),
        cases=request.cases,
        play=PlaySettings.model_validate(settled.own()),
    )
    return start(spec, caller, runs_at_once=settled.budget.runs_at_once)


def _default_models(caller: Caller) -> tuple[EndpointSpec, ...]:
    """Whom to ask on whose bill is the owner's to say."""
    if not caller.is_owner or read_key(OPENROUTER_KEY) is None:
        return ()
    return tuple(
        EndpointSpec(base_url=OPENROUTER, model=model, key_variable=OPENROUTER_KEY)
        for model in OPENROUTER_MODELS
    )
