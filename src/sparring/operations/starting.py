"""What starting a run of any kind has in common: its file, its folder, its worker."""

from __future__ import annotations

import hashlib
import secrets
import time
from pathlib import Path

from sparring.contracts.errors import RunChanged
from sparring.contracts.specs import Frozen
from sparring.run_folder import RunFolder
from sparring.run_folder.ids import new_run_id
from sparring.runs.local import RunState, is_held, start_worker, status_of


class Started(Frozen):
    run: str
    folder: str
    log: str
    pid: int | None = None


def create_run(runs: Path, name: str, spec: Frozen) -> RunFolder:
    """A folder for a new run, named after what is played."""
    folder = RunFolder(runs / new_run_id(name, time.time(), secrets.token_hex(2)))
    folder.create(spec.model_dump(mode="json"))
    return folder


def begin(folder: RunFolder, *, accept_changes: bool = False) -> Started:
    """Start the worker of a run; an earlier wish to stop it is over."""
    folder.stop_request.unlink(missing_ok=True)
    return told(folder, start_worker(folder, accept_changes=accept_changes).pid)


def told(folder: RunFolder, pid: int | None) -> Started:
    log = folder.log(folder.attempts())
    return Started(run=folder.id, folder=str(folder.path), log=str(log), pid=pid)


def go_on(folder: RunFolder, target: str, digest: str, *, accept_changes: bool) -> Started:
    """Start a run again where it stopped; one that runs or is done is left alone."""
    if is_held(folder) or status_of(folder).state is RunState.COMPLETED:  # to be followed, or read
        return told(folder, None)
    if not accept_changes:
        refuse_changed_code(folder, target, digest)
    return begin(folder, accept_changes=accept_changes)


def refuse_changed_code(folder: RunFolder, target: str, digest: str) -> None:
    if code_digest(target) != digest:
        raise RunChanged(
            f"{target} has changed since run {folder.id} started, and its figures would mix two "
            "agents; start a new run, or pass --accept-changes if the change does not matter"
        )


def code_digest(target: str) -> str:
    """Of the file behind `FILE:NAME`; empty where it is gone."""
    file, colon, name = target.rpartition(":")
    try:
        return hashlib.sha256(Path(file if colon else name).read_bytes()).hexdigest()
    except OSError:
        return ""
