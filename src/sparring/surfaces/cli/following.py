"""Follows a run in the foreground: progress, Ctrl-C, and the result or error at its end."""

from __future__ import annotations

import json
import sys
import time
from typing import NoReturn

from rich.console import Console
from rich.progress import (
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from sparring.contracts.errors import NotFinished, RunFailed
from sparring.contracts.json import SummaryJson
from sparring.contracts.progress import SlowerThanExpected
from sparring.operations.operation import Caller
from sparring.operations.run_control import stop_run
from sparring.operations.run_views import ListRuns, ResultsQuery, RunQuery, Status
from sparring.operations.runs import list_runs, run_results, run_status
from sparring.operations.starting import Started
from sparring.run_folder.layout import short_id
from sparring.runs.causes import can_never_run
from sparring.runs.lifecycle import RunState
from sparring.surfaces.cli.kind_views import show_results, view_of
from sparring.surfaces.cli.next_steps import after_run
from sparring.surfaces.cli.page import Paragraph, printable, remark, show

_LINE_SECONDS = 60.0
_POLL_SECONDS = 0.2
_NO_MESSAGE = "the run ended without a message; `sparring run logs {run}` shows its output"


def begin(started: Started, caller: Caller, *, detach: bool, as_json: bool) -> None:
    """Follow a started run to its end, or with `detach` print its id and return."""
    if others := _other_running(started, caller):
        print(
            f"other runs are active: {', '.join(others)}; runs on one machine slow each other down",
            file=sys.stderr,
        )
    if not detach:
        follow(started, caller, as_json=as_json)
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
    return [line.run for line in page.runs if line.run not in (started.run, started.proof)]


def follow(started: Started, caller: Caller, *, as_json: bool, only_looks: bool = False) -> None:
    """Show the progress of a run until it ends, then its results and those of its proof.

    Ctrl-C asks whether to stop the run. Without a terminal, Ctrl-C stops it, or leaves it running
    if `only_looks` is true.
    """
    run, console = started.run, Console(stderr=True)
    show([Paragraph(f"run {run}")], console)
    if not only_looks and sys.stdin.isatty():  # without a terminal, Ctrl-C stops the run
        stop = f"it continues if this command ends; `sparring run stop {short_id(run)}` stops it"
        show([remark(stop)], console)
    followed = _Followed(run, caller, console, started.expected_hours)
    status = followed.wait_or_ask(default_choice="leave" if only_looks else "stop")
    if status is None:
        message = f"the run continues in the background; `sparring run watch {run}` follows it"
        raise NotFinished(message)
    summary = run_results(ResultsQuery(run=run), caller).summary
    if status.state is not RunState.COMPLETED:
        is_stopped = status.state is RunState.STOPPED
        if is_stopped and summary and not as_json and view_of(status.kind).shows_stopped:
            show_results(status.kind, summary)
        _raise_failure(status)
    if not as_json:
        more = {"has_proof": True} if started.proof else {}
        show_results(status.kind, {**summary, **more})
    proof = _wait_for_proof(started.proof, caller, console) if started.proof else None
    if as_json:
        proved = {"proof": proof} if started.proof else {}
        kind, last = ("prove", proof) if proof else (status.kind, summary)
        print(json.dumps({**summary, **proved, "next": dict(after_run(kind, last))}))
    elif proof:
        show_results("prove", proof)


def _wait_for_proof(run: str, caller: Caller, console: Console) -> SummaryJson | None:
    """Return the summary of a run's proof. A proof that fails does not fail the training run."""
    show([Paragraph(f"proof {run}")], console)
    status = _Followed(run, caller, console).wait_or_ask(default_choice="leave")
    if status is None:
        return None
    if status.state is not RunState.COMPLETED:
        message = status.message or _NO_MESSAGE.format(run=short_id(status.run))
        show([Paragraph(f"no proof: {message}", "yellow")], console)
        return None
    return run_results(ResultsQuery(run=run), caller).summary


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


class _Followed:
    """A run with its progress on a terminal: its activity, and above it each new line. Without a
    terminal, the progress is printed at least once a minute, and each activity once."""

    def __init__(
        self, run: str, caller: Caller, console: Console, expected_hours: float | None = None
    ) -> None:
        self._query, self._caller, self._console = RunQuery(run=run), caller, console
        self._view = view_of(run_status(self._query, caller).kind)
        self._sources = (self._view.lines(), SlowerThanExpected(expected_hours))
        self._state: RunState | None = None
        self._printed: set[str] = set()  # activities
        self._began, self._printed_at = time.time(), time.monotonic()

    def wait_or_ask(self, default_choice: str) -> Status | None:
        """Return the status of the ended run, or None if the user leaves it running. Without a
        terminal, Ctrl-C means `default_choice`."""
        while True:
            try:
                return self._wait()
            except KeyboardInterrupt:
                choice = default_choice
                if sys.stdin.isatty():
                    choice = _ask_choice(self._console)
            if choice == "leave":
                return None
            if choice == "stop":
                self._console.print(self._view.stopping)
                stop_run(self._query, self._caller)
                return self._wait()

    def _wait(self) -> Status:
        columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task("queued", total=None)
            while True:
                status = run_status(self._query, self._caller)
                bar.update(task, description=self._show(status))
                if status.state.has_ended:
                    return status
                time.sleep(_POLL_SECONDS)

    def _show(self, status: Status) -> str:
        """Print what is new, and return the activity with the progress of this attempt."""
        has_moved, self._state = status.state is not self._state, status.state
        if has_moved and status.state is RunState.STARTING and status.last_restart:
            self._print([f"restarting: {status.last_restart}"])
        activity = _activity(status)
        if activity not in self._printed and not self._console.is_terminal:
            self._printed.add(activity)
            self._print([activity])
        beat, is_waiting = status.progress, status.state in (RunState.QUEUED, RunState.STARTING)
        if not beat or (is_waiting and float(beat.get("time", 0.0)) < self._began):
            return activity
        progress = f"{activity} · {self._view.progress(beat)}"
        lines = [line for source in self._sources for line in source(beat)]
        is_due = time.monotonic() - self._printed_at >= _LINE_SECONDS
        if is_due and not (lines or self._console.is_terminal):
            lines = [progress]
        self._print(lines)
        return progress

    def _print(self, lines: list[str]) -> None:
        if lines:
            self._printed_at = time.monotonic()
        show(map(Paragraph, lines), self._console)


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
    beat = status.progress or {}
    if not can_never_run(status.error) and (
        hint := view_of(status.kind).resume_hint(beat, status.run)
    ):
        message += f"\n{hint}"
    kind = "Stopped" if status.state is RunState.STOPPED else status.error or "RunFailed"
    raise RunFailed(message, kind, status.exit_code or 100)
