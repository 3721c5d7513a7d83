"""Looking at runs: which there are, how one is, what came of it, what it said."""

from __future__ import annotations

import time
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput, NotFinished, NotPermitted, RunNotFound
from sparring.operations.held_out import figures_of
from sparring.operations.operation import Caller, Forms, Nothing, Role, operation
from sparring.operations.patience import keep_answer, last_answer
from sparring.operations.run_views import (
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
)
from sparring.operations.run_words import line_of, shown_run, words_for
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import best_of, list_checkpoints
from sparring.run_folder.files import read_from, read_json, read_told
from sparring.run_folder.ids import is_plain_name
from sparring.run_folder.layout import CASES
from sparring.run_folder.metrics import history_of, sampled
from sparring.runs.causes import last_lines
from sparring.runs.finding import find_run
from sparring.runs.index import Index, Query
from sparring.runs.queue import reconcile
from sparring.runs.status import RunStatus, attended_status, status_of

_NEWS = ("state", "warning", "checkpoint", "restart", "links", "parity", "stop_requested")
_LOOK_SECONDS = 0.2


@operation(
    "run.list",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="run list", tool="list_runs"),
)
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
    is_there = is_plain_name(request.after) and (caller.runs / request.after).is_dir()
    if request.after and not is_there:
        raise RunNotFound(f"after: there is no run {request.after[:80]!r}")
    rows = index.page(query)
    shown = rows[: request.count]
    lines = tuple(line_of(row, RunFolder(caller.runs / row.id), caller) for row in shown)
    return RunPage(runs=lines, next=shown[-1].id if len(rows) > request.count else "")


@operation(
    "run.show",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(
        cli="run show", tool="show_run", known_as=("check_status", "get_status", "check_training")
    ),
)
def show_run(request: RunQuery, caller: Caller) -> ShownRun:
    """Say how a run is: state, processes, step, figures, time left."""
    folder = find_run(caller.runs, request.run)
    status = attended_status(folder)
    if (kept := last_answer(folder, status, caller)) is not None:
        return ShownRun.model_validate(kept)
    shown = shown_run(folder, status, caller)
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
        message=words_for(caller, folder, status.history.message, status.history.error),
        exit_code=status.history.exit_code,
        error=status.history.error,
        last_restart=words_for(caller, folder, status.history.restart_message),
        progress=dict(status.progress) if status.progress else None,
        doing=str(read_told(folder.pulse(0)).get("doing", "")),
    )


@operation(
    "run.results",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="run results", tool="get_results", known_as=("get_training_results",)),
)
def run_results(request: ResultsQuery, caller: Caller) -> Results:
    """What came of a run: final figures, a sample of the history, where the weights are.

    Intervals (low … high) are at 95 %. Of a check: `live` is the share of groups whose rewards
    differ, by size of the group; only those teach. Of a proof: `smallest_effect` is what it could
    have shown, `chances` how many trained models were picked from, `differing` the cases that came
    out differently.
    """
    folder = find_run(caller.runs, request.run)
    status = attended_status(folder)
    spec = folder.read_spec()
    if not folder.summary.is_file() and not status.state.has_ended:
        raise NotFinished(
            f"run {folder.id} is {status.state.value} and has no results yet; "
            f"`sparring run wait {folder.id}` waits for them"
        )
    summary = read_json(folder.summary) if folder.summary.is_file() else {}
    if not caller.is_owner and summary.get("split") == Split.HELD_OUT:
        summary = figures_of(summary)
    history = history_of(folder) if spec.get("kind") == "train" else []
    there = list_checkpoints(folder.checkpoints)
    best = best_of(there)
    return Results(
        run=folder.id,
        kind=str(spec.get("kind")),
        state=status.state,
        message=words_for(caller, folder, status.history.message, status.history.error),
        summary=summary,
        final=history[-1] if history else {},
        history=tuple(sampled(history, request.rows, best.step if best else None)),
        best_checkpoint=str(best.path) if best else None,
        last_checkpoint=str(there[-1].path) if there else None,
    )


