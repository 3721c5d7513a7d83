"""Implements the commands `sparring run …`."""

from __future__ import annotations

import json
import os
import sys
import time
import webbrowser
from datetime import datetime
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparring.contracts.errors import InvalidInput
from sparring.contracts.json import JsonObject, MetricsRow
from sparring.contracts.progress import duration_text
from sparring.operations.operation import NoArguments
from sparring.operations.reporting import CompareRuns, compare_runs, report_run
from sparring.operations.run_control import (
    CloneRun,
    JoinRun,
    ResumeRun,
    clone_run,
    delete_run,
    join_run,
    resume_run,
    stop_run,
)
from sparring.operations.run_views import (
    ListRuns,
    News,
    ResultsQuery,
    RunLine,
    RunQuery,
    ShownRun,
    WaitFor,
)
from sparring.operations.runs import (
    list_runs,
    reindex_runs,
    run_results,
    show_run,
    wait_for_run,
)
from sparring.run_folder.ids import short_id
from sparring.runs.lifecycle import RunState
from sparring.settings.layers import assigned
from sparring.surfaces.cli.following import ACTIVITIES, begin, follow
from sparring.surfaces.cli.kind_views import show_results
from sparring.surfaces.cli.proof_tables import show_comparison
from sparring.surfaces.cli.starting import owner, reader
from sparring.surfaces.cli.tables import print_json, printable

_STYLES = {
    RunState.QUEUED: "dim",
    RunState.STARTING: "cyan",
    RunState.RUNNING: "bold cyan",
    RunState.STOPPING: "yellow",
    RunState.STOPPED: "yellow",
    RunState.COMPLETED: "green",
    RunState.FAILED: "red",
}
_STOP_POLL_SECONDS = 5.0
_MAX_WAIT_SECONDS = 45.0
_PIPE_WIDTH = 160


def list_all(query: JsonObject, runs: str | None, *, as_json: bool) -> None:
    """Print one page of runs."""
    page = list_runs(ListRuns.model_validate(query), reader(runs))
    if as_json:
        print_json(page)
        return
    width = None if sys.stdout.isatty() else _PIPE_WIDTH  # wide enough for every column
    console = Console(width=width)
    if not page.runs:
        is_filtered = any(query[name] for name in ("states", "environment", "kind", "after"))
        console.print(
            "no runs match" if is_filtered else "no runs; `sparring train NAME` starts one"
        )
        return
    rows = [_cells(line) for line in page.runs]
    columns = _columns(rows, console.width)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*(row[column] for column in columns))
    console.print(table)
    if page.next:
        console.print(Text(f"more: --after {page.next}", style="dim"), soft_wrap=True)


def _columns(rows: list[dict[str, str | Text]], width: int) -> list[str]:
    """Return the columns that fit the width. The id and the state always stay."""
    chosen = list(rows[0])
    for optional in ("started", "kind", "reward", "time", "progress"):
        widths = [max(len(name), *(len(row[name]) for row in rows)) + 2 for name in chosen]
        if sum(widths) <= width + 2:
            break
        chosen.remove(optional)
    return chosen


def _cells(line: RunLine) -> dict[str, str | Text]:
    progress = "" if line.steps is None else f"{line.step}/{line.steps}"
    reward = "" if line.reward is None else f"{line.reward:.2f}"
    state = Text(line.state.value, style=_STYLES[line.state])
    started = datetime.fromtimestamp(line.created).strftime("%d %b %H:%M")
    return {
        "run": Text(line.run, style="bold"),
        "kind": line.kind,
        "state": state,
        "progress": progress,
        "reward": reward,
        "time": duration_text(60 * line.minutes),
        "started": started,
    }


def show(run: str, runs: str | None, *, as_json: bool) -> None:
    """Print the state, processes and metrics of a run."""
    shown = show_run(RunQuery(run=run), reader(runs))
    if as_json:
        print_json(shown)
    else:
        _show_run(shown, Console())


def _show_run(shown: ShownRun, console: Console) -> None:
    state = Text(shown.state.value, style=_STYLES[shown.state])
    head = Text.assemble((shown.run, "bold"), "  ", state)
    if shown.is_stopping_for:
        head.append(f"  (stop requested by {printable(shown.is_stopping_for)})", style="yellow")
    console.print(head, soft_wrap=True)
    if shown.message:
        cause = f"{shown.cause.replace('_', ' ')}: " if shown.cause else ""
        style = "red" if shown.state is RunState.FAILED else "yellow"
        console.print(Text(f"{cause}{printable(shown.message)}", style=style), soft_wrap=True)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for what, value in _facts(shown):
        table.add_row(what, Text(printable(value)))
    console.print(table)
    if shown.processes:
        _show_processes(shown, console)


