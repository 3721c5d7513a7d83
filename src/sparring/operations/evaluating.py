"""Starting an evaluation, following it, and reading its result.

An operator starts environments of the project by name, on the project's model: which file is
executed and which server a key is sent to is the owner's to say.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.errors import NotPermitted, SparringError
from sparring.contracts.specs import EvalSpec, Frozen, PlaySettings, PolicySpec
from sparring.operations.budgets import refuse_over_budget
from sparring.operations.operation import Caller, Role, operation
from sparring.operations.settling import settle
from sparring.operations.starting import Started, begin, code_digest, create_run, go_on
from sparring.run_folder.files import read_json
from sparring.runs.local import (
    RunState,
    ask_to_stop,
    find_run,
    status_of,
)


class StartEval(Frozen):
    target: str = Field(description="name of an environment; for owners also FILE:NAME")
    split: Split = Split.VALIDATION
    cases: int | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    servers: PolicySpec | None = Field(default=None, description="who plays instead of weights")


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


@operation("eval.start", role=Role.OPERATOR, changes_state=True)
def start_eval(request: StartEval, caller: Caller) -> Started:
    """Play an environment's cases and judge them, as a run of its own."""
    if caller.role < Role.OWNER and (request.servers or request.split is Split.HELD_OUT):
        raise NotPermitted("which servers are played, and held-out cases, are the owner's to say")
    command = dict(request.settings)
    if request.servers is not None and request.servers.model is not None:
        command["model"] = request.servers.model  # locks hold for servers, too
    settled = settle(request.target, "eval", command, caller)
    refuse_over_budget(settled, caller.runs, cases=request.cases)
    spec = EvalSpec(
        target=settled.found.target,
        split=request.split,
        cases=request.cases,
        config=settled.config,
        policy=request.servers or settled.policy(),
        play=PlaySettings.model_validate(settled.own()),
        sources=settled.sources(),
        code_digest=code_digest(settled.found.target),
    )
    return begin(create_run(caller.runs, settled.found.name, spec))


@operation("eval.resume", role=Role.OPERATOR, changes_state=True)
def resume_eval(request: ResumeEval, caller: Caller) -> Started:
    """Go on with an evaluation where it stopped; one that runs or is done is left alone."""
    folder = find_run(caller.runs, request.run)
    spec = EvalSpec.model_validate(folder.read_spec())
    if caller.role < Role.OWNER and (
        request.accept_changes or spec.policy.endpoints or spec.split is Split.HELD_OUT
    ):
        raise NotPermitted("changed code, servers and held-out cases are the owner's to go on with")
    return go_on(folder, spec.target, spec.code_digest, accept_changes=request.accept_changes)


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
