"""`sparring run …`: looking at runs, and steering them."""

from __future__ import annotations

from typing import Annotated

import typer

from sparring.surfaces.cli.completion import environments_there, runs_there, states_there
from sparring.surfaces.cli.options import AsJson, Assignments, Detach, RunName, RunsFolder

runs = typer.Typer(help="Runs: list, follow, stop, resume.", no_args_is_help=True)


@runs.command("list")
def list_runs(
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only in this state; several may be given.", autocompletion=states_there),
    ] = None,
    environment: Annotated[
        str,
        typer.Option("--env", help="Only of this environment.", autocompletion=environments_there),
    ] = "",
    kind: Annotated[str, typer.Option(help="train, eval, check, audit or prove.")] = "",
    count: Annotated[int, typer.Option(help="How many to show.")] = 20,
    after: Annotated[str, typer.Option(help="Go on behind this run.")] = "",
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """List runs, running and ended, the newest first."""
    from sparring.surfaces.cli import runs as shown

    query = {
        "states": tuple(state or ()),
        "environment": environment,
        "kind": kind,
        "count": count,
        "after": after,
    }
    shown.list_all(query, runs, as_json=as_json)


@runs.command("show")
def show_run(run: RunName, runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Show how a run is: state, processes, step, figures, time left; and why it failed."""
    from sparring.surfaces.cli import runs as shown

    shown.show(run, runs, as_json=as_json)


@runs.command("results")
def results(
    run: RunName,
    rows: Annotated[int, typer.Option(help="Rows of the history to show.")] = 10,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what came of a run: final figures, history, where the weights are."""
    from sparring.surfaces.cli import runs as shown

    shown.results(run, rows, runs, as_json=as_json)


@runs.command("watch")
def watch(run: RunName, runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Follow a run to its end, as if it had been started here."""
    from sparring.surfaces.cli import runs as shown

    shown.watch(run, runs, as_json=as_json)


@runs.command("wait")
def wait(
    run: RunName,
    seconds: Annotated[
        float | None, typer.Option(help="At most so long; by default until its end.")
    ] = None,
    news: Annotated[
        bool, typer.Option("--news", help="Return at the first news, not only at the end.")
    ] = False,
    cursor: Annotated[
        int | None, typer.Option(help="News from here on: `cursor` of an earlier answer.")
    ] = None,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Wait for a run's end, or for news of it. Exits with 101 if it has not ended."""
    from sparring.surfaces.cli import runs as shown

    raise typer.Exit(
        shown.wait(run, seconds, runs, is_for_news=news, cursor=cursor, as_json=as_json)
    )


@runs.command("logs")
def logs(
    run: RunName,
    process: Annotated[str, typer.Option(help="As `run show` names it.")] = "",
    attempt: Annotated[int | None, typer.Option(help="Default: the last.")] = None,
    lines: Annotated[int, typer.Option("-n", "--lines", help="How many of the last lines.")] = 40,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as it grows.")] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show the last lines that a process of a run has printed."""
    from sparring.surfaces.cli import runs as shown

    query = {"run": run, "process": process, "attempt": attempt, "lines": lines}
    shown.logs(query, runs, follow=follow, as_json=as_json)


@runs.command("stop")
def stop(
    run: RunName,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it has stopped.")] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Ask a run to stop, with a checkpoint; `run resume` goes on with it."""
    from sparring.surfaces.cli import runs as shown

    shown.stop(run, runs, waits=wait, as_json=as_json)


@runs.command("resume")
def resume(
    run: RunName,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Although code or cases have changed.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Go on here with a run whose host is gone.")
    ] = False,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run where it stopped; follow one that runs; show one that is done."""
    from sparring.surfaces.cli import runs as shown

    request = {"run": run, "accept_changes": accept_changes, "take_over": take_over}
    shown.resume(request, runs, detach=detach, as_json=as_json)


@runs.command("clone")
def clone(
    run: RunName,
    set: Assignments = None,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Start another run like this one, with some settings changed."""
    from sparring.surfaces.cli import runs as shown

    shown.clone(run, set or [], runs, detach=detach, as_json=as_json)


@runs.command("report")
def report(
    run: RunName,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in a browser.")] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's report: one HTML file to open or send, and Markdown."""
    from sparring.surfaces.cli import runs as shown

    shown.report(run, runs, open_it=open_it, as_json=as_json)


@runs.command("compare")
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Two runs or more; the others are held against the first.",
            autocompletion=runs_there,
        ),
    ],
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Hold runs against one another: settings, curves, the difference case by case."""
    from sparring.surfaces.cli import runs as shown

    shown.compare(names, runs, as_json=as_json)


@runs.command("delete")
def delete(
    run: Annotated[str, typer.Argument(help="The whole id.", autocompletion=runs_there)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Take a run that has ended away, with its rollouts and weights."""
    from sparring.surfaces.cli import runs as shown

    shown.delete(run, runs, is_sure=yes, as_json=as_json)


@runs.command("join")
def join(run: RunName, runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Bring this host into a training that was started on another; they share the runs folder."""
    from sparring.surfaces.cli import runs as shown

    shown.join(run, runs, as_json=as_json)


@runs.command("reindex")
def reindex(runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Build the index of runs anew, from their folders alone."""
    from sparring.surfaces.cli import runs as shown

    shown.reindex(runs, as_json=as_json)
