"""The commands `sparring run …`, except those that start one."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sparring.contracts.errors import InvalidInput
from sparring.contracts.json import JsonObject, MetricsRow
from sparring.contracts.progress import duration_text, left_text
from sparring.contracts.result_text import Grid
from sparring.operations.placing import (
    RenderManifest,
    render_manifest,
    supervise_run,
)
from sparring.operations.reporting import compare_runs, report_run
from sparring.operations.run_control import (
    DeleteRun,
    JoinRun,
    delete_run,
    join_run,
    stop_run,
)
from sparring.operations.run_views import (
    ListRuns,
    News,
    Reindexed,
    Results,
    RunLine,
    RunPage,
    RunQuery,
    ShownRun,
    WaitFor,
)
from sparring.operations.runs import list_runs, reindex_runs, show_run, wait_for_run
from sparring.operations.runs import run_results as read_results
from sparring.operations.starting import Started
from sparring.run_folder.layout import short_id
from sparring.runs.lifecycle import RunState
from sparring.runs.supervisor import supervise
from sparring.surfaces.cli.commands import AsJson, Owner, Reader, shows
from sparring.surfaces.cli.following import ACTIVITIES, follow
from sparring.surfaces.cli.kind_views import result_parts
from sparring.surfaces.cli.page import (
    FactList,
    Paragraph,
    Part,
    Styled,
    print_json,
    printable,
    remark,
    show,
)
from sparring.surfaces.cli.results import comparison_parts

_STYLES: dict[str, str] = {
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


def run_list(request: ListRuns, caller: Reader, as_json: AsJson) -> None:
    """Print one page of runs."""
    page = list_runs(request, caller)
    if as_json:
        print_json(page)
        return
    width = None if sys.stdout.isatty() else _PIPE_WIDTH  # wide enough for every column
    show(_page_parts(request, page), Console(width=width))


def _page_parts(request: ListRuns, page: RunPage) -> Iterator[Part]:
    if not page.runs:
        is_filtered = request.states or request.environment or request.kind or request.after
        yield Paragraph(
            "no runs match" if is_filtered else "no runs; `sparring train NAME` starts one"
        )
        return
    heads = ("run", "kind", "state", "progress", "reward", "time", "started")
    optional = ("started", "kind", "reward", "time", "progress")
    yield Styled(Grid(heads, list(map(_cells, page.runs)), heads, optional), _STYLES)
    if page.next:
        yield remark(f"more: --after {page.next}")


def _cells(line: RunLine) -> tuple[str, ...]:
    return (
        line.run,
        line.kind,
        line.state.value,
        "" if line.steps is None else f"{line.step}/{line.steps}",
        "" if line.reward is None else f"{line.reward:.2f}",
        duration_text(60 * line.minutes),
        datetime.fromtimestamp(line.created).strftime("%d %b %H:%M"),
    )


@shows(show_run)
def run_show(shown: ShownRun) -> Iterator[Part]:
    """Return the state, processes and metrics of a run."""
    state = shown.state.value
    if shown.is_stopping_for:
        state += f" (stop requested by {shown.is_stopping_for})"
    yield Paragraph(state, _STYLES[shown.state], lead=f"{shown.run}  ", lead_style="bold")
    if shown.message:
        cause = f"{shown.cause.replace('_', ' ')}: " if shown.cause else ""
        yield Paragraph(f"{cause}{shown.message}", "red" if state == "failed" else "yellow")
    yield FactList(_facts(shown))
    if shown.processes:
        yield _processes(shown)


def _facts(shown: ShownRun) -> list[tuple[str, str]]:
    facts = [("environment", f"{shown.environment} ({shown.kind})"), ("model", shown.model)]
    attempt = f", attempt {shown.attempts}" if shown.attempts > 1 else ""
    facts.append(("time", f"{duration_text(60 * shown.minutes)}{attempt}"))
    facts.append(("last restart", shown.last_restart))
    if shown.steps:
        facts.append(("progress", f"{shown.step} of {shown.steps}"))
    facts.append(("doing", ACTIVITIES.get(shown.doing, shown.doing)))
    if shown.seconds_left is not None:
        facts.append(("time left", f"{left_text(shown.seconds_left)}: {shown.estimate_basis}"))
    if shown.proof:
        facts.append(("proof", f"{shown.proof}, {shown.proof_standing}"))
    if shown.loss is not None:
        facts.append(("loss", f"{shown.loss:+.3f}"))
    if shown.reward is not None:
        facts.append(("reward", f"{shown.reward:.3f}"))
    facts += [(f"{name} passed", f"{rate:.1%}") for name, rate in shown.pass_rates.items()]
    if shown.validation_reward is not None:
        rates = [f"{name} {rate:.1%}" for name, rate in shown.validation_pass_rates.items()]
        facts.append(("validation", ", ".join([f"reward {shown.validation_reward:.3f}", *rates])))
    facts += list(shown.links.items())
    facts += [("last warning", shown.warning), ("folder", shown.folder)]
    return [(what, value) for what, value in facts if value]


def _processes(shown: ShownRun) -> Grid:
    rows = []
    for process in shown.processes:
        log = Path(process.log)
        path = str(log.relative_to(shown.folder)) if log.is_relative_to(shown.folder) else str(log)
        rows.append((process.name, process.state, str(process.pid), process.host, path))
    heads = ("process", "state", "pid", "host", "log")
    return Grid(heads, rows, texts=heads, optional=("host",))


@shows(read_results)
def run_results(found: Results) -> Iterator[Part]:
    """Return a run's summary, the last rows of its history, and its checkpoints."""
    if found.summary:
        yield from result_parts(found.kind, found.summary)
    else:
        cause = f": {found.message}" if found.message else ""
        advice = f"`sparring run show {short_id(found.run)}` shows its state"
        message = f"{found.run} is {found.state.value} and has no summary{cause}; {advice}"
        yield Paragraph(message, "yellow")
    if found.history:
        yield _history(found.history)
    for which, path in (("best", found.best_checkpoint), ("last", found.last_checkpoint)):
        if path:
            yield remark(f"{which} checkpoint: {path}")