def _facts(shown: ShownRun) -> list[tuple[str, str]]:
    facts = [("environment", f"{shown.environment} ({shown.kind})"), ("model", shown.model)]
    attempt = f", attempt {shown.attempts}" if shown.attempts > 1 else ""
    facts.append(("time", f"{duration_text(60 * shown.minutes)}{attempt}"))
    facts.append(("last restart", shown.last_restart))
    if shown.steps:
        facts.append(("progress", f"{shown.step} of {shown.steps}"))
    facts.append(("doing", ACTIVITIES.get(shown.doing, shown.doing)))
    if shown.seconds_left is not None:
        facts.append(("time left", f"{duration_text(shown.seconds_left)}: {shown.estimate_basis}"))
    if shown.loss is not None:
        facts.append(("loss", f"{shown.loss:+.3f}"))
    if shown.reward is not None:
        facts.append(("reward", f"{shown.reward:.3f}"))
    facts += [(f"{name} passed", f"{rate:.1%}") for name, rate in shown.pass_rates.items()]
    if shown.validation_reward is not None:
        rates = [f"{name} {rate:.1%}" for name, rate in shown.validation_pass_rates.items()]
        facts.append(("validation", ", ".join([f"reward {shown.validation_reward:.3f}", *rates])))
    facts += list(shown.links.items())
    if shown.warning:
        facts.append(("last warning", shown.warning))
    facts.append(("folder", shown.folder))
    return [(what, value) for what, value in facts if value]


def _show_processes(shown: ShownRun, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("process", "state", "pid", "host", "log"):
        table.add_column(column, overflow="fold")
    for each in shown.processes:
        log = Path(each.log)
        path = str(log.relative_to(shown.folder)) if log.is_relative_to(shown.folder) else each.log
        table.add_row(each.name, each.state, str(each.pid), each.host, Text(path, style="dim"))
    console.print(table)


def results(run: str, rows: int, runs: str | None, *, as_json: bool) -> None:
    """Print a run's summary, the last rows of its history, and its checkpoints."""
    found = run_results(ResultsQuery(run=run, rows=rows), reader(runs))
    if as_json:
        print_json(found)
        return
    console = Console()
    if found.summary:
        show_results(found.kind, found.summary, console)
    else:
        cause = f": {found.message}" if found.message else ""
        advice = f"`sparring run show {short_id(found.run)}` shows its state"
        message = f"{found.run} is {found.state.value} and has no summary{cause}; {advice}"
        console.print(Text(printable(message), style="yellow"), soft_wrap=True)
    if found.history:
        _show_history(list(found.history), console)
    for which, path in (("best", found.best_checkpoint), ("last", found.last_checkpoint)):
        if path:
            console.print(Text(f"{which} checkpoint: {path}", style="dim"), soft_wrap=True)


def _show_history(rows: list[MetricsRow], console: Console) -> None:
    rates = [name for name in rows[-1] if name.startswith("pass_rate/")]
    columns = ["step", "loss", "reward", *rates, "live_groups", "validation/reward"]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column.removeprefix("pass_rate/"), justify="right")
    for row in rows:
        values = (row.get(column) for column in columns)
        table.add_row(
            *(
                "" if each is None else f"{each:.3f}" if isinstance(each, float) else str(each)
                for each in values
            )
        )
    console.print(table)


def watch(run: str, runs: str | None, *, as_json: bool) -> None:
    """Follow a run that another command started."""
    caller = reader(runs)
    shown = show_run(RunQuery(run=run), caller)
    follow(shown.run, caller, as_json=as_json, only_looks=True, proof=shown.proof)


def wait(
    run: str,
    seconds: float | None,
    runs: str | None,
    *,
    is_for_news: bool,
    cursor: int | None,
    as_json: bool,
) -> int:
    """Wait for a run, and return its exit code; 101 if it has not ended."""
    caller = reader(runs)
    until = None if seconds is None else time.monotonic() + seconds
    events: list[JsonObject] = []
    while True:
        left = _MAX_WAIT_SECONDS if until is None else max(0.0, until - time.monotonic())
        query = WaitFor(run=run, since=cursor, timeout=min(left, _MAX_WAIT_SECONDS))
        news = wait_for_run(query, caller)
        events += news.news
        has_timed_out = until is not None and time.monotonic() >= until
        if news.has_ended or has_timed_out or (is_for_news and news.news):
            if as_json:
                print_json(news.model_copy(update={"news": tuple(events)}))
            else:
                _show_news(news)
            return news.exit_code
        if not as_json:
            _show_news(news)
        run, cursor = news.run, news.cursor  # a newer run may match the name by now


