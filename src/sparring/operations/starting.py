"""What starting a run of any kind has in common: its file, its folder, its worker."""

from __future__ import annotations

import hashlib
import secrets
import time
from pathlib import Path

from sparring.contracts.errors import InvalidInput, RunChanged
from sparring.contracts.specs import Frozen
from sparring.run_folder import RunFolder
from sparring.run_folder.ids import new_run_id
from sparring.runs.local import start_worker


class Started(Frozen):
    run: str
    folder: str
    log: str
    pid: int | None = None


def create_run(runs: Path, target: str, spec: Frozen) -> RunFolder:
    """A folder for a new run, named after what is played."""
    name = target.rpartition(":")[2].removesuffix(".py")
    folder = RunFolder(runs / new_run_id(Path(name).name, time.time(), secrets.token_hex(2)))
    folder.create(spec.model_dump(mode="json"))
    return folder


def begin(folder: RunFolder, *, accept_changes: bool = False) -> Started:
    """Start the worker of a run; an earlier wish to stop it is over."""
    folder.stop_request.unlink(missing_ok=True)
    return told(folder, start_worker(folder, accept_changes=accept_changes).pid)


def told(folder: RunFolder, pid: int | None) -> Started:
    log = folder.log(folder.attempts())
    return Started(run=folder.id, folder=str(folder.path), log=str(log), pid=pid)


def refuse_changed_code(folder: RunFolder, target: str, digest: str) -> None:
    if code_digest(target) != digest:
        raise RunChanged(
            f"{target} has changed since run {folder.id} started, and its figures would mix two "
            "agents; start a new run, or pass --accept-changes if the change does not matter"
        )


def absolute(target: str) -> str:
    file, colon, name = target.rpartition(":")
    path = _file_of(target).resolve()
    return f"{path}:{name}" if colon and file else str(path)


def code_digest(target: str) -> str:
    return hashlib.sha256(_file_of(target).read_bytes()).hexdigest()


def _file_of(target: str) -> Path:
    file, colon, name = target.rpartition(":")
    path = Path(file if colon else name)
    if not path.is_file():
        raise InvalidInput(
            f"there is no file {path} here ({Path.cwd()}); write FILE:NAME, as in "
            "my_agent.py:MyAgent"
        )
    return path
