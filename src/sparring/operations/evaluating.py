"""Operation that starts an evaluation.

Operators choose an environment of the project by name, and use the project's model. Only the owner
chooses which file is executed and which server receives a key.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.command_line import ENVIRONMENT, HIDDEN, SettingsOnCommandLine
from sparring.contracts.errors import NotPermitted
from sparring.contracts.specs import EvalSpec, Frozen, PolicySpec, Table
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.resolution import fields_for, resolve_run
from sparring.operations.starting import Started, start


class StartEval(Frozen):
    """The evaluation to start."""

    environment: Annotated[str, ENVIRONMENT] = Field(
        description="name of the environment; owners may also give FILE:NAME"
    )
    split: Split = Field(default=Split.VALIDATION, description="split to play")
    cases: int | None = Field(
        default=None, ge=1, description="maximum number of cases; default: all"
    )
    settings: Annotated[Table, SettingsOnCommandLine("eval")] = Field(default_factory=dict)
    servers: Annotated[PolicySpec | None, HIDDEN] = Field(
        default=None, description="servers that answer in place of in-process weights"
    )


@operation(
    "eval.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="eval", python="sparring.evaluate"),
)
def start_eval(request: StartEval, caller: Caller) -> Started:
    """Start a run that plays an environment's cases and judges the rollouts."""
    if not caller.is_owner and (request.servers or request.split is Split.HELD_OUT):
        raise NotPermitted("only the owner may choose servers or play held-out cases")
    command = dict(request.settings)
    if request.servers is not None and request.servers.model is not None:
        command["model"] = request.servers.model  # a lock on the model binds servers, too
    run_settings = resolve_run(request.environment, "eval", command, caller)
    spec = run_settings.spec(EvalSpec, **fields_for(EvalSpec, request))
    if request.servers is not None:
        spec = spec.model_copy(update={"policy": _with_thinking(request.servers, spec, command)})
    return start(spec, caller, runs_at_once=run_settings.budget.runs_at_once)


def _with_thinking(servers: PolicySpec, spec: EvalSpec, command: Table) -> PolicySpec:
    """Return the servers with the settings for thinking. A setting of the command comes before one
    given with the servers, and that before one of the evaluation."""
    names = {"thinking", "history_thinking"} - (servers.model_fields_set - command.keys())
    return servers.model_copy(update={name: getattr(spec.play, name) for name in names})
