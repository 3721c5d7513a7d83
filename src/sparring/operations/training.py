"""Starting a training, going on with it, joining it from another host, reading its result."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sparring.contracts.errors import InvalidInput, NotPermitted, SparringError
from sparring.contracts.specs import Frozen
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.budgets import refuse_over_budget
from sparring.operations.evaluating import RunQuery, Summary
from sparring.operations.operation import Caller, Role, operation
from sparring.operations.settling import settle
from sparring.operations.starting import Started, begin, code_digest, create_run, go_on
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.runs.local import find_run


class StartTrain(Frozen):
    target: str = Field(description="name of an environment; for owners also FILE:NAME")
    settings: dict[str, Any] = Field(default_factory=dict)


class ResumeTrain(Frozen):
    run: str
    accept_changes: bool = False


@operation("train.start", role=Role.OPERATOR, changes_state=True)
def start_train(request: StartTrain, caller: Caller) -> Started:
    """Train an environment's agent, as a run of its own."""
    settled = settle(request.target, "train", request.settings, caller)
    refuse_over_budget(settled, caller.runs)
    spec = TrainSpec(
        target=settled.found.target,
        config=settled.config,
        policy=settled.policy(),
        settings=TrainSettings.model_validate(settled.own()),
        processes=settled.values["processes"],
        nodes=settled.values["nodes"],
        rendezvous=settled.values["rendezvous"],
        hours=settled.project.file.budget.hours,
        sources=settled.sources(),
        code_digest=code_digest(settled.found.target),
    )
    return begin(create_run(caller.runs, settled.found.name, spec))


@operation("train.resume", role=Role.OPERATOR, changes_state=True)
def resume_train(request: ResumeTrain, caller: Caller) -> Started:
    """Go on from the newest checkpoint; a run that runs or is done is left alone."""
    folder, spec = _training(request.run, caller)
    if caller.role < Role.OWNER and request.accept_changes:
        raise NotPermitted("whether a change of code matters is the owner's to say")
    return go_on(folder, spec.target, spec.code_digest, accept_changes=request.accept_changes)


@operation("train.join", role=Role.OWNER, changes_state=True)
def join_train(request: RunQuery, caller: Caller) -> Started:
    """Bring this host's processes into a training that was started on another host."""
    folder, spec = _training(request.run, caller)
    if spec.nodes < 2:
        raise InvalidInput(f"run {folder.id} is for one host; start it with --nodes 2 or more")
    return begin(folder)


@operation("train.summary", role=Role.VIEWER, changes_state=False)
def train_summary(request: RunQuery, caller: Caller) -> Summary:
    """What a finished training showed."""
    folder, _ = _training(request.run, caller)
    if not folder.summary.is_file():
        raise SparringError(
            f"run {folder.id} has no result yet; go on with it: sparring train --resume {folder.id}"
        )
    return Summary(run=folder.id, summary=read_json(folder.summary))


def _training(run: str, caller: Caller) -> tuple[RunFolder, TrainSpec]:
    folder = find_run(caller.runs, run)
    spec = folder.read_spec()
    if spec.get("kind") != "train":
        raise InvalidInput(f"run {folder.id} is of kind {spec.get('kind')}, not train")
    return folder, TrainSpec.model_validate(spec)
