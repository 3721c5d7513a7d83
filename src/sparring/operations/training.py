"""Operation that starts a training run."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from sparring.contracts.errors import InvalidInput, RunNotFound
from sparring.contracts.specs import Frozen, Table
from sparring.contracts.training import TrainSpec
from sparring.operations.budgets import refuse_over_budget
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.proving import proof_of, start_proof_after, within
from sparring.operations.resolution import RunSettings, resolve_run
from sparring.operations.starting import Started, start
from sparring.run_folder import RunFolder
from sparring.runs.finding import find_run


class StartTrain(Frozen):
    """The training run to start."""

    environment: str = Field(description="name of the environment; for owners also FILE:NAME")
    settings: Table = Field(default_factory=dict)
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
    spec = training_of(run_settings)
    if (warm_start := spec.settings.warm_start) is not None:
        found = warm_start.model_copy(update={"source": _find_source(warm_start.source, caller)})
        settings = spec.settings.model_copy(update={"warm_start": found})
        spec = spec.model_copy(update={"settings": settings})
    return begin_training(spec, run_settings, caller, proves=request.prove)


def _find_source(demonstrations: str, caller: Caller) -> str:
    """Return the path of a file or of a run's folder, or the id of the run that a short name
    identifies. Raises InvalidInput, before a run is created, if there is neither."""
    path = Path(demonstrations)
    if path.is_file() or RunFolder(path).spec.is_file():
        return demonstrations
    try:
        return find_run(caller.runs, path.name).id
    except RunNotFound:
        raise InvalidInput(
            f"warm_start.source: there is no file and no run {demonstrations!r}"
        ) from None


def training_of(run_settings: RunSettings) -> TrainSpec:
    """Return the spec of a training run. Raise OverBudget if it exceeds the budget."""
    spec = TrainSpec(
        **run_settings.shared(),
        settings=run_settings.train_settings,
        processes=run_settings.values["processes"],
        nodes=run_settings.values["nodes"],
        rendezvous=run_settings.values["rendezvous"],
    )
    refuse_over_budget(spec, run_settings.budget, run_settings.project.file)
    return spec


def begin_training(
    spec: TrainSpec,
    run_settings: RunSettings,
    caller: Caller,
    *,
    proves: bool,
    name: str | None = None,
) -> Started:
    """Start a training and, if `proves`, queue its proof."""
    budget = run_settings.budget
    if proves:
        within(budget, proof_of("", spec))  # raises OverBudget before anything is started
    started = start(spec, caller, runs_at_once=budget.runs_at_once, name=name)
    if not proves:
        return started
    return started.model_copy(update={"proof": start_proof_after(started, spec, caller, budget)})
