"""Implements the commands for schedulers: `sparring run supervise` and `sparring run manifest`."""

from __future__ import annotations

import typer

from sparring.contracts.json import JsonObject
from sparring.operations.placing import RenderManifest, render_manifest, supervise_run
from sparring.operations.run_views import RunQuery
from sparring.runs.supervisor import supervise
from sparring.surfaces.cli.starting import owner


def supervise_here(run: str, runs: str | None) -> None:
    """Supervise a run in this process, and exit with its exit code. Exit with 0 if it has already
    ended, so that a scheduler does not retry the command."""
    found = supervise_run(RunQuery(run=run), owner(runs))
    if found.has_ended:
        print(f"run {found.run} has ended; `sparring run resume {found.run}` continues it")
        return
    raise typer.Exit(supervise(found.folder, found.epoch))


def print_manifest(run: str, pods: JsonObject, runs: str | None) -> None:
    """Print the Kubernetes manifest of a run."""
    request = RenderManifest.model_validate({"run": run, **pods})
    print(render_manifest(request, owner(runs)).manifest, end="")
