"""Following a run in the foreground: progress, Ctrl-C, and how it ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from sparring.contracts.errors import GuardStop, RunFailed
from sparring.operations.evaluating import RunQuery, Status, Summary, run_status, stop_run
from sparring.operations.operation import Caller
from sparring.operations.starting import Started
from sparring.runs.local import RunState, has_ended

Beat = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a heartbeat says on the bar."""

    doing: str
    done: int
    total: int
    news: str


@dataclass(frozen=True, slots=True)
class Kind:
    """How runs of one kind show themselves. `lines` gives what is new enough to stay."""

    stopping: str
    shown: Callable[[Beat], Shown]
    summary: Callable[[RunQuery, Caller], Summary]
    show: Callable[[dict[str, Any], Console], None]
    way_on: Callable[[Beat, str], str]
    lines: Callable[[Beat], list[str]] = lambda _: []
    columns: tuple[ProgressColumn, ...] = ()


def follow(started: Started, caller: Caller, kind: Kind, *, as_json: bool) -> None:
    """Wait for the run, with progress on a terminal; Ctrl-C stops it in good order."""
    console = Console(stderr=True)
    console.print(Text.assemble("run ", (started.run, "bold")), soft_wrap=True)
    query = RunQuery(run=started.run)
    try:
        status = _wait(query, caller, started.pid, kind, console)
    except KeyboardInterrupt:
        console.print(kind.stopping)
        stop_run(query, caller)
        status = _wait(query, caller, started.pid, kind, console)
    if status.state is not RunState.COMPLETED:
        _give_up(status, started, kind)
    summary = kind.summary(query, caller).summary
    if as_json:
        print(json.dumps(summary))
    else:
        kind.show(summary, Console())


def _wait(query: RunQuery, caller: Caller, pid: int | None, kind: Kind, console: Console) -> Status:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        *kind.columns,
        TextColumn("{task.fields[news]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("loading", total=None, news="")
        while True:
            gone = pid is not None and has_ended(pid)
            status = run_status(query, caller)
            if beat := status.progress:
                seen = kind.shown(beat)
                bar.update(
                    task,
                    description=seen.doing,
                    total=seen.total,
                    completed=seen.done,
                    news=seen.news,
                )
                for line in kind.lines(beat):
                    console.print(line, soft_wrap=True, highlight=False, markup=False)
            if gone or status.state not in (RunState.STARTING, RunState.RUNNING):
                return status
            time.sleep(0.2)


def _give_up(status: Status, started: Started, kind: Kind) -> NoReturn:
    message = status.message or f"the worker ended without a word; see {started.log}"
    goes_on = status.kind != GuardStop.__name__  # it would come to the same end
    if goes_on and (way_on := kind.way_on(status.progress or {}, started.run)):
        message += f"\n{way_on}"
    raise RunFailed(message, status.kind or "RunFailed", status.exit_code or 100)
