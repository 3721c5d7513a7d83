"""Operations that read runs: list, state, results, news, logs, settings, checkpoints."""

from __future__ import annotations

import time
from typing import Annotated, Any

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput, NotFinished, NotPermitted, RunNotFound
from sparring.contracts.foreign import MIXED, MixedText
from sparring.contracts.json import JsonObject
from sparring.contracts.kinds import run_kind
from sparring.contracts.specs import Frozen, Table, is_python_target
from sparring.operations.held_out import figures_of, is_held_out
from sparring.operations.operation import Caller, Forms, NoArguments, Role, operation
from sparring.operations.rate_limits import last_answer, store_answer
from sparring.operations.run_views import (
    NEWS,
    ListRuns,
    Log,
    LogQuery,
    News,
    Reindexed,
    Results,
    ResultsQuery,
    RunPage,
    RunQuery,
    ShownRun,
    Status,
    WaitFor,
    line_of,
    message_for,
    message_of,
    shown_run,
    visible_events,
    visible_progress,
)
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import best_of, chosen_of, list_checkpoints
from sparring.run_folder.contents import read_history_rows, sampled
from sparring.run_folder.files import read_from, read_json
from sparring.run_folder.layout import CASES, is_plain_name
from sparring.runs.causes import last_lines
from sparring.runs.finding import find_run
from sparring.runs.index import Index, Query
from sparring.runs.queue import reconcile
from sparring.runs.status import RunStatus, doing_of, status_of, supervised_status
from sparring.settings.fields import Kind
from sparring.settings.layers import DEFAULTS, defaults, flatten

_POLL_SECONDS = 0.2


class RunSetting(Frozen):
    """One setting of a run."""

    name: MixedText
    value: Annotated[Any, MIXED] = None
    source: str = Field(description="a file and line, an environment, the command, or defaults")
    locked_by: str = ""


class RunDetails(Frozen):
    """The target of a run, and its settings."""

    run: str
    kind: str
    target: MixedText
    split: str = ""
    plan: str = ""
    after: str = ""
    training: str = Field(default="", description="the training run that was proved or shipped")
    settings: tuple[RunSetting, ...]
    measures: Annotated[Table, MIXED] = Field(default_factory=dict)
    code_digest: str = ""
    digests: Annotated[Table, MIXED] = Field(
        default_factory=dict, description="of what the chosen checkpoint was trained with"
    )
    versions: Annotated[Table, MIXED] = Field(default_factory=dict, description="of packages")


class CheckpointLine(Frozen):
    """One checkpoint."""

    step: int
    score: float | None = Field(default=None, description="mean validation reward")
    is_best: bool = False
    path: str
    bytes: int = 0


class Checkpoints(Frozen):
    """The checkpoints of a run, by step."""

    run: str
    checkpoints: tuple[CheckpointLine, ...]


@operation(
    "run.list",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="run list", tool="list_runs"),
)
def list_runs(request: ListRuns, caller: Caller) -> RunPage:
    """List runs in all states, newest first."""
    if not caller.runs.is_dir():
        return RunPage(runs=())
    index = Index(caller.runs)
    if caller.can_supervise:
        reconcile(index)
    query = Query(
        states=request.states,
        environment=request.environment,
        kind=request.kind,
        after=request.after,
        count=request.count + 1,
    )
    has_after = is_plain_name(request.after) and (caller.runs / request.after).is_dir()
    if request.after and not has_after:
        raise RunNotFound(f"after: there is no run {request.after[:80]!r}")
    rows = index.page(query)
    shown = rows[: request.count]
    lines = tuple(line_of(row, RunFolder(caller.runs / row.id), caller) for row in shown)
    return RunPage(runs=lines, next=shown[-1].id if len(rows) > request.count else "")


@operation(
    "run.show",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="run show", tool="show_run"),
)
def show_run(request: RunQuery, caller: Caller) -> ShownRun:
    """Show the state of a run: processes, step, figures, time left."""
    folder = find_run(caller.runs, request.run)
    status = _status(folder, caller)
    if (answer := last_answer(folder, status, caller)) is not None:
        return ShownRun.model_validate(answer)
    shown = shown_run(folder, status, caller)
    store_answer(folder, status, caller, shown.model_dump(mode="json"))
    return shown


@operation("run.status", role=Role.VIEWER, changes_state=False)
def run_status(request: RunQuery, caller: Caller) -> Status:
    """Show the state and progress of a run, without its metrics and processes."""
    folder = find_run(caller.runs, request.run)
    status = _status(folder, caller)
    return Status(
        run=folder.id,
        kind=str(folder.read_spec().get("kind")),
        state=status.state,
        message=message_of(status.history, caller, folder),
        exit_code=status.history.exit_code,
        error=status.history.error,
        last_restart=message_for(caller, folder, status.history.restart_message),
        progress=visible_progress(folder, status, caller),
        doing=doing_of(folder, status),
    )