def _show_news(news: News) -> None:
    for event in news.news:
        details = [
            str(event[name]) for name in ("state", "step", "cause", "message") if event.get(name)
        ]
        print(printable(" ".join([str(event["event"]), *details])), flush=True)
    if news.has_ended and not news.news:
        print(printable(": ".join(filter(None, [news.state.value, news.message]))))


def stop(run: str, runs: str | None, *, waits: bool, as_json: bool) -> None:
    """Stop a run; with `waits`, return only when it has stopped."""
    caller = reader(runs)  # another folder's runs are not started to be stopped
    shown = stop_run(RunQuery(run=run), caller)
    while waits and not shown.state.has_ended:
        wait_for_run(WaitFor(run=shown.run, since=None, timeout=_STOP_POLL_SECONDS), caller)
        shown = show_run(RunQuery(run=shown.run), caller)
    if as_json:
        print_json(shown)
    elif shown.state.has_ended:
        print(f"{shown.run} is {shown.state.value}")
    else:
        print(f"{shown.run} is stopping; `sparring run wait {shown.run}` waits for it")


def resume(request: JsonObject, runs: str | None, *, detach: bool, as_json: bool) -> None:
    """Resume a run, and follow it unless detached."""
    caller = owner(runs)
    started = resume_run(ResumeRun.model_validate(request), caller)
    begin(started, caller, detach=detach, as_json=as_json)


def clone(
    run: str, assignments: list[str], runs: str | None, *, detach: bool, as_json: bool
) -> None:
    """Start a run with the settings of another run, some of them changed."""
    caller = owner(runs)
    started = clone_run(CloneRun(run=run, settings=assigned(assignments, {})), caller)
    begin(started, caller, detach=detach, as_json=as_json)


def delete(run: str, runs: str | None, *, is_sure: bool, as_json: bool) -> None:
    """Delete a run, after confirmation on the terminal unless `is_sure`."""
    caller = reader(runs)  # another folder's runs are not started to be deleted
    if not is_sure:
        full_id = show_run(RunQuery(run=run), caller).run
        if as_json or not sys.stdin.isatty():
            raise InvalidInput(f"deleting needs confirmation: sparring run delete {full_id} --yes")
        typer.confirm(f"delete {full_id} with its rollouts and weights?", abort=True)
        run = full_id
    deleted = delete_run(RunQuery(run=run), caller)
    message = f"deleted {deleted.run} ({deleted.bytes / 1e6:.1f} MB)"
    print(deleted.model_dump_json() if as_json else message)


def join(run: str, role: str, runs: str | None, *, waits: bool, as_json: bool) -> None:
    """Join a training run as a host, player or server; with `waits`, return when it has ended."""
    joined = join_run(JoinRun.model_validate({"run": run, "role": role}), owner(runs))
    message = (
        f"joined {joined.run} as {joined.role} {joined.number}; "
        f"`sparring run watch {joined.run}` follows it"
    )
    print(joined.model_dump_json() if as_json else message, flush=True)
    if waits:
        _, status = os.waitpid(joined.pid, 0)
        raise typer.Exit(os.waitstatus_to_exitcode(status))


def reindex(runs: str | None, *, as_json: bool) -> None:
    """Rebuild the index of runs."""
    found = reindex_runs(NoArguments(), reader(runs))
    print(found.model_dump_json() if as_json else json.dumps(found.runs) + " runs")


def report(run: str, runs: str | None, *, open_it: bool, as_json: bool) -> None:
    """Write a run's report and print its path; with `open_it`, open it in a browser."""
    written = report_run(RunQuery(run=run), reader(runs))
    print(written.model_dump_json() if as_json else written.html)
    if open_it and not webbrowser.open(Path(written.html).absolute().as_uri()):
        print("no browser was found; open the file above in one", file=sys.stderr)


def compare(names: list[str], runs: str | None, *, as_json: bool) -> None:
    """Compare the first run with each of the others."""
    if len(names) < 2:
        raise InvalidInput(f"name at least two runs to compare; you named only {names[0]}")
    found = compare_runs(CompareRuns.model_validate({"runs": tuple(names)}), reader(runs))
    if as_json:
        print_json(found)
    else:
        show_comparison(found.model_dump(), Console())
