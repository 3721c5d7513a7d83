"""Follows a run in the foreground: progress, Ctrl-C, and the result or error at its end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from sparring.contracts.errors import GuardStop, NotFinished, RunFailed
from sparring.contracts.json import Beat, SummaryJson
from sparring.operations.operation import Caller
from sparring.operations.run_control import stop_run
from sparring.operations.run_views import ListRuns, ResultsQuery, RunQuery, Status
from sparring.operations.runs import list_runs, run_results, run_status
from sparring.operations.starting import Started
from sparring.run_folder.layout import short_id
from sparring.runs.lifecycle import RunState
from sparring.surfaces.cli.kind_views import KindView, show_results, view_of
from sparring.surfaces.cli.tables import printable

_LINE_SECONDS = 60.0
_POLL_SECONDS = 0.2
_NO_MESSAGE = "the run ended without a message; `sparring run logs {run}` shows its output"


def begin(started: Started, caller: Caller, *, detach: bool, as_json: bool) -> None:
    """Follow a started run to its end, or with `detach` print its id and return."""
    if others := _other_running(started, caller):
        print(f"other runs are active: {', '.join(others)}", file=sys.stderr)
    if not detach:
        follow(started.run, caller, as_json=as_json, proof=started.proof)
        return
    print(started.model_dump_json() if as_json else started.run)
    if not started.is_new:
        print(f"the run is already {started.state.value}", file=sys.stderr)
    elif started.message:
        print(started.message, file=sys.stderr)
    if started.proof:
        print(f"proof of this training: {started.proof}", file=sys.stderr)


def _other_running(started: Started, caller: Caller) -> list[str]:
    """Return other active runs, so that a user notices a command that was started twice."""
    states = (RunState.STARTING, RunState.RUNNING)
    page = list_runs(ListRuns(states=states, count=3), caller)
    return [each.run for each in page.runs if each.run not in (started.run, started.proof)]


def follow(
    run: str, caller: Caller, *, as_json: bool, only_looks: bool = False, proof: str = ""
) -> None:
    """Show the progress of a run until it ends, then its results and those of its proof.

    Ctrl-C asks whether to stop the run. Without a terminal, Ctrl-C stops it, or leaves it running
    if `only_looks` is true.
    """
    console = Console(stderr=True)
    console.print(Text.assemble("run ", (run, "bold")), soft_wrap=True)
    if not only_looks and sys.stdin.isatty():  # without a terminal, Ctrl-C stops the run
        stop = f"it continues if this command ends; `sparring run stop {short_id(run)}` stops it"
        console.print(Text(stop, style="dim"), soft_wrap=True)
    query = RunQuery(run=run)
    status = _wait_or_ask(query, caller, console, default_choice="leave" if only_looks else "stop")
    if status is None:
        message = f"the run continues in the background; `sparring run watch {run}` follows it"
        raise NotFinished(message)
    summary = run_results(ResultsQuery(run=run), caller).summary
    if status.state is not RunState.COMPLETED:
        is_stopped = status.state is RunState.STOPPED
        if is_stopped and summary and not as_json and view_of(status.kind).shows_stopped:
            show_results(status.kind, summary, Console())
        _raise_failure(status)
    if not as_json:
        more = {"has_proof": True} if proof else {}
        show_results(status.kind, {**summary, **more}, Console())
    proof_summary = _wait_for_proof(proof, caller, console) if proof else None
    if as_json:
        print(json.dumps({**summary, "proof": proof_summary} if proof else summary))
    elif proof_summary:
        show_results("prove", proof_summary, Console())


def _wait_for_proof(run: str, caller: Caller, console: Console) -> SummaryJson | None:
    """Return the summary of a run's proof. A proof that fails does not fail the training run."""
    console.print(Text.assemble("proof ", (run, "bold")), soft_wrap=True)
    status = _wait_or_ask(RunQuery(run=run), caller, console, default_choice="leave")
    if status is None:
        return None
    if status.state is not RunState.COMPLETED:
        message = printable(status.message or _NO_MESSAGE.format(run=short_id(status.run)))
        console.print(Text(f"no proof: {message}", style="yellow"), soft_wrap=True)
        return None
    return run_results(ResultsQuery(run=run), caller).summary


