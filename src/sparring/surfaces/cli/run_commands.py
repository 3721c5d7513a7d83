"""Declares `sparring run …`: the commands that show and control runs."""

from __future__ import annotations

from typing import Annotated

import typer

from sparring.surfaces.cli.completion import complete_environments, complete_runs, complete_states
from sparring.surfaces.cli.options import AsJson, Assignments, Detach, RunName, RunsFolder

runs = typer.Typer(help="Runs: list, follow, stop, resume.", no_args_is_help=True)


@runs.command("list")
def list_runs(
    state: Annotated[
        list[str] | None,
        typer.Option(
            help="Only runs in this state; may be repeated.", autocompletion=complete_states
        ),
    ] = None,
    environment: Annotated[
        str,
        typer.Option(
            "--env", help="Only runs of this environment.", autocompletion=complete_environments
        ),
    ] = "",
    kind: Annotated[
        str, typer.Option(help="Only runs of this kind: train, eval, check, audit, prove or ship.")
    ] = "",
    count: Annotated[int, typer.Option(help="Maximum number of runs to show.")] = 20,
    after: Annotated[
        str, typer.Option(help="Show the runs after this one, for the next page.")
    ] = "",
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """List runs in all states, newest first."""
    from sparring.surfaces.cli import runs as commands

    query = {
        "states": tuple(state or ()),
        "environment": environment,
        "kind": kind,
        "count": count,
        "after": after,
    }
    commands.list_all(query, runs, as_json=as_json)


@runs.command("show")
def show_run(run: RunName, runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Show a run's state, processes, step, metrics, time left, and why it failed."""
    from sparring.surfaces.cli import runs as commands

    commands.show(run, runs, as_json=as_json)


@runs.command("results")
def results(
    run: RunName,
    rows: Annotated[int, typer.Option(help="Rows of the metrics history to show.")] = 10,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show a run's summary, evenly spaced rows of its metrics, and its checkpoints."""
    from sparring.surfaces.cli import runs as commands

    commands.results(run, rows, runs, as_json=as_json)


@runs.command("watch")
def watch(run: RunName, runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Follow a run to its end, like the command that started it."""
    from sparring.surfaces.cli import runs as commands

    commands.watch(run, runs, as_json=as_json)


@runs.command("wait")
def wait(
    run: RunName,
    seconds: Annotated[
        float | None, typer.Option(help="Maximum time to wait; default: until the run ends.")
    ] = None,
    news: Annotated[
        bool,
        typer.Option("--news", help="Also return on news: a new state, warning or checkpoint."),
    ] = False,
    cursor: Annotated[
        int | None,
        typer.Option(help="Only news after this `cursor`, from --json of an earlier call."),
    ] = None,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Wait for a run to end, and exit with its exit code; with 101 if the time or `--news` ends
    the wait first."""
    from sparring.surfaces.cli import runs as commands

    raise typer.Exit(
        commands.wait(run, seconds, runs, is_for_news=news, cursor=cursor, as_json=as_json)
    )


@runs.command("logs")
def logs(
    run: RunName,
    process: Annotated[
        str, typer.Option(help="Name of the process, from `run show`; default: the first rank.")
    ] = "",
    attempt: Annotated[
        int | None, typer.Option(help="Number of the attempt; default: the last.")
    ] = None,
    lines: Annotated[
        int, typer.Option("-n", "--lines", help="Number of lines, counted from the end.")
    ] = 40,
    follow: Annotated[
        bool,
        typer.Option(
            "-f", "--follow", help="Print new lines as they are written, also after a restart."
        ),
    ] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show the last lines of the log of one of the run's processes."""
    from sparring.surfaces.cli import logs

    query = {"run": run, "process": process, "attempt": attempt, "lines": lines}
    logs.logs(query, runs, follow=follow, as_json=as_json)


@runs.command("stop")
def stop(
    run: RunName,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return only when the run has stopped.")
    ] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Stop a run; a training run saves a checkpoint first. `run resume` resumes it."""
    from sparring.surfaces.cli import runs as commands

    commands.stop(run, runs, waits=wait, as_json=as_json)


@runs.command("resume")
def resume(
    run: RunName,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Resume even if code or cases have changed.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Resume on this host a run whose host is gone.")
    ] = False,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Resume a stopped or failed run. Follow an active run; show a completed one."""
    from sparring.surfaces.cli import runs as commands

    request = {"run": run, "accept_changes": accept_changes, "take_over": take_over}
    commands.resume(request, runs, detach=detach, as_json=as_json)


@runs.command("clone")
def clone(
    run: RunName,
    set: Assignments = None,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Start a new run with the settings of another run, some of them changed."""
    from sparring.surfaces.cli import runs as commands

    commands.clone(run, set or [], runs, detach=detach, as_json=as_json)


@runs.command("report")
def report(
    run: RunName,
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's report: its web view in one HTML file."""
    from sparring.surfaces.cli import runs as commands

    commands.report(run, runs, open_it=open_it, as_json=as_json)


@runs.command("compare")
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Two to eight runs; the first is the baseline.",
            autocompletion=complete_runs,
        ),
    ],
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: their settings, curves, and differences case by case."""
    from sparring.surfaces.cli import runs as commands

    commands.compare(names, runs, as_json=as_json)


@runs.command("delete")
def delete(
    run: Annotated[str, typer.Argument(help="The full id.", autocompletion=complete_runs)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Delete a run that has ended, with its rollouts and weights."""
    from sparring.surfaces.cli import runs as commands

    commands.delete(run, runs, is_sure=yes, as_json=as_json)


@runs.command("join")
def join(
    run: RunName,
    role: Annotated[
        str, typer.Option("--as", help="host: train; player: play for the hosts; server: sample.")
    ] = "host",
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for the joined process, and exit with its exit code."),
    ] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Join a training run started on another host; both hosts must share the runs folder."""
    from sparring.surfaces.cli import runs as commands

    commands.join(run, role, runs, waits=wait, as_json=as_json)


@runs.command("supervise")
def supervise(run: RunName, runs: RunsFolder = None) -> None:
    """Supervise, in this process, a run that was started with --launcher manual."""
    from sparring.surfaces.cli import placing

    placing.supervise_here(run, runs)


@runs.command("manifest")
def manifest(
    run: RunName,
    image: Annotated[str, typer.Option(help="Container image with Sparring and your packages.")],
    claim: Annotated[str, typer.Option(help="Persistent volume claim that all pods share.")],
    mount: Annotated[
        str, typer.Option(help="Path of the volume in the pods.", show_default="the project")
    ] = "",
    gpus: Annotated[int, typer.Option(help="GPUs of each pod.")] = 0,
    namespace: Annotated[str, typer.Option(help="Namespace of the job.")] = "default",
    runs: RunsFolder = None,
) -> None:
    """Print the Kubernetes manifest of a run that was started with --launcher manual."""
    from sparring.surfaces.cli import placing

    pods = {"image": image, "claim": claim, "mount": mount, "gpus": gpus, "namespace": namespace}
    placing.print_manifest(run, pods, runs)


@runs.command("reindex")
def reindex(runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Rebuild the index of runs from their folders."""
    from sparring.surfaces.cli import runs as commands

    commands.reindex(runs, as_json=as_json)
