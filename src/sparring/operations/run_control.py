"""Steering runs: stop, go on, start another like it, take away, bring in a host."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.errors import (
    IllegalMove,
    InvalidInput,
    NotPermitted,
    OverBudget,
    SparringError,
)
from sparring.contracts.proof_specs import AuditSpec, CheckSpec, ProveSpec
from sparring.contracts.specs import EvalSpec, Frozen, RunSpec
from sparring.contracts.training import TrainSpec
from sparring.operations.evaluating import StartEval, start_eval
from sparring.operations.limits import budget_for
from sparring.operations.operation import FOR_OWNERS, Caller, Forms, Role, operation
from sparring.operations.outgrown import refuse_outgrown, settings_of
from sparring.operations.proving import wait_again
from sparring.operations.run_views import RunQuery, ShownRun
from sparring.operations.runs import show_run
from sparring.operations.starting import Started, begin
from sparring.operations.training import StartTrain, start_train
from sparring.run_folder import RunFolder
from sparring.run_folder.events import note_news, tell, tell_state
from sparring.run_folder.files import write_json
from sparring.runs.claims import newest_epoch
from sparring.runs.finding import find_run
from sparring.runs.history import History, read_history
from sparring.runs.hosts import free_number
from sparring.runs.launching import handle_of, launch, launcher_of
from sparring.runs.lifecycle import RunState, may_become
from sparring.runs.status import attended_status, status_of
from sparring.settings.names import flatten, nested
from sparring.source_files import refuse_changed_code

_SILENT_SECONDS = 5.0
_SPECS: dict[str, type[RunSpec]] = {
    "eval": EvalSpec,
    "train": TrainSpec,
    "check": CheckSpec,
    "audit": AuditSpec,
    "prove": ProveSpec,
}


class ResumeRun(RunQuery):
    accept_changes: bool = Field(
        default=False,
        description="although code or cases have changed",
        json_schema_extra=FOR_OWNERS,
    )
    take_over: bool = Field(
        default=False,
        description="go on here with a run whose host is gone, or has another name",
        json_schema_extra=FOR_OWNERS,
    )


class CloneRun(RunQuery):
    settings: dict[str, Any] = Field(default_factory=dict, description="what is to be different")


class Deleted(Frozen):
    run: str
    bytes: int


class Joined(Frozen):
    run: str
    host: int
    pid: int


@operation(
    "run.stop",
    role=Role.OPERATOR,
    changes_state=True,
    ends=True,
    is_idempotent=True,
    forms=Forms(cli="run stop", tool="stop_run", known_as=("stop_training", "cancel")),
)
def stop_run(request: RunQuery, caller: Caller) -> ShownRun:
    """Ask a run to stop: it makes a checkpoint, and then its processes are ended."""
    folder = find_run(caller.runs, request.run)
    history = read_history(folder).history
    _refuse_of_others(folder, history, caller)
    if not history.state.has_ended:  # the wish comes first: whatever else breaks, it is there
        tell(folder, "stop_requested", author=caller.name)
        note_news(folder)
        if not history.is_supervised:
            write_json(folder.stop_request, {"format": 1})  # nobody else will pass it on
        else:
            _take_back(folder, history.state, caller)
    return show_run(RunQuery(run=folder.id), caller)


@operation(
    "run.resume",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    is_idempotent=True,
    forms=Forms(cli="run resume", tool="resume_run", known_as=("continue_training",)),
)
def resume_run(request: ResumeRun, caller: Caller) -> Started:
    """Go on with a run where it stopped; one that runs or is done is left alone."""
    folder = find_run(caller.runs, request.run)
    spec = read_run_spec(folder)
    _refuse_to_operators(spec, request, caller)
    status = attended_status(folder)
    _refuse_of_others(folder, status.history, caller)
    _refuse_owners_stop(folder, status.history, caller)
    state = status.state
    if request.take_over and status.is_elsewhere:
        return _take_over(folder, status.supervisor)
    if state is RunState.STOPPING:
        raise IllegalMove(
            f"run {folder.id} is still stopping; `sparring run wait {folder.id}`, then resume it"
        )
    if not may_become(state, RunState.QUEUED):
        return Started(run=folder.id, folder=str(folder.path), state=state, is_new=False)
    _refuse_of_python(folder, spec)
    if not request.accept_changes:
        refuse_changed_code(folder.id, spec.target, spec.code_digest)
    if not caller.is_owner:
        refuse_outgrown(spec, caller)
    budget = budget_for(caller.folder, is_owner=caller.is_owner)
    most, hours = budget.runs_at_once, budget.hours
    if hours is not None and status.seconds >= 3600 * hours:
        raise OverBudget(
            f"run {folder.id} has used up its {hours:g} hours; raise [budget] hours to go on"
        )
    tell_state(
        folder,
        RunState.QUEUED,
        author=caller.name,
        after=newest_epoch(folder),
        runs_at_once=most,
        hours=hours,
        accept_changes=request.accept_changes,
    )
    proof = wait_again(folder, caller, budget) if isinstance(spec, TrainSpec) else ""
    return begin(folder, is_limited=most is not None).model_copy(update={"proof": proof})


@operation(
    "run.clone",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="run clone"),
)
def clone_run(request: CloneRun, caller: Caller) -> Started:
    """Start another run like this one, with some settings changed."""
    folder = find_run(caller.runs, request.run)
    spec = read_run_spec(folder)
    _refuse_of_python(folder, spec)
    settings = nested({**settings_of(spec), **dict(flatten(request.settings))})
    # An operator names an environment; the owner may mean the very file.
    target = spec.target if caller.is_owner else spec.environment
    if isinstance(spec, TrainSpec):
        return start_train(StartTrain(environment=target, settings=settings), caller)
    if not isinstance(spec, EvalSpec):
        raise InvalidInput(f"a run of kind {spec.kind} cannot be cloned")
    request_again = StartEval(
        environment=target,
        split=spec.split,
        cases=spec.cases,
        settings=settings,
        servers=spec.policy if spec.policy.endpoints else None,
    )
    return start_eval(request_again, caller)


@operation(
    "run.delete",
    role=Role.OWNER,
    changes_state=True,
    ends=True,
    forms=Forms(cli="run delete"),
)
def delete_run(request: RunQuery, caller: Caller) -> Deleted:
    """Take a run that has ended away, with its rollouts and weights."""
    folder = find_run(caller.runs, request.run)
    if folder.id != request.run:
        raise InvalidInput(f"deleting takes the whole id, so that it hits no other: {folder.id}")
    state = attended_status(folder).state
    if not state.has_ended:
        raise IllegalMove(
            f"run {folder.id} is {state.value}; stop it first: sparring run stop {folder.id}"
        )
    size = sum(
        os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 - as walked
        for place, _, names in os.walk(folder.path)
        for name in names
    )
    gone = folder.path.parent / ".sparring" / f"deleted-{folder.id}"
    folder.path.rename(gone)  # at once: half a run must never look like one
    note_news(folder)
    shutil.rmtree(gone, ignore_errors=True)
    return Deleted(run=folder.id, bytes=size)


@operation("run.join", role=Role.OWNER, changes_state=True, forms=Forms(cli="run join"))
def join_run(request: RunQuery, caller: Caller) -> Joined:
    """Bring this host's processes into a training that was started on another host."""
    folder = find_run(caller.runs, request.run)
    spec = read_run_spec(folder)
    nodes = spec.nodes if isinstance(spec, TrainSpec) else 1
    if nodes < 2:
        raise InvalidInput(f"run {folder.id} is for one host; start it with --nodes 2 or more")
    number = free_number(folder, nodes)
    log = folder.path / "logs" / f"host-{number}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "sparring.runs.hosts", str(folder.path.resolve()), str(number)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Joined(run=folder.id, host=number, pid=process.pid)