def _wait_or_ask(
    query: RunQuery, caller: Caller, console: Console, default_choice: str
) -> Status | None:
    """Return the status of the ended run, or None if the user leaves it running.

    Without a terminal, Ctrl-C means `default_choice`.
    """
    lines = view_of(run_status(query, caller).kind).lines()
    while True:
        try:
            return _wait(query, caller, console, lines)
        except KeyboardInterrupt:
            choice = _ask_choice(console) if sys.stdin.isatty() else default_choice
        if choice == "leave":
            return None
        if choice == "stop":
            view = view_of(run_status(query, caller).kind)
            console.print(view.stopping)
            stop_run(query, caller)
            return _wait(query, caller, console, lines)


def _ask_choice(console: Console) -> str:
    """Ask whether to stop the run, leave it running or keep watching it."""
    question = "\nstop the run (s), leave it running (l), or keep watching (Enter)? "
    try:
        console.print(question, end="")
        answer = input().strip().lower()
    except (KeyboardInterrupt, EOFError):
        console.print()
        return "leave"  # a second Ctrl-C must lose no work
    return {"s": "stop", "l": "leave"}.get(answer[:1], "watch")


def _wait(
    query: RunQuery, caller: Caller, console: Console, lines: Callable[[Beat], list[str]]
) -> Status:
    """Show the run's progress until it ends."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[news]}"),
    )
    view = view_of(run_status(query, caller).kind)
    with Progress(*columns, console=console, transient=True) as bar:
        display = _Display(bar, view, lines)
        while True:
            status = run_status(query, caller)
            display.show(status)
            if status.state.has_ended:
                return status
            time.sleep(_POLL_SECONDS)


class _Display:
    """A progress bar, and above it each new line of progress. Without a terminal, the progress is
    printed at least once a minute."""

    def __init__(self, bar: Progress, view: KindView, lines: Callable[[Beat], list[str]]) -> None:
        self._bar, self._view, self._new_lines = bar, view, lines
        self._task = bar.add_task("queued", total=None, news="")
        self._state: RunState | None = None
        self._activity = ""
        self._began, self._printed_at = time.time(), time.monotonic()

    def show(self, status: Status) -> None:
        has_moved, self._state = status.state is not self._state, status.state
        if has_moved and status.state is RunState.STARTING and status.last_restart:
            self._print(f"restarting: {printable(status.last_restart)}")
        has_changed, self._activity = (now := _activity(status)) != self._activity, now
        if has_changed and not self._bar.console.is_terminal:
            self._print(self._activity)
        self._bar.update(self._task, description=self._activity)
        is_waiting = status.state in (RunState.QUEUED, RunState.STARTING)
        beat = status.progress
        # A run that waits has the progress of an earlier attempt.
        if beat and not (is_waiting and float(beat.get("time", 0.0)) < self._began):
            self._show_progress(beat)

    def _show_progress(self, beat: Beat) -> None:
        progress = self._view.shown(beat)
        self._bar.update(
            self._task, total=progress.total, completed=progress.done, news=progress.news
        )
        lines = self._new_lines(beat)
        is_due = time.monotonic() - self._printed_at >= _LINE_SECONDS
        if is_due and not (lines or self._bar.console.is_terminal):
            lines = [f"{self._activity}: {progress.done} of {progress.total} · {progress.news}"]
        for line in lines:
            self._print(line)
        if lines:
            self._printed_at = time.monotonic()

    def _print(self, line: str) -> None:
        self._bar.console.print(line, soft_wrap=True, highlight=False, markup=False)


ACTIVITIES = {
    "starting": "starting its process",
    "loading": "loading libraries and the model",
    "scoring": "computing advantages",
    "updating": "updating the weights",
    "validating": "playing validation cases",
    "saving": "saving a checkpoint",
}


def _activity(status: Status) -> str:
    """Return the current activity of the run, or its state."""
    activity = ACTIVITIES.get(status.doing, status.doing)
    match status.state:
        case RunState.QUEUED:
            return "queued"
        case RunState.STARTING:
            return activity or "starting"
        case RunState.STOPPING:
            return f"stopping, after {activity}" if activity else "stopping"
        case RunState.RUNNING:
            return activity or "running"
        case _:
            return status.state.value


def _raise_failure(status: Status) -> NoReturn:
    """Raise RunFailed with the message of a stopped or failed run and a hint how to resume it."""
    message = printable(status.message or _NO_MESSAGE.format(run=short_id(status.run)))
    can_resume = status.error != GuardStop.__name__  # the guard would stop it again
    beat = status.progress or {}
    if can_resume and (hint := view_of(status.kind).resume_hint(beat, status.run)):
        message += f"\n{hint}"
    kind = "Stopped" if status.state is RunState.STOPPED else status.error or "RunFailed"
    raise RunFailed(message, kind, status.exit_code or 100)
