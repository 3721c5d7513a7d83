"""What starting a run of any kind has in common: its folder, its place in the queue."""

from __future__ import annotations

import contextlib
import secrets
import time
from pathlib import Path

from pydantic import Field

from sparring.contracts.errors import LauncherFailed, SparringError
from sparring.contracts.specs import Frozen, RunSpec
from sparring.operations.operation import Caller
from sparring.operations.run_words import waiting_for
from sparring.run_folder import RunFolder
from sparring.run_folder.events import note_news, tell
from sparring.run_folder.ids import new_run_id
from sparring.runs.claims import newest_epoch
from sparring.runs.history import read_history
from sparring.runs.lifecycle import RunState
from sparring.runs.queue import launch_or_fail, start_waiting


class Started(Frozen):
    """A run that will come to an end, whatever dies from now on."""

    run: str
    folder: str
    state: RunState = RunState.QUEUED
    is_new: bool = Field(default=True, description="false for one that runs or is done already")
    message: str = Field(default="", description="what it waits for, where it waits")
    proof: str = Field(default="", description="the run that proves it, once it is completed")


def start(
    spec: RunSpec, caller: Caller, *, runs_at_once: int | None, name: str | None = None
) -> Started:
    """A new run: in the queue, and started if there is room. One that follows another waits."""
    folder = _create(caller, spec, runs_at_once, name)
    if spec.after:
        message = f"it waits for {spec.after}"
        return Started(run=folder.id, folder=str(folder.path), message=message)
    try:
        return begin(folder, is_limited=runs_at_once is not None)
    except LauncherFailed:
        raise
    except SparringError as error:  # no refusal any more: there is a run
        raise LauncherFailed(f"run {folder.id} was made, and then: {error}") from error


def begin(folder: RunFolder, *, is_limited: bool) -> Started:
    """Where nothing limits how many run at once, no queue need be asked."""
    message = ""
    if is_limited or folder.read_spec().get("after"):
        start_waiting(folder.path.parent)
        with contextlib.suppress(SparringError, OSError):  # it may be about other runs
            message = waiting_for(folder, read_history(folder).history)
    else:
        launch_or_fail(folder, newest_epoch(folder) + 1)
    return Started(run=folder.id, folder=str(folder.path), message=message)


def new_name(spec: RunSpec) -> str:
    """Trainings and evaluations are called after what is played, other runs after both."""
    before = {"train": "", "eval": "", "prove": "proof-"}.get(spec.kind, f"{spec.kind}-")
    named = new_run_id(spec.environment or spec.kind, time.time(), secrets.token_hex(2))
    return before + named


def _create(caller: Caller, spec: RunSpec, runs_at_once: int | None, name: str | None) -> RunFolder:
    """A folder for a new run. It is there with all that it takes to be started, or not at all."""
    name = name or new_name(spec)
    aside = RunFolder(caller.runs / ".sparring" / "new" / name)
    aside.create(spec.model_dump(mode="json"))
    tell(aside, "state", author=caller.name, state=RunState.QUEUED, runs_at_once=runs_at_once)
    place = caller.runs / name
    aside.path.rename(place)
    folder = RunFolder(Path(place))
    note_news(folder)
    return folder