@operation(
    "run.wait",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="run wait", tool="wait_for_run", known_as=("poll", "watch")),
)
def wait_for_run(request: WaitFor, caller: Caller) -> News:
    """Return as soon as there is news of a run: a new state, a warning, a checkpoint, the end."""
    folder = find_run(caller.runs, request.run)
    deadline = time.monotonic() + request.timeout
    cursor = request.since
    if cursor is None:
        cursor = folder.events.stat().st_size if folder.events.exists() else 0
    heard: list[dict[str, Any]] = []
    while True:
        status = attended_status(folder)
        lines = read_from(folder.events, cursor)
        cursor = lines.cursor
        heard += [event for event in lines.values if event.get("event") in _NEWS]
        is_enough = bool(heard) and request.until == "news"
        if is_enough or time.monotonic() >= deadline or status.state.has_ended:
            return _news(folder, status_of(folder) if heard else status, heard, cursor, caller)
        time.sleep(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))


def _news(
    folder: RunFolder,
    status: RunStatus,
    heard: list[dict[str, Any]],
    cursor: int,
    caller: Caller,
) -> News:
    history, beat = status.history, status.progress or {}
    has_ended = history.state.has_ended
    return News(
        run=folder.id,
        state=history.state,
        has_ended=has_ended,
        exit_code=history.exit_code if has_ended else NotFinished.exit_code,
        step=beat.get("step", beat.get("rollouts")),
        steps=beat.get("steps", beat.get("total")),
        reward=(beat.get("metrics") or {}).get("reward"),
        message=words_for(caller, folder, history.message, history.error),
        news=tuple(_for(caller, folder, event) for event in heard),
        cursor=cursor,
    )


@operation(
    "run.logs",
    role=Role.OPERATOR,
    changes_state=False,
    forms=Forms(cli="run logs", tool="read_log", known_as=("tail_log",)),
)
def run_logs(request: LogQuery, caller: Caller) -> Log:
    """The last lines that a process of a run has printed."""
    folder = find_run(caller.runs, request.run)
    if not caller.is_owner and folder.read_spec().get("split") == Split.HELD_OUT:
        raise NotPermitted("what was printed over held-out cases is for the owner")
    attempt = request.attempt or folder.attempts()
    _refuse_missing_log(folder, attempt)
    place = folder.log(attempt).parent
    found = {path.stem: path for path in sorted(place.glob("*.log"))}
    found |= {path.stem: path for path in (folder.path / "logs").glob("*.log")}
    if not caller.is_owner:
        found.pop(CASES, None)  # it may quote held-out ones
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


@operation(
    "run.reindex",
    role=Role.OPERATOR,
    changes_state=False,
    forms=Forms(cli="run reindex"),
)
def reindex_runs(_: Nothing, caller: Caller) -> Reindexed:
    """Build the index of runs anew, from their folders alone."""
    if not caller.runs.is_dir():
        return Reindexed(runs=0)
    index = Index(caller.runs)
    count = index.reindex()
    reconcile(index)
    return Reindexed(runs=count)


def _refuse_missing_log(folder: RunFolder, attempt: int) -> None:
    if str(folder.read_spec().get("target", "")).startswith("(python) "):
        raise InvalidInput(
            f"run {folder.id} was started from Python: what it printed is where it was started"
        )
    there = folder.attempts()
    if not there:
        raise InvalidInput(f"run {folder.id} has printed nothing yet: it has not begun")
    if not 1 <= attempt <= there:
        raise InvalidInput(f"run {folder.id} has no attempt {attempt}; there are {there}")


def _for(caller: Caller, folder: RunFolder, event: dict[str, Any]) -> dict[str, Any]:
    words = str(event.get("message") or "")
    error = str(event.get("error") or event.get("kind") or "")
    return {**event, "message": words_for(caller, folder, words, error)} if words else event
