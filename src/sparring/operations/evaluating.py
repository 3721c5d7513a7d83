"""Starting an evaluation.

An operator starts environments of the project by name, on the project's model: which file is
executed and which server a key is sent to is the owner's to say.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.errors import NotPermitted
from sparring.contracts.specs import EvalSpec, Frozen, PlaySettings, PolicySpec
from sparring.operations.budgets import refuse_over_budget
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.settling import Settled, settle
from sparring.operations.starting import Started, start


class StartEval(Frozen):
    environment: str = Field(description="its name; for owners also FILE:NAME")
    split: Split = Split.VALIDATION
    cases: int | None = Field(default=None, ge=1, description="at most so many")
    settings: dict[str, Any] = Field(default_factory=dict)
    servers: PolicySpec | None = Field(default=None, description="who plays instead of weights")


@operation(
    "eval.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="eval", python="sparring.evaluate", known_as=("evaluate", "test_inference")),
)
def start_eval(request: StartEval, caller: Caller) -> Started:
    """Play an environment's cases and judge them, as a run of its own."""
    if not caller.is_owner and (request.servers or request.split is Split.HELD_OUT):
        raise NotPermitted("which servers are played, and held-out cases, are the owner's to say")
    command = dict(request.settings)
    if request.servers is not None and request.servers.model is not None:
        command["model"] = request.servers.model  # locks hold for servers, too
    settled = settle(request.environment, "eval", command, caller)
    spec = evaluation_of(settled, request.split, request.cases)
    if request.servers is not None:
        spec = spec.model_copy(update={"policy": request.servers})
    return start(spec, caller, runs_at_once=settled.budget.runs_at_once)


def evaluation_of(settled: Settled, split: Split, cases: int | None) -> EvalSpec:
    """What would be started, if the project's budget allows it."""
    spec = EvalSpec(
        **settled.shared(),
        split=split,
        cases=cases,
        play=PlaySettings.model_validate(settled.own()),
    )
    refuse_over_budget(spec, settled.budget, settled.project.file)
    return spec