@operation(
    "run.results",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="run results", tool="get_results"),
)
def run_results(request: ResultsQuery, caller: Caller) -> Results:
    """Show the results of a run: final figures, a sample of the history, paths of checkpoints.

    Intervals (low … high) are at 95 %. In a check, `live` is the share of groups whose rewards
    differ, by group size; only such groups carry a gradient. In a proof, `smallest_effect` is the
    smallest difference that the proof could have shown, `chances` the number of trained models
    compared, and `differing` the number of cases with different outcomes.
    """
    folder = find_run(caller.runs, request.run)
    status = _status(folder, caller)
    spec = folder.read_spec()
    if not folder.summary.is_file() and not status.state.has_ended:
        raise NotFinished(
            f"run {folder.id} is {status.state.value} and has no results yet; "
            f"`sparring run wait {folder.id}` waits for them"
        )
    summary = read_json(folder.summary) if folder.summary.is_file() else {}
    has_held_out = summary.get("split") == Split.HELD_OUT
    if not caller.is_owner and (has_held_out or is_held_out(folder)):
        summary = figures_of(summary)
    history = (
        read_history_rows(folder)
        if run_kind(str(spec.get("kind")), folder.spec).has_metrics
        else []
    )
    checkpoints = list_checkpoints(folder.checkpoints)
    best = best_of(checkpoints)
    return Results(
        run=folder.id,
        kind=str(spec.get("kind")),
        state=status.state,
        message=message_of(status.history, caller, folder),
        summary=summary,
        final=history[-1] if history else {},
        history=tuple(sampled(history, request.rows, best.step if best else None)),
        best_checkpoint=str(best.path) if best else None,
        last_checkpoint=str(checkpoints[-1].path) if checkpoints else None,
    )


@operation(
    "run.wait",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="run wait", tool="wait_for_run"),
)
def wait_for_run(request: WaitFor, caller: Caller) -> News:
    """Wait for news of a run: a new state, a warning, a checkpoint, the end."""
    folder = find_run(caller.runs, request.run)
    deadline = time.monotonic() + request.timeout
    cursor = request.since
    if cursor is None:
        cursor = folder.events.stat().st_size if folder.events.exists() else 0
    events: list[JsonObject] = []
    while True:
        status = _status(folder, caller)
        lines = read_from(folder.events, cursor)
        cursor = lines.cursor
        events += [event for event in lines.values if event.get("event") in NEWS]
        is_enough = bool(events) and request.until == "news"
        if is_enough or time.monotonic() >= deadline or status.state.has_ended:
            return _news(folder, status_of(folder) if events else status, events, cursor, caller)
        time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def _news(
    folder: RunFolder,
    status: RunStatus,
    events: list[JsonObject],
    cursor: int,
    caller: Caller,
) -> News:
    history = status.history
    has_ended = history.state.has_ended
    return News(
        run=folder.id,
        state=history.state,
        has_ended=has_ended,
        exit_code=history.exit_code if has_ended else NotFinished.exit_code,
        step=status.step,
        steps=status.steps,
        reward=status.metrics.get("reward"),
        message=message_of(history, caller, folder),
        news=visible_events(caller, folder, events),
        cursor=cursor,
    )


@operation(
    "run.logs",
    role=Role.OPERATOR,
    changes_state=False,
    forms=Forms(cli="run logs", tool="read_log"),
)
def run_logs(request: LogQuery, caller: Caller) -> Log:
    """Read the last lines of a log of one of the run's processes."""
    folder = find_run(caller.runs, request.run)
    if not caller.is_owner and is_held_out(folder):
        raise NotPermitted("only the owner may read logs of runs on held-out cases")
    attempt = request.attempt or folder.attempts()
    _refuse_missing_log(folder, attempt)
    logs = {path.stem: path for path in sorted(folder.log(attempt).parent.glob("*.log"))}
    logs |= {path.stem: path for path in (folder.path / "logs").glob("*.log")}
    if not caller.is_owner:
        logs.pop(CASES, None)  # it may quote held-out cases
    ranks = [name for name in logs if name.startswith(("worker", "rank-"))]
    name = request.process or (ranks or list(logs) or [""])[0]
    if name not in logs:
        listed = ", ".join(logs) or "none yet"
        raise InvalidInput(
            f"run {folder.id} has no log {name!r} in attempt {attempt}; there are: {listed}"
        )
    text = last_lines(logs[name], request.lines)
    shown = "\n".join(line.removeprefix("  ") for line in text.splitlines())
    return Log(
        run=folder.id,
        process=name,
        attempt=attempt,
        path=str(logs[name]),
        there_are=tuple(logs),
        text=shown,
    )