def _history(rows: Sequence[MetricsRow]) -> Grid:
    rates = [name for name in rows[-1] if name.startswith("pass_rate/")]
    columns = ["step", "loss", "reward", *rates, "live_groups", "validation/reward"]
    heads = tuple(column.removeprefix("pass_rate/") for column in columns)
    cells = [tuple(_figure(row.get(column)) for column in columns) for row in rows]
    return Grid(heads, cells, optional=(*reversed(heads[3:-2]), "live_groups"))


def _figure(value: object) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def run_watch(request: RunQuery, caller: Reader, as_json: AsJson) -> None:
    """Follow a run that another command started."""
    shown = show_run(request, caller)
    started = Started(run=shown.run, folder=shown.folder, proof=shown.proof)
    follow(started, caller, as_json=as_json, only_looks=True)


def run_wait(
    request: RunQuery,
    caller: Reader,
    as_json: AsJson,
    timeout: Annotated[
        float | None,
        typer.Option(help="Maximum number of seconds to wait; default: until the run ends."),
    ] = None,
    news: Annotated[
        bool,
        typer.Option("--news", help="Also return on news: a new state, warning or checkpoint."),
    ] = False,
    cursor: Annotated[
        int | None,
        typer.Option(help="Only news after this `cursor`, from --json of an earlier call."),
    ] = None,
) -> None:
    """Wait for a run, and exit with its exit code; with 101 if it has not ended."""
    until = None if timeout is None else time.monotonic() + timeout
    run = request.run
    events: list[JsonObject] = []
    while True:
        left = _MAX_WAIT_SECONDS if until is None else max(0.0, until - time.monotonic())
        query = WaitFor(run=run, since=cursor, timeout=min(left, _MAX_WAIT_SECONDS))
        found = wait_for_run(query, caller)
        events += found.news
        has_timed_out = until is not None and time.monotonic() >= until
        is_over = found.has_ended or has_timed_out or (news and found.news)
        if not as_json:
            _show_news(found)
        elif is_over:
            print_json(found.model_copy(update={"news": tuple(events)}))
        if is_over:
            raise typer.Exit(found.exit_code)
        run, cursor = found.run, found.cursor  # a newer run may match the name by now


