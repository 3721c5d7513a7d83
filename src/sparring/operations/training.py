"""Starting a training."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sparring.contracts.specs import Frozen
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.budgets import refuse_over_budget
from sparring.operations.operation import Caller, Role, operation
from sparring.operations.proving import start_proof_after
from sparring.operations.settling import settle
from sparring.operations.starting import Started, start


class StartTrain(Frozen):
    target: str = Field(description="name of an environment; for owners also FILE:NAME")
    settings: dict[str, Any] = Field(default_factory=dict)
    prove: bool = Field(default=True, description="prove it on held-out cases when it is done")


@operation("train.start", role=Role.OPERATOR, changes_state=True)
def start_train(request: StartTrain, caller: Caller) -> Started:
    """Train an environment's agent, as a run of its own."""
    settled = settle(request.target, "train", request.settings, caller)
    refuse_over_budget(settled)
    spec = TrainSpec(
        **settled.shared(),
        settings=TrainSettings.model_validate(settled.own()),
        processes=settled.values["processes"],
        nodes=settled.values["nodes"],
        rendezvous=settled.values["rendezvous"],
    )
    budget = settled.project.file.budget
    started = start(spec, caller, runs_at_once=budget.runs_at_once)
    if not request.prove:
        return started
    return started.model_copy(update={"proof": start_proof_after(started, spec, caller, budget)})
