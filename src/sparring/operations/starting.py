"""Creates a run of any kind and starts or queues it."""

from __future__ import annotations

import contextlib
import secrets
import time
from pathlib import Path

from pydantic import Field

from sparring.contracts.errors import LauncherFailed, SparringError
from sparring.contracts.kinds import run_kind
from sparring.contracts.specs import Frozen, RunSpec
from sparring.operations.operation import Caller
from sparring.operations.readiness import refuse_unready
from sparring.operations.run_views import waiting_for
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, note_change
from sparring.run_folder.layout import new_run_id
from sparring.runs.claims import newest_epoch
from sparring.runs.history import read_history
from sparring.runs.launchers import launcher_named
from sparring.runs.lifecycle import RunState
from sparring.runs.queue import launch_or_fail, reconcile_folder


class Started(Frozen):
    """The run that a start or resume refers to. It outlives the calling process."""

    run: str
    folder: str
    state: RunState = RunState.QUEUED
    is_new: bool = Field(
        default=True, description="false if the run was already active or completed"
    )
    message: str = Field(default="", description="why a queued run waits")
    proof: str = Field(default="", description="id of the proof that follows the training")
    expected_hours: float | None = Field(
        default=None, description="hours that the last check expected the training to take"
    )


def start(
    spec: RunSpec, caller: Caller, *, runs_at_once: int | None, name: str | None = None
) -> Started:
    """Create and start a run. It is queued if `runs_at_once` is reached or it follows a run."""
    launcher_named(spec.supervision.launcher)  # raises for an unknown name before the run exists
    refuse_unready(spec)
    folder = _create(caller, spec, runs_at_once, name)
    if spec.after:
        message = f"waiting for {spec.after}"
        return Started(run=folder.id, folder=str(folder.path), message=message)
    try:
        return begin(folder, is_limited=runs_at_once is not None)
    except LauncherFailed:
        raise
    except SparringError as error:  # the run exists: a failure, not a refusal
        raise LauncherFailed(f"run {folder.id} was created but not started: {error}") from error


def begin(folder: RunFolder, *, is_limited: bool) -> Started:
    """Start a run: through the queue if runs are limited or it follows another, else directly."""
    message = ""
    if is_limited or folder.read_spec().get("after"):
        reconcile_folder(folder.path.parent)
        history = read_history(folder).history
        if history.state is RunState.FAILED:
            raise LauncherFailed(f"run {folder.id} could not be started: {history.message}")
        with contextlib.suppress(SparringError, OSError):  # the error may concern another run
            message = waiting_for(folder, history) if history.state is RunState.QUEUED else ""
    else:
        launch_or_fail(folder, newest_epoch(folder) + 1)
    return Started(run=folder.id, folder=str(folder.path), message=message)


def new_name(spec: RunSpec) -> str:
    """Return a new run id: the kind's prefix, the environment's name, the time, and random digits.
    Training runs and evaluations have no prefix."""
    prefix = run_kind(spec.kind, "the run").id_prefix
    return prefix + new_run_id(spec.environment or spec.kind, time.time(), secrets.token_hex(2))


def _create(caller: Caller, spec: RunSpec, runs_at_once: int | None, name: str | None) -> RunFolder:
    """Create a run's folder atomically: complete, or not at all."""
    name = name or new_name(spec)
    draft = RunFolder(caller.runs / ".sparring" / "new" / name)
    draft.create(spec.model_dump(mode="json"))
    append_event(
        draft, "state", author=caller.name, state=RunState.QUEUED, runs_at_once=runs_at_once
    )
    path = caller.runs / name
    draft.path.rename(path)
    folder = RunFolder(Path(path))
    note_change(folder)
    return folder
