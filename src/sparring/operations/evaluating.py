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
from sparring.operations.operation import Caller, Role, operation
from sparring.operations.settling import settle
from sparring.operations.starting import Started, start


class StartEval(Frozen):
    target: str = Field(description="name of an environment; for owners also FILE:NAME")
    split: Split = Split.VALIDATION
    cases: int | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    servers: PolicySpec | None = Field(default=None, description="who plays instead of weights")


@operation("eval.start", role=Role.OPERATOR, changes_state=True)
def start_eval(request: StartEval, caller: Caller) -> Started:
    """Play an environment's cases and judge them, as a run of its own."""
    if caller.role < Role.OWNER and (request.servers or request.split is Split.HELD_OUT):
        raise NotPermitted("which servers are played, and held-out cases, are the owner's to say")
    command = dict(request.settings)
    if request.servers is not None and request.servers.model is not None:
        command["model"] = request.servers.model  # locks hold for servers, too
    settled = settle(request.target, "eval", command, caller)
    refuse_over_budget(settled, cases=request.cases)
    shared = settled.shared()
    spec = EvalSpec(
        **{**shared, "policy": request.servers or shared["policy"]},
        split=request.split,
        cases=request.cases,
        play=PlaySettings.model_validate(settled.own()),
    )
    return start(spec, caller, runs_at_once=settled.project.file.budget.runs_at_once)
