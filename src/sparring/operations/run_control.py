"""Operations that control runs: stop, resume, clone, delete, join."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import time
from typing import Annotated, Literal

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.command_line import RUN, OnCommandLine
from sparring.contracts.errors import (
    IllegalMove,
    InvalidInput,
    NotPermitted,
    OverBudget,
    SparringError,
)
from sparring.contracts.json import Beat
from sparring.contracts.specs import EvalSpec, Frozen, RunSpec, Table
from sparring.contracts.training import TrainSpec
from sparring.operations.evaluating import StartEval, start_eval
from sparring.operations.operation import FOR_OWNERS, Caller, Forms, Role, operation
from sparring.operations.proving import (
    has_proof_after,
    is_stopped_by_another,
    proof_to_queue_again,
    requeue_proof,
)
from sparring.operations.resolution import revalidate, settings_of
from sparring.operations.run_views import RunQuery, ShownRun
from sparring.operations.runs import show_run
from sparring.operations.starting import Started, begin
from sparring.operations.training import StartTrain, start_train
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_run_spec
from sparring.run_folder.events import append_event, append_state, note_change
from sparring.run_folder.files import read_json_or_empty, read_lines, write_json
from sparring.runs.claims import is_held, newest_epoch
from sparring.runs.finding import find_run
from sparring.runs.history import History, read_history
from sparring.runs.hosts import free_host_number
from sparring.runs.joined_helper import free_number
from sparring.runs.launchers import (
    SupervisorPresence,
    find_supervisor,
    handle_of,
    launch,
    launcher_of,
)
from sparring.runs.lifecycle import RunState, may_become
from sparring.runs.processes import end_all, start_detached
from sparring.runs.status import status_of, supervised_status
from sparring.runs.worker_group import mark_of
from sparring.settings.layers import flatten, nested
from sparring.source_files import refuse_changed_code

_HEARTBEAT_WAIT_SECONDS = 5.0
_SILENT_SECONDS = 600.0  # until a run on another host may be taken for lost


class ResumeRun(RunQuery):
    """The run to resume."""

    accept_changes: bool = Field(
        default=False,
        description="resume although code or cases have changed",
        json_schema_extra=FOR_OWNERS,
    )
    take_over: bool = Field(
        default=False,
        description="resume the run on this host: its own host is gone or was renamed",
        json_schema_extra=FOR_OWNERS,
    )


class CloneRun(RunQuery):
    """The run to clone."""

    settings: Table = Field(default_factory=dict, description="settings to change")


class DeleteRun(RunQuery):
    """The run to delete."""

    run: Annotated[str, RUN] = Field(description="the run's full id")


class Deleted(Frozen):
    """The deleted run, and the bytes of its files."""

    run: str
    bytes: int


JoinRole = Literal["host", "player", "server"]


class JoinRun(RunQuery):
    """The run to join, and the role of this host."""

    role: Annotated[JoinRole, OnCommandLine("--as")] = Field(
        default="host",
        description="`host` trains, `player` plays for the hosts that train, `server` samples",
    )


class Joined(Frozen):
    """The process that was started on this host for the run."""

    run: str
    role: JoinRole
    number: int = Field(description="the number of the host, player or server in the run")
    pid: int


@operation(
    "run.stop",
    role=Role.OPERATOR,
    changes_state=True,
    ends=True,
    is_idempotent=True,
    forms=Forms(cli="run stop", tool="stop_run"),
)
def stop_run(request: RunQuery, caller: Caller) -> ShownRun:
    """Stop a run. A training run writes a checkpoint before its processes end."""
    folder = find_run(caller.runs, request.run)
    history = read_history(folder).history
    _refuse_others_run(folder, history, caller)
    if is_stopped_by_another(history, caller):
        return show_run(RunQuery(run=folder.id), caller)  # an operator's stop would replace it
    if not history.state.has_ended:
        # Written first, so that the request survives any later failure.
        append_event(folder, "stop_requested", author=caller.name)
        note_change(folder)
        if not history.is_supervised:
            write_json(folder.stop_request, {"format": 1})  # read by the worker itself
            _end_if_lost(folder, history, caller)
        else:
            _withdraw(folder, history.state, caller)
            if not caller.can_supervise:
                _end_without_supervisor(folder, caller)
    return show_run(RunQuery(run=folder.id), caller)


@operation(
    "run.resume",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    is_idempotent=True,
    forms=Forms(cli="run resume", tool="resume_run"),
)
def resume_run(request: ResumeRun, caller: Caller) -> Started:
    """Resume a stopped or failed run; a queued, running or completed run is left unchanged."""
    folder = find_run(caller.runs, request.run)
    spec = read_run_spec(folder)
    _refuse_to_operators(spec, request, caller)
    status = supervised_status(folder)
    _refuse_others_run(folder, status.history, caller)
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
    _refuse_python_run(folder, spec)
    if not request.accept_changes:
        refuse_changed_code(folder.id, spec.target, spec.code_digest, spec.code_files)
    if not caller.is_owner:
        revalidate(spec, caller)
    proof = proof_to_queue_again(folder, caller) if isinstance(spec, TrainSpec) else None
    budget = caller.budget()
    most, hours = budget.runs_at_once, budget.hours
    if hours is not None and status.seconds >= 3600 * hours:
        raise OverBudget(
            f"run {folder.id} has used up its {hours:g} hours; raise [budget] hours to resume it"
        )
    append_state(
        folder,
        RunState.QUEUED,
        author=caller.name,
        after=newest_epoch(folder),
        runs_at_once=most,
        hours=hours,
        accept_changes=request.accept_changes,
    )
    if proof is not None:
        requeue_proof(proof, caller, budget, accept_changes=request.accept_changes)
    started = begin(folder, is_limited=most is not None)
    return started.model_copy(update={"proof": proof.id if proof else ""})


@operation(
    "run.clone",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="run clone"),
)
def clone_run(request: CloneRun, caller: Caller) -> Started:
    """Start a new run with the settings of an existing run and the requested changes.

    A training gets a proof if the existing one was started with a proof.
    """
    folder = find_run(caller.runs, request.run)
    spec = read_run_spec(folder)
    _refuse_python_run(folder, spec)
    settings = nested({**settings_of(spec), **dict(flatten(request.settings))})
    # Operators may only name an environment; the owner's clone uses the same file.
    target = spec.target if caller.is_owner else spec.environment
    if isinstance(spec, TrainSpec):
        proves = has_proof_after(folder)
        request_train = StartTrain(environment=target, settings=settings, prove=proves)
        return start_train(request_train, caller)
    if not isinstance(spec, EvalSpec):
        raise InvalidInput(f"a run of kind {spec.kind} cannot be cloned; start a new one")
    request_eval = StartEval(
        environment=target,
        split=spec.split,
        cases=spec.cases,
        settings=settings,
        servers=spec.policy if spec.policy.endpoints else None,
    )
    return start_eval(request_eval, caller)


@operation(
    "run.delete",
    role=Role.OWNER,
    changes_state=True,
    ends=True,
    forms=Forms(cli="run delete"),
)
def delete_run(request: DeleteRun, caller: Caller) -> Deleted:
    """Delete a run that has ended, with its rollouts and weights."""
    folder = find_run(caller.runs, request.run)
    if folder.id != request.run:
        raise InvalidInput(f"to delete a run, give the whole id: {folder.id}")
    state = (supervised_status if caller.can_supervise else status_of)(folder).state
    if not state.has_ended:
        advice = f"stop it first: `sparring run stop {folder.id}`"
        if not caller.can_supervise:
            advice = f"stop it where it runs, or remove the copy's folder {folder.path}"
        raise IllegalMove(f"run {folder.id} is {state.value}; {advice}")
    size = sum(
        os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - os.walk yields strings
        for parent, _, names in os.walk(folder.path)
        for name in names
    )
    deleted = folder.path.parent / ".sparring" / f"deleted-{folder.id}"
    folder.path.rename(deleted)  # atomic: a half-deleted run must not look like a run
    note_change(folder)
    shutil.rmtree(deleted, ignore_errors=True)
    return Deleted(run=folder.id, bytes=size)


@operation("run.join", role=Role.OWNER, changes_state=True, forms=Forms(cli="run join"))
def join_run(request: JoinRun, caller: Caller) -> Joined:
    """Start a process on this host that joins a training run of another host."""
    folder = find_run(caller.runs, request.run)
    spec = read_run_spec(folder)
    path = str(folder.path.resolve())
    if request.role != "host":
        number = free_number(folder, request.role)
        words = ["sparring.runs.joined_helper", path, request.role, str(number)]
    else:
        nodes = spec.nodes if isinstance(spec, TrainSpec) else 1
        if nodes < 2:
            raise InvalidInput(f"run {folder.id} is for one host; start it with --nodes 2 or more")
        number = free_host_number(folder, nodes)
        words = ["sparring.runs.hosts", path, str(number)]
    log = folder.path / "logs" / f"{request.role}-{number}.log"
    log.parent.mkdir(exist_ok=True)
    process = start_detached([sys.executable, "-m", *words], log)
    return Joined(run=folder.id, role=request.role, number=number, pid=process.pid)


def _refuse_python_run(folder: RunFolder, spec: RunSpec) -> None:
    if spec.is_from_python:
        raise InvalidInput(
            f"run {folder.id} was started from Python, with objects that exist only there; call "
            f"train(…, run={folder.id!r}) or evaluate(…, run={folder.id!r}) again"
        )


def _withdraw(folder: RunFolder, state: RunState, caller: Caller) -> None:
    """Stop a run that has no process yet, because it waits in the project's or a scheduler's queue.

    A supervisor that starts at the same moment finds the stop request, so either order is safe.
    """
    is_withdrawn = False
    with contextlib.suppress(SparringError, OSError):
        is_withdrawn = launcher_of(folder).stop(folder, handle_of(folder))
    if not is_withdrawn and state is not RunState.QUEUED:
        return
    _append_stop(folder, state, caller, f"stopped by {caller.name}")


def _end_without_supervisor(folder: RunFolder, caller: Caller) -> None:
    """Stop a run whose supervisor died, in a folder in which no other is started."""
    state = read_history(folder).history.state
    if state.has_ended or find_supervisor(folder) is not SupervisorPresence.NO:
        return
    end_all(mark_of(folder))
    _append_stop(folder, state, caller, f"stopped by {caller.name}: it had no supervisor")


def _end_if_lost(folder: RunFolder, history: History, caller: Caller) -> None:
    """Stop a run from Python whose host is gone, or was renamed: nothing holds its lock, and its
    heartbeat is old and does not change. A live process writes it every second once it has read
    its checkpoints."""
    if history.host in ("", socket.gethostname()) or is_held(folder):
        return
    heartbeat = read_json_or_empty(folder.heartbeat)
    signs = [each for each in read_lines(folder.events) if each.get("event") == "started"]
    times = [each.get("time") for each in [heartbeat, *signs]]
    heard = max((each for each in times if isinstance(each, int | float)), default=0.0)
    if time.time() - heard < _SILENT_SECONDS:
        return
    time.sleep(_HEARTBEAT_WAIT_SECONDS)
    if read_json_or_empty(folder.heartbeat) != heartbeat:
        return
    message = f"stopped by {caller.name}: its process on {history.host} no longer answers"
    _append_stop(folder, history.state, caller, message)


def _append_stop(folder: RunFolder, state: RunState, caller: Caller, message: str) -> None:
    """Append the states that lead from `state` to stopped."""
    if state not in (RunState.QUEUED, RunState.STOPPING):
        append_state(folder, RunState.STOPPING, author=caller.name)
    append_state(folder, RunState.STOPPED, author=caller.name, message=message, exit_code=103)


def _take_over(folder: RunFolder, heartbeat: Beat) -> Started:
    """Start a supervisor here. Raise IllegalMove if the old supervisor's heartbeat changes."""
    time.sleep(_HEARTBEAT_WAIT_SECONDS)
    now = status_of(folder).supervisor
    if now != heartbeat:
        raise IllegalMove(f"run {folder.id} is alive on {now.get('host')}; stop it from there")
    launch(folder, newest_epoch(folder) + 1)
    return Started(run=folder.id, folder=str(folder.path))


def _refuse_others_run(folder: RunFolder, history: History, caller: Caller) -> None:
    """Raise NotPermitted if the caller is an operator and did not start the run."""
    if not caller.is_owner and history.author != caller.name:
        raise NotPermitted(
            f"run {folder.id} is {history.author or 'somebody else'}'s, and {caller.name} controls "
            "only its own runs; ask the owner"
        )


def _refuse_owners_stop(folder: RunFolder, history: History, caller: Caller) -> None:
    if history.stop and is_stopped_by_another(history, caller):
        raise NotPermitted(
            f"run {folder.id} was stopped by {history.stop.author}; only the owner may resume it"
        )


def _refuse_to_operators(spec: RunSpec, request: ResumeRun, caller: Caller) -> None:
    if caller.is_owner:
        return
    plays_held_out = isinstance(spec, EvalSpec) and spec.split is Split.HELD_OUT
    is_delicate = spec.policy.endpoints or plays_held_out
    if request.accept_changes or request.take_over or is_delicate:
        raise NotPermitted(
            "only the owner may accept changes, take over a run, or resume a run that plays on "
            "servers or held-out cases"
        )
