"""Requests and results of the operations on runs, and the views of runs from their folders.

A view leaves out text that the caller may not see.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from sparring.contracts.command_line import RUN, OnCommandLine
from sparring.contracts.errors import CasesBroken, NotFinished
from sparring.contracts.foreign import MIXED, SUMMARY, ForeignText, MixedTable
from sparring.contracts.json import Beat, JsonObject, MetricsRow, SummaryJson
from sparring.contracts.kinds import KINDS
from sparring.contracts.progress import left_text
from sparring.contracts.specs import Frozen
from sparring.operations.held_out import is_held_out
from sparring.operations.operation import Caller
from sparring.operations.rate_limits import seconds_between
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import best_of, list_checkpoints
from sparring.runs.history import History, read_history
from sparring.runs.index import Index
from sparring.runs.index_database import Row
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import ProcessIdentity
from sparring.runs.status import (
    RunStatus,
    doing_of,
    recent_rows,
    status_of,
    time_left,
    with_figures,
)


class RunQuery(Frozen):
    """One run."""

    run: Annotated[str, RUN] = Field(
        description="the run's id, the beginning or end of it, or an environment's name"
    )


class ListRuns(Frozen):
    """Filters on the runs to list."""

    states: Annotated[tuple[RunState, ...], OnCommandLine("--state")] = Field(
        default=(), description="only runs in these states"
    )
    environment: Annotated[str, OnCommandLine("--env", completes="environments")] = Field(
        default="", description="only runs of this environment"
    )
    kind: Annotated[str, Field(json_schema_extra={"enum": ["", *KINDS]})] = Field(
        default="", description="only runs of this kind"
    )
    after: str = Field(
        default="", description="show the runs after this one: `next` of the previous page"
    )
    count: Annotated[int, OnCommandLine(default=20)] = Field(
        default=50, ge=1, le=1000, description="maximum number of runs to show"
    )

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        if kind not in ("", *KINDS):
            raise ValueError(f"there is no kind {kind!r}; there are {', '.join(KINDS)}")
        return kind


class RunLine(Frozen):
    """One run of a list."""

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
    message: ForeignText = ""


class RunPage(Frozen):
    """One page of runs."""

    runs: tuple[RunLine, ...]
    next: str = Field(default="", description="pass as `after` for the next page; empty at the end")

    def first(self, count: int) -> RunPage:
        """Return the first runs of the page, with `next` pointing to the rest."""
        if count >= len(self.runs):
            return self
        return RunPage(runs=self.runs[:count], next=self.runs[count - 1].run)


class ProcessLine(Frozen):
    """One process of a run."""

    name: str
    state: str
    pid: int
    host: str
    log: str


class ShownRun(Frozen):
    """The complete state of a run."""

    run: str
    kind: str
    environment: str
    model: str
    folder: str
    state: RunState
    cause: str = ""
    message: ForeignText = ""
    error: Annotated[str, MIXED] = ""
    exit_code: int = 0
    author: str = ""
    minutes: float = 0.0
    attempts: int = 0
    restarts: int = Field(default=0, description="restarts since the last new checkpoint")
    last_restart: ForeignText = ""
    is_stopping_for: str = ""
    processes: tuple[ProcessLine, ...] = ()
    step: int | None = None
    steps: int | None = None
    doing: str = Field(default="", description="the current activity")
    loss: float | None = None
    reward: float | None = None
    pass_rates: Annotated[dict[str, float], MIXED] = Field(default_factory=dict)
    validation_reward: float | None = None
    validation_pass_rates: Annotated[dict[str, float], MIXED] = Field(default_factory=dict)
    seconds_left: float | None = None
    estimate_basis: str = ""
    links: Annotated[dict[str, str], MIXED] = Field(default_factory=dict)
    warning: ForeignText = ""
    proof: str = Field(
        default="", description="id of the proof of this training that has not ended or follows it"
    )
    proof_standing: str = Field(default="", description="state and time left of that proof")
    progress: Annotated[JsonObject | None, MIXED] = None
    next_check_seconds: float = 5.0
    is_repeated: bool = Field(
        default=False, description="true if this repeats the last answer: you polled too soon"
    )

    def short(self) -> ShownRun:
        """Return a copy without the folder and most of the progress."""
        left = (self.progress or {}).get("seconds_left")
        progress = {"seconds_left": left} if left else {}
        return self.model_copy(update={"progress": progress, "folder": ""})


class Status(Frozen):
    """The state and progress of a run, for a command that follows it."""

    run: str
    kind: str
    state: RunState
    message: ForeignText = ""
    exit_code: int = 0
    error: str = ""
    last_restart: ForeignText = ""
    progress: Annotated[JsonObject | None, MIXED] = None
    doing: str = Field(default="", description="the current activity of rank 0")


class ResultsQuery(RunQuery):
    """The results to show."""

    rows: int = Field(default=10, ge=0, le=1000, description="rows of the metrics history to show")


class Results(Frozen):
    """The results of a run."""

    run: str
    kind: str
    state: RunState
    message: ForeignText = ""
    summary: Annotated[SummaryJson, SUMMARY]
    final: MixedTable = Field(default_factory=dict, description="the last row of metrics")
    history: Annotated[tuple[MetricsRow, ...], MIXED] = ()
    best_checkpoint: str | None = None
    last_checkpoint: str | None = None

    def short(self) -> Results:
        """Return a copy with key metrics only, and the first and last validation."""
        summary = {
            name: value
            for name, value in self.summary.items()
            if name not in _SHOWN_ELSEWHERE and (name != "cases" or isinstance(value, int))
        }
        if isinstance(rows := summary.get("validation"), list):
            summary["validation"] = [_key_metrics(row) for row in (rows[:1] + rows[1:][-1:])]
        update = {
            "summary": summary,
            "final": _key_metrics(self.final),
            "history": tuple(_key_metrics(row, is_brief=True) for row in self.history),
        }
        return self.model_copy(update=update)


class WaitFor(RunQuery):
    """The run to wait for, the kind of news, and the timeout."""

    since: int | None = Field(
        default=0,
        ge=0,
        lt=2**62,
        description="`cursor` of the previous answer, for later news only; null: from now",
    )
    timeout: float = Field(default=45.0, ge=0, le=45, description="maximum number of seconds")
    until: Literal["news", "end"] = Field(
        default="news", description="news: a new state, warning or checkpoint; end: the end only"
    )


class News(Frozen):
    """The state of a run, and the news since the cursor."""

    run: str
    state: RunState
    has_ended: bool
    exit_code: int = Field(
        default=NotFinished.exit_code,
        description="0: completed; 101: not ended; 103: stopped; other codes: failed",
    )
    step: int | None = Field(default=None, description="training step, or rollouts played")
    steps: int | None = None
    reward: float | None = None
    message: ForeignText
    news: Annotated[tuple[JsonObject, ...], MIXED]
    cursor: int = Field(description="pass as `since` to get only later news")

    def short(self) -> News:
        """Return the news without technical fields."""
        technical = ("epoch", "runs_at_once", "attempt", "time", "tokens", "dtype")
        news = tuple(
            {name: value for name, value in each.items() if name not in technical}
            for each in self.news
        )
        return self.model_copy(update={"news": news})


class LogQuery(RunQuery):
    """The log to read, and the number of lines."""

    process: str = Field(
        default="",
        description="name of the process, as the shown run lists it; default: the first rank",
    )
    attempt: int | None = Field(
        default=None, ge=1, description="number of the attempt; default: the last"
    )
    lines: Annotated[int, OnCommandLine("-n --lines")] = Field(
        default=40, ge=1, le=10_000, description="maximum number of lines, counted from the end"
    )


class Log(Frozen):
    """The end of one log of a run."""

    run: str
    process: str
    attempt: int
    path: str
    there_are: tuple[str, ...]
    text: ForeignText


class Reindexed(Frozen):
    """The number of runs in the new index."""

    runs: int


_SHOWN_ELSEWHERE = frozenset(
    {"run", "kind", "last", "cases_digest", "best_checkpoint", "last_checkpoint"}
)
_BRIEF_METRICS = ("step", "reward", "validation/reward", "pass_rate/", "validation/pass_rate/")
_MORE_METRICS = ("loss", "live_groups", "truncated", "unscored", "call_rate", "kl", "seconds")


def _key_metrics(row: MetricsRow, *, is_brief: bool = False) -> MetricsRow:
    """Return the key metrics of a row; if `is_brief`, only step, rewards and pass rates."""
    wanted = _BRIEF_METRICS if is_brief else (*_BRIEF_METRICS, *_MORE_METRICS)
    return {
        name: value
        for name, value in row.items()
        if name in wanted or name.startswith(("pass_rate/", "validation/pass_rate/"))
    }


# ------------------------------------------------------------------ views, from folders

NEWS = ("state", "warning", "checkpoint", "restart", "links", "parity", "stop_requested")


def line_of(row: Row, folder: RunFolder, caller: Caller) -> RunLine:
    """Return the line of a run in a list, also if its files cannot be read."""
    shared: JsonObject = {
        "run": row.id,
        "kind": row.kind,
        "environment": row.environment,
        "model": Path(row.model).name if "/" in row.model else row.model,
        "state": row.state,
        "author": row.history.author,
        "created": row.history.created,
    }
    try:
        status = with_figures(folder, row.history)
        return RunLine(
            **shared,
            minutes=status.minutes,
            step=status.step,
            steps=status.steps,
            reward=status.metrics.get("reward"),
            message=message_of(row.history, caller, folder),
        )
    except (ValueError, TypeError, AttributeError) as error:
        message = f"its figures cannot be read: {type(error).__name__}"
        return RunLine(**shared, minutes=0.0, message=message)


def message_of(history: History, caller: Caller, folder: RunFolder) -> str:
    """Return the message of a run's state. The message of a stopped run is never hidden."""
    if history.state is RunState.STOPPED:
        return history.message
    return message_for(caller, folder, history.message, history.error)


