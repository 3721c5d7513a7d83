"""Starting an evaluation, following it, and reading its result.

Starting takes the owner for now: whoever starts a run picks the file that is executed and
the server that a key is sent to, and nothing holds an operator to those of the project yet.
"""

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
from sparring.runs.local import (
    RunState,
    ask_to_stop,
    find_run,
    is_held,
    start_worker,
    status_of,
)


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
    pid: int | None = None


class RunQuery(Frozen):
    run: str


class Status(Frozen):
    run: str
    state: RunState
    message: str = ""
    exit_code: int = 0
    kind: str = ""
    progress: dict[str, Any] | None = None


class Summary(Frozen):
    run: str
    summary: dict[str, Any]


@operation("eval.start", role=Role.OWNER, changes_state=True)
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


@operation("eval.resume", role=Role.OWNER, changes_state=True)
def resume_eval(request: ResumeEval, caller: Caller) -> Started:
    """Go on with an evaluation where it stopped; one that runs or is done is left alone."""
    folder = find_run(caller.runs, request.run)
    spec = EvalSpec.model_validate(folder.read_spec())
    status = status_of(folder)
    if is_held(folder) or status.state is RunState.COMPLETED:  # to be followed, or read
        return _told(folder, None)
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
        kind=status.kind,
        progress=status.progress,
    )


@operation("run.stop", role=Role.OPERATOR, changes_state=True)
def stop_run(request: RunQuery, caller: Caller) -> Status:
    """Ask a run to stop; what it has played stays."""
    folder = find_run(caller.runs, request.run)
    status = status_of(folder)
    if status.pid is not None:
        ask_to_stop(status.pid)
    return run_status(RunQuery(run=folder.id), caller)


@operation("eval.summary", role=Role.VIEWER, changes_state=False)
def eval_summary(request: RunQuery, caller: Caller) -> Summary:
    """What a finished evaluation showed."""
    folder = find_run(caller.runs, request.run)
    if not folder.summary.is_file():
        raise SparringError(
            f"run {folder.id} has no result yet; go on with it: sparring eval --resume {folder.id}"
        )
    summary = read_json(folder.summary)
    if caller.role < Role.OWNER and summary["split"] == Split.HELD_OUT:
        summary = _figures_only(summary)
    return Summary(run=folder.id, summary=summary)


def _figures_only(summary: dict[str, Any]) -> dict[str, Any]:
    """Reasons quote cases, and held-out cases are for nobody but the owner."""
    measures = {
        name: {**measure, "reasons_for_failing": []}
        for name, measure in summary["measures"].items()
    }
    return {**summary, "measures": measures, "causes": []}


def _start(folder: RunFolder) -> Started:
    return _told(folder, start_worker(folder).pid)


def _told(folder: RunFolder, pid: int | None) -> Started:
    log = folder.log(folder.attempts())
    return Started(run=folder.id, folder=str(folder.path), log=str(log), pid=pid)


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