def read_run_spec(folder: RunFolder) -> RunSpec:
    spec = folder.read_spec()
    if (model := _SPECS.get(str(spec.get("kind")))) is None:
        raise InvalidInput(f"{folder.spec} describes a run of kind {spec.get('kind')!r}")
    return model.model_validate(spec)


def _refuse_of_python(folder: RunFolder, spec: RunSpec) -> None:
    if spec.target.startswith("(python) "):
        raise InvalidInput(
            f"run {folder.id} was started from Python, with objects that only Python has; call "
            f"train(…, run={folder.id!r}) or evaluate(…, run={folder.id!r}) again"
        )


def _take_back(folder: RunFolder, state: RunState, caller: Caller) -> None:
    """A run that waits, in our queue or in a scheduler's, has no process that could stop it; a
    supervisor that starts at this very moment finds the wish, whichever of the two comes first."""
    is_taken_back = False
    with contextlib.suppress(SparringError, OSError):
        is_taken_back = launcher_of(folder).stop(folder, handle_of(folder))
    if not is_taken_back and state is not RunState.QUEUED:
        return
    if state is not RunState.QUEUED:
        tell_state(folder, RunState.STOPPING, author=caller.name)
    told = {"message": f"stopped by {caller.name}", "exit_code": 103}
    tell_state(folder, RunState.STOPPED, author=caller.name, **told)


def _take_over(folder: RunFolder, told: Mapping[str, Any]) -> Started:
    """Only from a supervisor that says nothing any more: two must not work on one run."""
    time.sleep(_SILENT_SECONDS)
    now = status_of(folder).supervisor
    if now != told:
        raise IllegalMove(f"run {folder.id} is alive on {now.get('host')}; stop it from there")
    launch(folder, newest_epoch(folder) + 1)
    return Started(run=folder.id, folder=str(folder.path))


def _refuse_of_others(folder: RunFolder, history: History, caller: Caller) -> None:
    """An operator steers what it started itself."""
    if not caller.is_owner and history.author != caller.name:
        raise NotPermitted(
            f"run {folder.id} is {history.author or 'somebody else'}'s, and {caller.name} steers "
            "its own runs only; ask the owner"
        )


def _refuse_owners_stop(folder: RunFolder, history: History, caller: Caller) -> None:
    """What the owner has stopped stays stopped, until the owner says otherwise."""
    stopped_by = history.stop_author
    if not caller.is_owner and stopped_by not in ("", caller.name):
        raise NotPermitted(
            f"run {folder.id} was stopped by {stopped_by}, who alone goes on with it"
        )


def _refuse_to_operators(spec: RunSpec, request: ResumeRun, caller: Caller) -> None:
    if caller.is_owner:
        return
    plays_held_out = isinstance(spec, EvalSpec) and spec.split is Split.HELD_OUT
    is_delicate = spec.policy.endpoints or plays_held_out
    if request.accept_changes or request.take_over or is_delicate:
        raise NotPermitted("changed code, servers and held-out cases are the owner's to go on with")
