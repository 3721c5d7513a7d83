"""Looking at runs: which there are, how one is, what came of it, what it said."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput, NotFinished, NotPermitted
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Nothing, Role, operation
from sparring.operations.patience import keep_answer, last_answer, seconds_between
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import best_of, list_checkpoints
from sparring.run_folder.files import read_from, read_json
from sparring.run_folder.metrics import history_of, sampled
from sparring.runs.causes import last_lines
from sparring.runs.finding import find_run
from sparring.runs.index import Index, Query, Row
from sparring.runs.lifecycle import RunState
from sparring.runs.queue import reconcile
from sparring.runs.status import (
    RunStatus,
    attended_status,
    recent_rows,
    status_of,
    time_left,
    with_figures,
)

_NEWS = ("state", "warning", "checkpoint", "restart", "links", "parity", "stop_requested")
_LOOK_SECONDS = 0.2


class RunQuery(Frozen):
    run: str = Field(description="id, the beginning of it, or the name of its environment")


class ListRuns(Frozen):
    states: tuple[RunState, ...] = ()
    environment: str = ""
    kind: str = ""
    after: str = Field(default="", description="the last id of the page before")
    count: int = Field(default=50, ge=1, le=1000)


class RunLine(Frozen):
    run: str
    kind: str
    environment: str
    model: str
    state: RunState
    author: str
    created: float
    minutes: float
    step: int | None = None
    steps: int | None = None
    reward: float | None = None
    message: str = ""


class RunPage(Frozen):
    runs: tuple[RunLine, ...]
    next: str = Field(default="", description="pass as `after` for the next page; empty at the end")


class ProcessLine(Frozen):
    name: str
    state: str
    pid: int
    host: str
    log: str


class ShownRun(Frozen):
    """Everything about how a run is."""

    run: str
    kind: str
    environment: str
    model: str
    folder: str
    state: RunState
    cause: str = ""
    message: str = ""
    error: str = ""
    exit_code: int = 0
    author: str = ""
    minutes: float = 0.0
    attempts: int = 0
    restarts: int = 0
    is_stopping_for: str = ""
    processes: tuple[ProcessLine, ...] = ()
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    reward: float | None = None
    pass_rates: dict[str, float] = Field(default_factory=dict)
    validation_reward: float | None = None
    validation_pass_rates: dict[str, float] = Field(default_factory=dict)
    seconds_left: float | None = None
    estimate_basis: str = ""
    links: dict[str, str] = Field(default_factory=dict)
    warning: str = ""
    progress: dict[str, Any] | None = None
    next_check_seconds: float = 5.0
    is_repeated: bool = Field(default=False, description="the last answer: you asked too soon")


class Status(Frozen):
    """As much as it takes to follow a run."""

    run: str
    kind: str
    state: RunState
    message: str = ""
    exit_code: int = 0
    error: str = ""
    progress: dict[str, Any] | None = None


class ResultsQuery(RunQuery):
    rows: int = Field(default=10, ge=0, le=1000, description="rows of the history to show")


class Results(Frozen):
    run: str
    kind: str
    state: RunState
    summary: dict[str, Any]
    final: dict[str, Any] = Field(default_factory=dict, description="the last row of metrics")
    history: tuple[dict[str, Any], ...] = ()
    best_checkpoint: str | None = None
    last_checkpoint: str | None = None


class WaitFor(RunQuery):
    cursor: int | None = Field(default=None, description="from an earlier answer; default: now")
    seconds: float = Field(default=60.0, ge=0, le=3600, description="at most so long")


class News(Frozen):
    run: str
    state: RunState
    has_ended: bool
    exit_code: int
    message: str
    news: tuple[dict[str, Any], ...]
    cursor: int


class LogQuery(RunQuery):
    process: str = Field(default="", description="as `run show` names it; default: the first")
    attempt: int | None = Field(default=None, ge=1, description="default: the last")
    lines: int = Field(default=40, ge=1, le=10_000)


class Log(Frozen):
    run: str
    process: str
    attempt: int
    path: str
    there_are: tuple[str, ...]
    text: str


class Reindexed(Frozen):
    runs: int


@operation("run.list", role=Role.VIEWER, changes_state=False)
def list_runs(request: ListRuns, caller: Caller) -> RunPage:
    """Runs, the newest first, running and ended."""
    if not caller.runs.is_dir():
        return RunPage(runs=())
    index = Index(caller.runs)
    reconcile(index)
    query = Query(
        states=request.states,
        environment=request.environment,
        kind=request.kind,
        after=request.after,
        count=request.count + 1,
    )
    rows = index.page(query)
    shown = rows[: request.count]
    lines = tuple(_line(row, RunFolder(caller.runs / row.id)) for row in shown)
    return RunPage(runs=lines, next=shown[-1].id if len(rows) > request.count else "")


@operation("run.show", role=Role.VIEWER, changes_state=False)
def show_run(request: RunQuery, caller: Caller) -> ShownRun:
    """Say how a run is: state, processes, step, figures, time left."""
    folder = find_run(caller.runs, request.run)
    status = attended_status(folder)
    if (kept := last_answer(folder, status, caller)) is not None:
        return ShownRun.model_validate(kept)
    shown = _shown(folder, status)
    keep_answer(folder, status, caller, shown.model_dump(mode="json"))
    return shown


@operation("run.status", role=Role.VIEWER, changes_state=False)
def run_status(request: RunQuery, caller: Caller) -> Status:
    """Say how far a run has come, in few words."""
    folder = find_run(caller.runs, request.run)
    status = attended_status(folder)
    return Status(
        run=folder.id,
        kind=str(folder.read_spec().get("kind")),
        state=status.state,
        message=status.history.message,
        exit_code=status.history.exit_code,
        error=status.history.error,
        progress=dict(status.progress) if status.progress else None,
    )


@operation("run.results", role=Role.VIEWER, changes_state=False)
def run_results(request: ResultsQuery, caller: Caller) -> Results:
    """What came of a run: final figures, a sample of the history, where the weights are."""
    folder = find_run(caller.runs, request.run)
    status = attended_status(folder)
    spec = folder.read_spec()
    if not folder.summary.is_file() and not status.state.has_ended:
        raise NotFinished(
            f"run {folder.id} is {status.state.value} and has no results yet; "
            f"`sparring run wait {folder.id}` waits for them"
        )
    summary = read_json(folder.summary) if folder.summary.is_file() else {}
    if caller.role < Role.OWNER and summary.get("split") == Split.HELD_OUT:
        summary = _figures_only(summary)
    history = history_of(folder) if spec.get("kind") == "train" else []
    there = list_checkpoints(folder.checkpoints)
    best = best_of(there)
    return Results(
        run=folder.id,
        kind=str(spec.get("kind")),
        state=status.state,
        summary=summary,
        final=history[-1] if history else {},
        history=tuple(sampled(history, request.rows)),
        best_checkpoint=str(best.path) if best else None,
        last_checkpoint=str(there[-1].path) if there else None,
    )


@operation("run.wait", role=Role.VIEWER, changes_state=False)
def wait_for_run(request: WaitFor, caller: Caller) -> News:
    """Return as soon as there is news of a run: a new state, a warning, a checkpoint, the end."""
    folder = find_run(caller.runs, request.run)
    deadline = time.monotonic() + request.seconds
    cursor = request.cursor
    if cursor is None:
        cursor = folder.events.stat().st_size if folder.events.exists() else 0
    while True:
        status = attended_status(folder)
        lines = read_from(folder.events, cursor)
        news = [event for event in lines.values if event.get("event") in _NEWS]
        is_over = time.monotonic() >= deadline
        if news or is_over or (status.state.has_ended and request.cursor is None):
            history = status_of(folder).history if news else status.history
            return News(
                run=folder.id,
                state=history.state,
                has_ended=history.state.has_ended,
                exit_code=history.exit_code if history.state.has_ended else NotFinished.exit_code,
                message=history.message,
                news=tuple(news),
                cursor=lines.cursor,
            )
        cursor = lines.cursor
        time.sleep(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))


@operation("run.logs", role=Role.OPERATOR, changes_state=False)
def run_logs(request: LogQuery, caller: Caller) -> Log:
    """The last lines that a process of a run has printed."""
    folder = find_run(caller.runs, request.run)
    if caller.role < Role.OWNER and folder.read_spec().get("split") == Split.HELD_OUT:
        raise NotPermitted("what was printed over held-out cases is for the owner")
    attempt = request.attempt or folder.attempts()
    place = folder.log(attempt).parent
    found = {path.stem: path for path in sorted(place.glob("*.log"))}
    found |= {path.stem: path for path in (folder.path / "logs").glob("*.log")}
    ranks = [name for name in found if name.startswith(("worker", "rank-"))]
    name = request.process or (ranks or list(found) or [""])[0]
    if name not in found:
        listed = ", ".join(found) or "none yet"
        raise InvalidInput(f"run {folder.id} has no log {name!r} of attempt {attempt}: {listed}")
    text = last_lines(found[name], request.lines)
    shown = "\n".join(line.removeprefix("  ") for line in text.splitlines())
    return Log(
        run=folder.id,
        process=name,
        attempt=attempt,
        path=str(found[name]),
        there_are=tuple(found),
        text=shown,
    )


@operation("run.reindex", role=Role.OPERATOR, changes_state=False)
def reindex_runs(_: Nothing, caller: Caller) -> Reindexed:
    """Build the index of runs anew, from their folders alone."""
    if not caller.runs.is_dir():
        return Reindexed(runs=0)
    index = Index(caller.runs)
    count = index.reindex()
    reconcile(index)
    return Reindexed(runs=count)


# ---------------------------------------------------------------------- inside


def _line(row: Row, folder: RunFolder) -> RunLine:
    status = with_figures(folder, row.history)
    beat = status.progress or {}
    metrics = beat.get("metrics") or {}
    return RunLine(
        run=row.id,
        kind=row.kind,
        environment=row.environment,
        model=Path(row.model).name if "/" in row.model else row.model,
        state=status.state,
        author=row.history.author,
        created=row.history.created,
        minutes=round(status.seconds / 60, 2),
        step=beat.get("step", beat.get("rollouts")),
        steps=beat.get("steps", beat.get("total")),
        reward=metrics.get("reward"),
        message=row.history.message,
    )


def _shown(folder: RunFolder, status: RunStatus) -> ShownRun:
    spec, history, beat = folder.read_spec(), status.history, status.progress or {}
    rows = recent_rows(folder)
    metrics = beat.get("metrics") or {}
    validated: dict[str, Any] = next(
        (row for row in reversed(rows) if "validation/reward" in row), {}
    )
    left = time_left(status, rows)
    message = history.message
    if status.is_elsewhere:
        host = status.supervisor.get("host", "another host")
        message = message or f"it is supervised on {host}; commands there look after it"
    return ShownRun(
        run=folder.id,
        kind=str(spec.get("kind")),
        environment=str(spec.get("environment") or spec.get("target")),
        model=str((spec.get("policy") or {}).get("model") or ""),
        folder=str(folder.path),
        state=status.state,
        cause=history.cause,
        message=message,
        error=history.error,
        exit_code=history.exit_code,
        author=history.author,
        minutes=round(status.seconds / 60, 2),
        attempts=max(history.attempt, folder.attempts()),
        restarts=history.restarts,
        is_stopping_for=history.stop_author if not status.state.has_ended else "",
        processes=tuple(_processes(status)),
        step=beat.get("step", beat.get("rollouts")),
        steps=beat.get("steps", beat.get("total")),
        loss=metrics.get("loss"),
        reward=metrics.get("reward"),
        pass_rates=_rates(metrics, "pass_rate/"),
        validation_reward=validated.get("validation/reward"),
        validation_pass_rates=_rates(validated, "validation/pass_rate/"),
        seconds_left=left.seconds if left else None,
        estimate_basis=left.basis if left else "",
        links=dict(history.links),
        warning=history.warning,
        progress=dict(status.progress) if status.progress else None,
        next_check_seconds=seconds_between(status),
    )


def _processes(status: RunStatus) -> list[ProcessLine]:
    """The supervisor and the gang; of a run that has ended, how each process ended."""
    told = status.supervisor
    if not told:
        return []
    over = status.state.has_ended
    own = {"name": "supervisor", "state": "done" if over else "running", "log": ""}
    rows = [{**told, **own}, *told.get("processes", ())]
    return [
        ProcessLine(
            name=str(row["name"]),
            state=str(row["state"]),
            pid=int(row["pid"]),
            host=str(row["host"]),
            log=str(row["log"]),
        )
        for row in rows
    ]


def _rates(row: dict[str, Any], prefix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix): float(value)
        for name, value in row.items()
        if name.startswith(prefix) and value is not None
    }


def _figures_only(summary: dict[str, Any]) -> dict[str, Any]:
    """Reasons quote cases, and held-out cases are for nobody but the owner."""
    measures = {
        name: {**measure, "reasons_for_failing": []}
        for name, measure in summary["measures"].items()
    }
    return {**summary, "measures": measures, "causes": []}
