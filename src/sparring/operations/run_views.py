"""What is asked and answered about runs, and how a folder becomes an answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Role
from sparring.operations.patience import seconds_between
from sparring.run_folder import RunFolder
from sparring.runs.history import History, read_history
from sparring.runs.index import Index, Row
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import Identity
from sparring.runs.status import RunStatus, recent_rows, time_left, with_figures


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
    restarts: int = Field(default=0, description="since its last new checkpoint")
    last_restart: str = ""
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
    proof: str = Field(default="", description="the run that proves this training")
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
    last_restart: str = ""
    progress: dict[str, Any] | None = None


class ResultsQuery(RunQuery):
    rows: int = Field(default=10, ge=0, le=1000, description="rows of the history to show")


class Results(Frozen):
    run: str
    kind: str
    state: RunState
    message: str = ""
    summary: dict[str, Any]
    final: dict[str, Any] = Field(default_factory=dict, description="the last row of metrics")
    history: tuple[dict[str, Any], ...] = ()
    best_checkpoint: str | None = None
    last_checkpoint: str | None = None


class WaitFor(RunQuery):
    cursor: int | None = Field(
        default=None, ge=0, description="from an earlier answer; default: now"
    )
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


# ---------------------------------------------------------------------- from folders to words


def line_of(row: Row, folder: RunFolder, caller: Caller) -> RunLine:
    """A line for each run, also for one whose files somebody has spoilt."""
    try:
        return _line(row, folder, caller)
    except (ValueError, TypeError, AttributeError) as error:
        told = f"its figures cannot be read: {type(error).__name__}"
        return RunLine(
            run=row.id,
            kind=row.kind,
            environment=row.environment,
            model=row.model,
            state=row.state,
            author=row.history.author,
            created=row.history.created,
            minutes=0.0,
            message=told,
        )


def words_for(caller: Caller, folder: RunFolder, words: str) -> str:
    """What a run says in its own words may quote its cases; of held-out ones, that is for the
    owner."""
    if not words or caller.role >= Role.OWNER:
        return words
    is_held_out = folder.read_spec().get("split") == Split.HELD_OUT
    return "(what is said over held-out cases is for the owner)" if is_held_out else words


def _line(row: Row, folder: RunFolder, caller: Caller) -> RunLine:
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
        message=words_for(caller, folder, row.history.message),
    )


def shown_run(folder: RunFolder, status: RunStatus, caller: Caller) -> ShownRun:
    spec, history, beat = folder.read_spec(), status.history, status.progress or {}
    rows = recent_rows(folder)
    metrics = beat.get("metrics") or {}
    validated: dict[str, Any] = next(
        (row for row in reversed(rows) if "validation/reward" in row), {}
    )
    left = time_left(status, rows)
    message = history.message
    if status.state is RunState.QUEUED and not message:
        message = waiting_for(folder, history)
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
        message=words_for(caller, folder, message),
        error=history.error,
        exit_code=history.exit_code,
        author=history.author,
        minutes=round(status.seconds / 60, 2),
        attempts=max(history.attempt, folder.attempts()),
        restarts=history.restarts,
        last_restart=words_for(caller, folder, history.restart_message),
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
        warning=words_for(caller, folder, history.warning),
        proof=_proof_of(folder),
        progress=dict(status.progress) if status.progress else None,
        next_check_seconds=seconds_between(status),
    )


def waiting_for(folder: RunFolder, history: History) -> str:
    """What keeps a run waiting."""
    if other := str(folder.read_spec().get("after") or ""):
        forerunner = RunFolder(folder.path.parent / other)
        if not forerunner.spec.is_file():
            return f"it waits for {other}, which is gone"
        state = read_history(forerunner).history.state
        if state is not RunState.COMPLETED:
            return f"it waits for {other}, which is {state.value}"
    most = history.runs_at_once
    active = Index(folder.path.parent).active()
    begun = sum(row.state is not RunState.QUEUED for row in active)
    if most is None or begun < most:
        return "it is about to start"
    waiting = [
        row.id
        for row in active
        if row.state is RunState.QUEUED and not _follows(RunFolder(folder.path.parent / row.id))
    ]
    before = waiting.index(folder.id) if folder.id in waiting else 0
    others = f", and {before} wait before it" if before else ""
    return f"it waits for its turn: {begun} of at most {most} runs are on{others}"


def _proof_of(folder: RunFolder) -> str:
    proof = RunFolder(folder.path.parent / f"proof-{folder.id}")
    return proof.id if proof.spec.is_file() else ""


def _follows(folder: RunFolder) -> bool:
    """Whether a run waits for another, not for its turn."""
    return bool(folder.spec.is_file() and folder.read_spec().get("after"))


def _processes(status: RunStatus) -> list[ProcessLine]:
    """The supervisor and the gang; of a run that has ended, how each process ended."""
    told = status.supervisor
    if not told:
        return []
    over = status.state.has_ended
    own = {"name": "supervisor", "state": "done" if over else "running", "log": ""}
    return [_process({**told, **own}), *map(_process, told.get("processes", ()))]


def _process(row: Mapping[str, Any]) -> ProcessLine:
    """As its supervisor told last; that it is gone can be newer."""
    identity = Identity.from_dict(row)
    state = str(row["state"])
    is_gone = identity is not None and identity.is_of_this_host and not identity.is_alive
    return ProcessLine(
        name=str(row["name"]),
        state="gone" if state == "running" and is_gone else state,
        pid=int(row["pid"]),
        host=str(row["host"]),
        log=str(row["log"]),
    )


def _rates(row: dict[str, Any], prefix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix): float(value)
        for name, value in row.items()
        if name.startswith(prefix) and value is not None
    }
