"""Starting an evaluation, following it, and reading its result.

Starting takes the owner for now: whoever starts a run picks the file that is executed and
the server that a key is sent to, and nothing holds an operator to those of the project yet.
"""

from __future__ import annotations

from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import SparringError
from sparring.contracts.specs import EvalSpec, Frozen, PlaySettings, PolicySpec
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
from sparring.run_folder.files import read_json
from sparring.runs.local import (
    RunState,
    ask_to_stop,
    find_run,
    is_held,
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
    spec = EvalSpec(
        target=absolute(request.target),
        split=request.split,
        cases=request.cases,
        policy=request.policy,
        play=request.play,
        code_digest=code_digest(request.target),
    )
    return begin(create_run(caller.runs, request.target, spec))


@operation("eval.resume", role=Role.OWNER, changes_state=True)
def resume_eval(request: ResumeEval, caller: Caller) -> Started:
    """Go on with an evaluation where it stopped; one that runs or is done is left alone."""
    folder = find_run(caller.runs, request.run)
    spec = EvalSpec.model_validate(folder.read_spec())
    status = status_of(folder)
    if is_held(folder) or status.state is RunState.COMPLETED:  # to be followed, or read
        return told(folder, None)
    if not request.accept_changes:
        refuse_changed_code(folder, spec.target, spec.code_digest)
    return begin(folder)


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
    if status_of(folder).state in (RunState.STARTING, RunState.RUNNING):
        ask_to_stop(folder)
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
