"""Starting a training, going on with it, joining it from another host, reading its result.

Starting takes the owner for now, as for evaluations: whoever starts a run picks the file that
is executed.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pydantic import Field

from sparring.contracts.errors import InvalidInput, SettingError, SparringError
from sparring.contracts.refused_settings import OURS
from sparring.contracts.specs import Frozen, PolicySpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.evaluating import RunQuery, Summary
from sparring.operations.operation import Caller, Role, operation
from sparring.operations.starting import (
    Started,
    absolute,
    begin,
    code_digest,
    create_run,
    refuse_changed_code,
    told,
)
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.runs.local import RunState, find_run, is_held, status_of


class StartTrain(Frozen):
    target: str
    policy: PolicySpec = PolicySpec()
    settings: dict[str, Any] = Field(default_factory=dict)
    processes: int = 1
    nodes: int = 1
    rendezvous: str | None = None


class ResumeTrain(Frozen):
    run: str
    accept_changes: bool = False


@operation("train.start", role=Role.OWNER, changes_state=True)
def start_train(request: StartTrain, caller: Caller) -> Started:
    """Train an environment's agent, as a run of its own."""
    _refuse_unknown(request.settings)
    spec = TrainSpec(
        target=absolute(request.target),
        policy=request.policy,
        settings=_found_again(TrainSettings.model_validate(request.settings)),
        processes=request.processes,
        nodes=request.nodes,
        rendezvous=request.rendezvous,
        code_digest=code_digest(request.target),
    )
    return begin(create_run(caller.runs, request.target, spec))


@operation("train.resume", role=Role.OWNER, changes_state=True)
def resume_train(request: ResumeTrain, caller: Caller) -> Started:
    """Go on from the newest checkpoint; a run that runs or is done is left alone."""
    folder, spec = _training(request.run, caller)
    if is_held(folder) or status_of(folder).state is RunState.COMPLETED:
        return told(folder, None)
    if not request.accept_changes:
        refuse_changed_code(folder, spec.target, spec.code_digest)
    return begin(folder, accept_changes=request.accept_changes)


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


def _found_again(settings: TrainSettings) -> TrainSettings:
    """A file of demonstrations by its full path: a run can be resumed from anywhere."""
    warm = settings.warm_start
    if warm is None or not Path(warm.source).exists():
        return settings
    placed = warm.model_copy(update={"source": str(Path(warm.source).resolve())})
    return settings.model_copy(update={"warm_start": placed})


def _refuse_unknown(settings: dict[str, Any]) -> None:
    known = TrainSettings.model_fields
    for name in settings:
        if name in OURS:
            raise SettingError(f"{name}: {OURS[name]}")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"TRL's own go to engine.{name}"
            raise SettingError(f"{name}: there is no such setting; {hint}")
