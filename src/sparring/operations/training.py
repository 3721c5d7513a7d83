"""Operation that starts a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from sparring.contracts.command_line import ENVIRONMENT, SettingsOnCommandLine
from sparring.contracts.errors import InvalidInput
from sparring.contracts.specs import Frozen, Table
from sparring.contracts.training import TrainSpec
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.plans.estimating import expected_hours
from sparring.operations.proving import proof_of, start_proof_after, within
from sparring.operations.resolution import resolve_run
from sparring.operations.starting import Started, start
from sparring.run_folder import RunFolder
from sparring.settings.project_file import Budget


class StartTrain(Frozen):
    """The training run to start."""

    environment: Annotated[str, ENVIRONMENT] = Field(
        description="name of the environment; owners may also give FILE:NAME"
    )
    settings: Annotated[Table, SettingsOnCommandLine("train")] = Field(default_factory=dict)
    prove: bool = Field(
        default=True, description="start a proof on held-out cases when the training completes"
    )


@operation(
    "train.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="train", python="sparring.train"),
)
def start_train(request: StartTrain, caller: Caller) -> Started:
    """Start a run that trains an environment's agent."""
    run_settings = resolve_run(request.environment, "train", request.settings, caller)
    spec = run_settings.spec(TrainSpec)
    _refuse_missing_source(spec, caller)
    return begin_training(spec, run_settings.budget, caller, proves=request.prove)


def _refuse_missing_source(spec: TrainSpec, caller: Caller) -> None:
    """Raise InvalidInput, before a run is created, if there is nothing to start from."""
    if (warm_start := spec.settings.warm_start) is None:
        return
    path = Path(warm_start.source)
    is_run = any(RunFolder(each).spec.is_file() for each in (path, caller.runs / path))
    if not path.is_file() and not is_run:
        raise InvalidInput(f"warm_start.source: there is no file and no run {warm_start.source!r}")


def begin_training(
    spec: TrainSpec,
    budget: Budget,
    caller: Caller,
    *,
    proves: bool,
    name: str | None = None,
) -> Started:
    """Start a training and, if `proves`, queue its proof."""
    if proves:
        within(budget, proof_of("", spec))  # raises OverBudget before anything is started
    started = start(spec, caller, runs_at_once=budget.runs_at_once, name=name)
    started = started.model_copy(update={"expected_hours": expected_hours(spec, caller)})
    if not proves:
        return started
    return started.model_copy(update={"proof": start_proof_after(started, spec, caller, budget)})
