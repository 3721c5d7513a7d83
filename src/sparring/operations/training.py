"""Starting a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from sparring.contracts.errors import InvalidInput, RunNotFound
from sparring.contracts.specs import Frozen
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.budgets import refuse_over_budget
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.proving import proof_of, start_proof_after, within
from sparring.operations.settling import Settled, settle
from sparring.operations.starting import Started, start
from sparring.runs.finding import find_run


class StartTrain(Frozen):
    environment: str = Field(description="its name; for owners also FILE:NAME")
    settings: dict[str, Any] = Field(default_factory=dict)
    prove: bool = Field(default=True, description="prove it on held-out cases when it is done")


@operation(
    "train.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="train", python="sparring.train", known_as=("fit", "launch_training")),
)
def start_train(request: StartTrain, caller: Caller) -> Started:
    """Train an environment's agent, as a run of its own."""
    settled = settle(request.environment, "train", request.settings, caller)
    spec = training_of(settled)
    if spec.settings.warm_start is not None:
        _refuse_missing(spec.settings.warm_start.source, caller)
    return begin_training(spec, settled, caller, proves=request.prove)


def _refuse_missing(demonstrations: str, caller: Caller) -> None:
    """Before there is a run that would fail a minute later."""
    if Path(demonstrations).is_file():
        return
    try:
        find_run(caller.runs, Path(demonstrations).name)
    except RunNotFound:
        raise InvalidInput(
            f"warm_start.source: there is no file, and no run, {demonstrations!r}"
        ) from None


def training_of(settled: Settled) -> TrainSpec:
    """What would be started, if the project's budget allows it."""
    spec = TrainSpec(
        **settled.shared(),
        settings=TrainSettings.model_validate(settled.own()),
        processes=settled.values["processes"],
        nodes=settled.values["nodes"],
        rendezvous=settled.values["rendezvous"],
    )
    refuse_over_budget(spec, settled.budget, settled.project.file)
    return spec


def begin_training(
    spec: TrainSpec, settled: Settled, caller: Caller, *, proves: bool, name: str | None = None
) -> Started:
    budget = settled.budget
    if proves:
        within(budget, proof_of("", spec))  # before anything is started
    started = start(spec, caller, runs_at_once=budget.runs_at_once, name=name)
    if not proves:
        return started
    return started.model_copy(update={"proof": start_proof_after(started, spec, caller, budget)})
