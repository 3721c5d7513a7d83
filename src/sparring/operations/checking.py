"""Operations that start a check of an environment, or an audit of its measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, ValidationError

from sparring.contracts.command_line import ENVIRONMENT, SettingsOnCommandLine
from sparring.contracts.errors import InvalidInput, NotPermitted
from sparring.contracts.kinds import (
    OPENROUTER,
    OPENROUTER_KEY,
    OPENROUTER_MODELS,
    AuditSpec,
    CheckSpec,
)
from sparring.contracts.specs import EndpointSpec, Frozen, Table
from sparring.operations.operation import FOR_OWNERS, Caller, Forms, Role, operation
from sparring.operations.resolution import fields_for, resolve_run
from sparring.operations.starting import Started, start
from sparring.secrets import read_key


class StartCheck(Frozen):
    """The environment to check, and how much to play."""

    environment: Annotated[str, ENVIRONMENT] = Field(
        description="name of the environment; owners may also give FILE:NAME"
    )
    cases: int = Field(
        default=12,
        ge=2,
        le=1000,
        description="number of training cases to play with the model that will be trained",
    )
    rollouts: int = Field(default=16, ge=2, le=256, description="number of rollouts per case")
    compare: tuple[str, ...] | None = Field(
        default=None,
        description="another model that plays the cases, for comparison: MODEL@URL, the name of a "
        "model on OpenRouter, or none; default: models on OpenRouter, if OPENROUTER_API_KEY is set",
        json_schema_extra=FOR_OWNERS,
    )
    key_variable: str | None = Field(
        default=None,
        description="environment variable that holds the key of compared models at a URL; default: "
        "OPENAI_API_KEY for OpenAI, OPENROUTER_API_KEY for OpenRouter, no key for other servers",
        json_schema_extra=FOR_OWNERS,
    )
    other_cases: int = Field(
        default=3, ge=1, le=1000, description="number of cases to play with each further model"
    )
    minutes: float = Field(
        default=10.0, gt=0, le=1440, description="time limit for each model, in minutes"
    )
    dry_steps: int = Field(
        default=2,
        ge=0,
        le=20,
        description="training steps that are tried and discarded, for the estimate; 0 for none",
    )
    price_per_hour: float | None = Field(
        default=None, gt=0, description="price of one machine per hour, for an estimate of the cost"
    )
    settings: Annotated[
        Table,
        SettingsOnCommandLine(
            "train",
            ("model", "num_generations", "launcher"),
            title="Settings of the planned training",
        ),
    ] = Field(default_factory=dict, description="settings of the planned training")


class StartAudit(Frozen):
    """The environment to audit."""

    environment: Annotated[str, ENVIRONMENT] = Field(
        description="name of the environment; owners may also give FILE:NAME"
    )
    cases: int = Field(default=8, ge=2, le=1000, description="cases that null players answer")
    settings: Table = Field(default_factory=dict)


@operation(
    "check.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="check", tool="check_environment", python="sparring.check"),
)
def start_check(request: StartCheck, caller: Caller) -> Started:
    """Check whether an environment is learnable, and estimate the time and cost of training.

    The check is a run in the background that takes some minutes. Its results are a verdict
    (learnable, too easy, too hard, broken, …), the reason, the next step, and the estimate.
    """
    if not caller.is_owner and (request.compare is not None or request.key_variable):
        raise NotPermitted(
            "only the owner may choose servers that play; leave out `compare` and `key_variable`"
        )
    run_settings = resolve_run(request.environment, "train", request.settings, caller)
    if request.compare is None:
        others = _default_models(caller)
    else:
        others = compared_models(request.compare, request.key_variable)
    own = {**fields_for(CheckSpec, request), "others": others}
    spec = run_settings.spec(CheckSpec, **own)
    return start(spec, caller, runs_at_once=run_settings.budget.runs_at_once)


def compared_models(names: Sequence[str], key_variable: str | None) -> tuple[EndpointSpec, ...]:
    """Return the endpoints of models named `MODEL@URL`, or `MODEL` on OpenRouter; none if `none` is
    the only name."""
    if "none" in names:
        if len(names) > 1:
            raise InvalidInput("--compare none excludes other models; leave it out, or the models")
        return ()
    endpoints = []
    for name in names:
        model, at, url = name.partition("@http")
        given = {"base_url": f"http{url}", "model": model}
        if at and key_variable:
            given["key_variable"] = key_variable
        elif not at and "@" in name and "@preset/" not in name:  # OpenRouter's presets have names
            raise InvalidInput(f"--compare {name} names no URL; write MODEL@http://…")
        elif not at:
            if read_key(OPENROUTER_KEY) is None:
                raise InvalidInput(
                    f"--compare {name} has no @URL and so means a model on OpenRouter, but "
                    f"{OPENROUTER_KEY} is not set: set it, or write {name}@http://…"
                )
            given = {"base_url": OPENROUTER, "model": name, "key_variable": OPENROUTER_KEY}
        try:
            endpoints.append(EndpointSpec.model_validate(given))
        except ValidationError as error:
            message = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise InvalidInput(f"--compare {name}: {message}") from error
    return tuple(endpoints)


@operation(
    "audit.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="audit", python="sparring.audit"),
)
def start_audit(request: StartAudit, caller: Caller) -> Started:
    """Audit an environment's measures with null players, which give fixed answers."""
    run_settings = resolve_run(request.environment, "eval", request.settings, caller)
    spec = run_settings.spec(AuditSpec, **fields_for(AuditSpec, request))
    return start(spec, caller, runs_at_once=run_settings.budget.runs_at_once)


def _default_models(caller: Caller) -> tuple[EndpointSpec, ...]:
    """Return OpenRouter's models for an owner with a key; operators must not spend the credit."""
    if not caller.is_owner or read_key(OPENROUTER_KEY) is None:
        return ()
    return tuple(
        EndpointSpec(base_url=OPENROUTER, model=model, key_variable=OPENROUTER_KEY)
        for model in OPENROUTER_MODELS
    )