def message_for(caller: Caller, folder: RunFolder, message: str, error: str = "") -> str:
    """Return the message, or for operators a placeholder if it may quote held-out cases.

    `error` is the class name of the error that the message describes.
    """
    if not message or caller.is_owner:
        return message
    if error == CasesBroken.__name__:
        return f"{message.splitlines()[0].rstrip(':')}; only the owner may see the details"
    hidden = "(only the owner may see messages about held-out cases)"
    return hidden if is_held_out(folder) else message


def visible_events(
    caller: Caller, folder: RunFolder, events: Iterable[JsonObject]
) -> tuple[JsonObject, ...]:
    """Return the events that the caller may see. Operators see only news, without messages that may
    quote a held-out case."""

    def visible(event: JsonObject) -> JsonObject:
        message = str(event.get("message") or "")
        if not message or (event.get("event"), event.get("state")) == ("state", RunState.STOPPED):
            return event
        error = str(event.get("error") or event.get("kind") or "")
        return {**event, "message": message_for(caller, folder, message, error)}

    shown = (each for each in events if caller.is_owner or each.get("event") in NEWS)
    return tuple(map(visible, shown))


def shown_run(folder: RunFolder, status: RunStatus, caller: Caller) -> ShownRun:
    """Return the complete state of a run, as the caller may see it."""
    spec, history, metrics = folder.read_spec(), status.history, status.metrics
    rows = recent_rows(folder)
    validated: MetricsRow = next((row for row in reversed(rows) if "validation/reward" in row), {})
    left = time_left(status)
    proof = active_proof(folder) or _proof_of(folder)
    message = message_of(history, caller, folder)
    if status.state is RunState.QUEUED and not message:
        message = waiting_for(folder, history)
    if status.is_elsewhere:
        host = status.supervisor.get("host", "another host")
        message = message or f"supervised on {host}; control it from there"
    return ShownRun(
        run=folder.id,
        kind=str(spec.get("kind")),
        environment=str(spec.get("environment") or spec.get("target")),
        model=str((spec.get("policy") or {}).get("model") or history.model),
        folder=str(folder.path),
        state=status.state,
        cause=history.cause,
        message=message,
        error=history.error,
        exit_code=history.exit_code,
        author=history.author,
        minutes=status.minutes,
        attempts=max(history.attempt.number, folder.attempts()),
        restarts=history.restarts,
        last_restart=message_for(caller, folder, history.restart_message),
        is_stopping_for=history.stop.author if history.stop and not status.state.has_ended else "",
        processes=tuple(_processes(status)),
        step=status.step,
        steps=status.steps,
        doing=doing_of(folder, status),
        loss=metrics.get("loss"),
        reward=metrics.get("reward"),
        pass_rates=_rates(metrics, "pass_rate/"),
        validation_reward=validated.get("validation/reward"),
        validation_pass_rates=_rates(validated, "validation/pass_rate/"),
        seconds_left=left.seconds if left else None,
        estimate_basis=left.basis if left else "",
        links=dict(history.links),
        warning=message_for(caller, folder, history.warning),
        proof=proof.id if proof else "",
        proof_standing=standing_of(proof) if proof else "",
        progress=visible_progress(folder, status, caller),
        next_check_seconds=seconds_between(status),
    )


