"""Starting an evaluation, following it, and reading its result."""

from __future__ import annotations

import hashlib
import secrets
import time
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput, RunChanged, SparringError
from sparring.contracts.specs import EvalSpec, Frozen, PlaySettings, PolicySpec
from sparring.operations.operation import Caller, Role, operation
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.run_folder.ids import new_run_id
from sparring.runs.local import RunState, find_run, is_held, start_worker, status_of


class StartEval(Frozen):
    target: str
    split: Split = Split.VALIDATION
    cases: int | None = None
    policy: PolicySpec = PolicySpec()
    play: PlaySettings = PlaySettings()


class ResumeEval(Frozen):
    run: str
    accept_changes: bool = False


class Started(Frozen):
    run: str
    folder: str
    log: str
    pid: int


class RunQuery(Frozen):
    run: str


class Status(Frozen):
    run: str
    state: RunState
    message: str = ""
    exit_code: int = 0
    progress: dict[str, Any] | None = None


class Summary(Frozen):
    run: str
    summary: dict[str, Any]


@operation("eval.start", role=Role.OPERATOR, changes_state=True)
def start_eval(request: StartEval, caller: Caller) -> Started:
    """Play an environment's cases and judge them, as a run of its own."""
    digest = _code_digest(request.target)
    spec = EvalSpec(
        target=_absolute(request.target),
        split=request.split,
        cases=request.cases,
        policy=request.policy,
        play=request.play,
        code_digest=digest,
    )
    name = request.target.rpartition(":")[2].removesuffix(".py")
    run = new_run_id(Path(name).name, time.time(), secrets.token_hex(2))
    folder = RunFolder(caller.runs / run)
    folder.create(spec.model_dump(mode="json"))
    return _start(folder)


@operation("eval.resume", role=Role.OPERATOR, changes_state=True)
def resume_eval(request: ResumeEval, caller: Caller) -> Started:
    """Go on with an evaluation where it stopped."""
    folder = find_run(caller.runs, request.run)
    spec = EvalSpec.model_validate(folder.read_spec())
    if is_held(folder):
        raise SparringError(f"run {folder.id} is still being worked on; there is nothing to resume")
    if not request.accept_changes and _code_digest(spec.target) != spec.code_digest:
        raise RunChanged(
            f"{spec.target} has changed since run {folder.id} started, and its table would mix two "
            "agents; start a new run, or pass --accept-changes if the change does not matter"
        )
    return _start(folder)


@operation("run.status", role=Role.VIEWER, changes_state=False)
def run_status(request: RunQuery, caller: Caller) -> Status:
    """Say how far a run has come."""
    folder = find_run(caller.runs, request.run)
    status = status_of(folder)
    return Status(
        run=folder.id,
        state=status.state,
        message=status.message,
        exit_code=status.exit_code,
        progress=status.progress,
    )


@operation("eval.summary", role=Role.VIEWER, changes_state=False)
def eval_summary(request: RunQuery, caller: Caller) -> Summary:
    """What a finished evaluation showed."""
    folder = find_run(caller.runs, request.run)
    if not folder.summary.is_file():
        raise SparringError(
            f"run {folder.id} has no result yet; go on with it: sparring eval --resume {folder.id}"
        )
    return Summary(run=folder.id, summary=read_json(folder.summary))


def _start(folder: RunFolder) -> Started:
    process = start_worker(folder)
    return Started(
        run=folder.id,
        folder=str(folder.path),
        log=str(folder.log(folder.attempts())),
        pid=process.pid,
    )


def _file_of(target: str) -> Path:
    file, colon, name = target.rpartition(":")
    path = Path(file if colon else name)
    if not path.is_file():
        raise InvalidInput(
            f"there is no file {path} here ({Path.cwd()}); write FILE:NAME, as in "
            "my_agent.py:MyAgent"
        )
    return path


def _absolute(target: str) -> str:
    file, colon, name = target.rpartition(":")
    path = _file_of(target).resolve()
    return f"{path}:{name}" if colon and file else str(path)


def _code_digest(target: str) -> str:
    return hashlib.sha256(_file_of(target).read_bytes()).hexdigest()