@operation(
    "run.reindex",
    role=Role.OPERATOR,
    changes_state=False,
    forms=Forms(cli="run reindex"),
)
def reindex_runs(_: NoArguments, caller: Caller) -> Reindexed:
    """Rebuild the index of runs from their folders."""
    if not caller.runs.is_dir():
        return Reindexed(runs=0)
    index = Index(caller.runs)
    count = index.reindex()
    if caller.can_supervise:
        reconcile(index)
    return Reindexed(runs=count)


@operation("run.details", role=Role.VIEWER, changes_state=False)
def run_details(request: RunQuery, caller: Caller) -> RunDetails:
    """Show the settings, config and policy of a run, each value with its source and its lock."""
    folder = find_run(caller.runs, request.run)
    spec = folder.read_spec()
    sources, locks = spec.get("sources") or {}, spec.get("locks") or {}
    chosen = chosen_of(list_checkpoints(folder.checkpoints))
    manifest = chosen.manifest if chosen else {}
    values = {
        **dict(flatten(spec.get("settings") or spec.get("play") or {})),
        **dict(flatten({"config": spec.get("config") or {}})),
        **{f"policy.{name}": each for name, each in (spec.get("policy") or {}).items() if each},
    }
    return RunDetails(
        run=folder.id,
        kind=str(spec.get("kind")),
        target=str(spec.get("target") or ""),
        split=str(spec.get("split") or ""),
        plan=str(spec.get("plan") or ""),
        after=str(spec.get("after") or ""),
        training=str(spec.get("run") or ""),
        settings=tuple(
            RunSetting(
                name=name,
                value=value,
                source=str(_of(name, sources) or _source_of(name, value, spec)),
                locked_by=str(_of(name, locks) or ""),
            )
            for name, value in sorted(values.items())
        ),
        measures=dict(spec.get("measures") or {}),
        code_digest=str(spec.get("code_digest") or ""),
        digests=_texts(manifest.get("digests")),
        versions=_texts(manifest.get("versions")),
    )


@operation("run.checkpoints", role=Role.VIEWER, changes_state=False)
def run_checkpoints(request: RunQuery, caller: Caller) -> Checkpoints:
    """List the checkpoints of a run with their validation scores."""
    folder = find_run(caller.runs, request.run)
    found = list_checkpoints(folder.checkpoints)
    best = best_of(found)
    return Checkpoints(
        run=folder.id,
        checkpoints=tuple(
            CheckpointLine(
                step=each.step,
                score=each.score,
                is_best=best is not None and each.step == best.step,
                path=str(each.path),
                bytes=_size(each.manifest),
            )
            for each in found
        ),
    )


def _status(folder: RunFolder, caller: Caller) -> RunStatus:
    return supervised_status(folder) if caller.can_supervise else status_of(folder)


def _refuse_missing_log(folder: RunFolder, attempt: int) -> None:
    if is_python_target(str(folder.read_spec().get("target", ""))):
        raise InvalidInput(
            f"run {folder.id} was started from Python: its output goes to the process that "
            "started it"
        )
    attempts = folder.attempts()
    if not attempts:
        raise InvalidInput(f"run {folder.id} has no log yet: it has not started")
    if not 1 <= attempt <= attempts:
        raise InvalidInput(f"run {folder.id} has no attempt {attempt}; there are {attempts}")


def _source_of(name: str, value: Any, spec: Table) -> str:
    """Return the source of a setting without one: a run from Python names no sources."""
    if not is_python_target(str(spec.get("target") or "")):
        return DEFAULTS
    kind: Kind = "train" if spec.get("kind") == "train" else "eval"
    return DEFAULTS if dict(flatten(defaults(kind, ()))).get(name) == value else "Python"


def _of(name: str, table: Table) -> Any:
    """Return the entry of a dotted name, or of the nearest table that contains it. In `table`,
    names such as `policy.model` have no `policy.`."""
    parts = name.removeprefix("policy.").split(".")
    while parts:
        if found := table.get(".".join(parts)):
            return found
        parts.pop()
    return None


def _size(manifest: Any) -> int:
    files = manifest.get("files") or {}
    return sum(int(each.get("bytes") or each.get("size") or 0) for each in files.values())


def _texts(table: Table | None) -> Table:
    return {name: str(value) for name, value in (table or {}).items()}