def visible_progress(folder: RunFolder, status: RunStatus, caller: Caller) -> JsonObject | None:
    """Return the progress of a run. Operators do not see interim results on held-out cases: that
    would count as a look at the cases."""
    if not status.progress:
        return None
    is_hidden = not caller.is_owner and is_held_out(folder)
    return {
        name: value
        for name, value in status.progress.items()
        if not (is_hidden and name in ("passed", "reward", "metrics"))
    }


def waiting_for(folder: RunFolder, history: History) -> str:
    """Return the reason why a queued run waits, as text."""
    if name := str(folder.read_spec().get("after") or ""):
        predecessor = RunFolder(folder.path.parent / name)
        if not predecessor.spec.is_file():
            return f"waiting for {name}, which no longer exists"
        state = read_history(predecessor).history.state
        if state is not RunState.COMPLETED:
            return f"waiting for {name}, which is {state.value}"
    most = history.runs_at_once
    index = Index(folder.path.parent)
    index.refresh()
    active = index.active()
    running = sum(row.state is not RunState.QUEUED for row in active)
    if most is None or running < most:
        return "about to start"
    waiting = [
        row.id
        for row in active
        if row.state is RunState.QUEUED and not _follows(RunFolder(folder.path.parent / row.id))
    ]
    before = waiting.index(folder.id) if folder.id in waiting else 0
    others = f", and {before} wait before it" if before else ""
    return f"waiting for its turn: {running} of at most {most} runs are running{others}"