def _show_news(news: News) -> None:
    for event in news.news:
        details = [
            str(event[name]) for name in ("state", "step", "cause", "message") if event.get(name)
        ]
        print(printable(" ".join([str(event["event"]), *details])), flush=True)
    if news.has_ended and not news.news:
        print(printable(": ".join(filter(None, [news.state.value, news.message]))))


def run_stop(
    request: RunQuery,
    caller: Reader,
    as_json: AsJson,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return only when the run has stopped.")
    ] = False,
) -> None:
    """Stop a run."""
    shown = stop_run(request, caller)
    while wait and not shown.state.has_ended:
        wait_for_run(WaitFor(run=shown.run, since=None, timeout=_STOP_POLL_SECONDS), caller)
        shown = show_run(RunQuery(run=shown.run), caller)
    if as_json:
        print_json(shown)
    elif shown.state.has_ended:
        print(f"{shown.run} is {shown.state.value}")
    else:
        print(f"{shown.run} is stopping; `sparring run wait {shown.run}` waits for it")


def run_delete(
    request: DeleteRun,
    caller: Reader,
    as_json: AsJson,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a run, after confirmation on the terminal."""
    if not yes:
        full_id = show_run(RunQuery(run=request.run), caller).run
        if as_json or not sys.stdin.isatty():
            raise InvalidInput(f"deleting needs confirmation: sparring run delete {full_id} --yes")
        typer.confirm(f"delete {full_id} with its rollouts and weights?", abort=True)
        request = DeleteRun(run=full_id)
    deleted = delete_run(request, caller)
    message = f"deleted {deleted.run} ({deleted.bytes / 1e6:.1f} MB)"
    print(deleted.model_dump_json() if as_json else message)


def run_join(
    request: JoinRun,
    caller: Owner,
    as_json: AsJson,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for the joined process, and exit with its exit code."),
    ] = False,
) -> None:
    """Join a training run as a host, player or server."""
    joined = join_run(request, caller)
    message = (
        f"joined {joined.run} as {joined.role} {joined.number}; "
        f"`sparring run watch {joined.run}` follows it"
    )
    print(joined.model_dump_json() if as_json else message, flush=True)
    if wait:
        _, status = os.waitpid(joined.pid, 0)
        raise typer.Exit(os.waitstatus_to_exitcode(status))


def run_supervise(request: RunQuery, caller: Owner) -> None:
    """Supervise a run in this process, and exit with its exit code. Exit with 0 if it has already
    ended, so that a scheduler does not retry the command."""
    found = supervise_run(request, caller)
    if found.has_ended:
        print(f"run {found.run} has ended; `sparring run resume {found.run}` continues it")
        return
    raise typer.Exit(supervise(found.folder, found.epoch))


def run_manifest(request: RenderManifest, caller: Owner) -> None:
    """Print the Kubernetes manifest of a run."""
    print(render_manifest(request, caller).manifest, end="")


@shows(reindex_runs)
def run_reindex(found: Reindexed) -> Iterator[Part]:
    """Return how many runs the new index has."""
    yield Paragraph(f"{found.runs} runs")


def run_report(
    request: RunQuery,
    caller: Reader,
    as_json: AsJson,
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Write a run's report and print its path."""
    written = report_run(request, caller)
    print(written.model_dump_json() if as_json else written.html)
    if open_it and not webbrowser.open(Path(written.html).absolute().as_uri()):
        print("no browser was found; open the file above in one", file=sys.stderr)


run_compare = shows(compare_runs)(comparison_parts)