def active_proof(training: RunFolder, *, checkpoint: str = "", split: str = "") -> RunFolder | None:
    """Return a proof of a training that has not ended; with `checkpoint` and `split`, one of that
    checkpoint on that split."""
    index = Index(training.path.parent)
    index.refresh()
    has_failed = read_history(training).history.state in (RunState.STOPPED, RunState.FAILED)
    for row in index.active():
        proof = RunFolder(training.path.parent / row.id)
        spec = proof.read_spec() if row.kind == "prove" else {}
        if spec.get("run") != training.id or split not in ("", spec.get("split")):
            continue
        if has_failed and row.state is RunState.QUEUED and spec.get("after"):
            continue  # it waits for the training and will not start
        if checkpoint in ("", spec.get("checkpoint") or default_checkpoint(training)):
            return proof
    return None


def default_checkpoint(training: RunFolder) -> str:
    """Return the checkpoint that a proof plays unless another is named: the best on validation, or
    the last if none was validated; empty if there is none."""
    checkpoints = list_checkpoints(training.checkpoints)
    chosen = best_of(checkpoints) or (checkpoints[-1] if checkpoints else None)
    return chosen.path.name if chosen else ""


def standing_of(folder: RunFolder) -> str:
    """Return the state of a run and, if it is known, its time left: `running, 12 min left`."""
    status = status_of(folder)
    left = time_left(status)
    parts = [status.state.value, left_text(left.seconds) if left else ""]
    return ", ".join(filter(None, parts))


def _proof_of(folder: RunFolder) -> RunFolder | None:
    proof = RunFolder(folder.path.parent / f"proof-{folder.id}")
    return proof if proof.spec.is_file() else None


def _follows(folder: RunFolder) -> bool:
    """Return whether a run starts after another run."""
    return bool(folder.spec.is_file() and folder.read_spec().get("after"))


def _processes(status: RunStatus) -> list[ProcessLine]:
    """Return the supervisor and the processes that it reports."""
    supervisor = status.supervisor
    if not supervisor:
        return []
    has_ended = status.state.has_ended
    own = {"name": "supervisor", "state": "done" if has_ended else "running", "log": ""}
    return [_process({**supervisor, **own}), *map(_process, supervisor.get("processes", ()))]


def _process(row: Beat) -> ProcessLine:
    """Return a process with its last reported state, or `gone` if it has died since."""
    identity = ProcessIdentity.from_dict(row)
    state = str(row["state"])
    is_gone = identity is not None and identity.is_of_this_host and not identity.is_alive
    return ProcessLine(
        name=str(row["name"]),
        state="gone" if state == "running" and is_gone else state,
        pid=int(row["pid"]),
        host=str(row["host"]),
        log=str(row["log"]),
    )


def _rates(row: MetricsRow, prefix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix): float(value)
        for name, value in row.items()
        if name.startswith(prefix) and value is not None
    }
