"""`sparring check`, `audit`, `prove`: looking before and after."""

from __future__ import annotations

from typing import Annotated

import typer

from sparring.surfaces.cli.options import (
    AsJson,
    Assignments,
    Detach,
    EnvironmentName,
    Launcher,
    RunName,
    RunsFolder,
)


def check(
    target: EnvironmentName,
    model: Annotated[
        str | None,
        typer.Option(help="The model to be trained; default: the agent's own."),
    ] = None,
    cases: Annotated[int, typer.Option(help="Training cases that it plays.")] = 12,
    rollouts: Annotated[int, typer.Option(help="Rollouts of each case.")] = 16,
    num_generations: Annotated[
        int | None, typer.Option(help="Group size of the training that is planned: 4.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Another model that plays it, as MODEL@URL, or one of OpenRouter's by name; "
            "several may be given. Default: OpenRouter's, where OPENROUTER_API_KEY is set."
        ),
    ] = None,
    alone: Annotated[bool, typer.Option("--alone", help="No other models.")] = False,
    key_variable: Annotated[
        str, typer.Option(help="Environment variable that holds the key for MODEL@URL.")
    ] = "OPENAI_API_KEY",
    other_cases: Annotated[int, typer.Option(help="Cases that other models play.")] = 3,
    minutes: Annotated[float, typer.Option(help="For each model at most.")] = 10.0,
    dry_steps: Annotated[
        int, typer.Option(help="Training steps that are tried and thrown away; 0 for none.")
    ] = 2,
    price_per_hour: Annotated[
        float | None, typer.Option(help="What the machine costs, for an estimate of the run.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 110 unless it is learnable.")
    ] = False,
    set: Assignments = None,
    launcher: Launcher = None,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Say before training whether it can be learned, why not, and what it would take."""
    from sparring.surfaces.cli import starting

    given = {"model": model, "num_generations": num_generations, "launcher": launcher}
    request = {
        "environment": target,
        "cases": cases,
        "rollouts": rollouts,
        "others": [] if alone else starting.models_from(against, key_variable),
        "other_cases": other_cases,
        "minutes": minutes,
        "dry_steps": dry_steps,
        "price_per_hour": price_per_hour,
        "settings": starting.settings_from(given, set or []),
    }
    code = starting.check(request, runs, detach=detach, as_json=as_json)
    raise typer.Exit(code if strict else 0)


def audit(
    target: EnvironmentName,
    cases: Annotated[int, typer.Option(help="Cases that are answered by null players.")] = 8,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 110 where something grave is found.")
    ] = False,
    set: Assignments = None,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Look for faults in measures: what they say of answers that say nothing, and twice."""
    from sparring.surfaces.cli import starting

    request = {
        "environment": target,
        "cases": cases,
        "settings": starting.settings_from({}, set or []),
    }
    code = starting.audit(request, runs, detach=detach, as_json=as_json)
    raise typer.Exit(code if strict else 0)


def prove(
    run: RunName,
    checkpoint: Annotated[str, typer.Option(help="As in step-50; default: the best.")] = "",
    cases: Annotated[int | None, typer.Option(help="At most so many held-out cases.")] = None,
    rollouts: Annotated[int, typer.Option(help="Rollouts of each case, by each model.")] = 4,
    split: Annotated[
        str, typer.Option(help="held-out; validation cases were picked on, which is corrected for.")
    ] = "held-out",
    picked_from: Annotated[
        int, typer.Option(help="Trained models that were compared on these very cases.")
    ] = 1,
    also: Annotated[str, typer.Option(help="A second environment that must not get worse.")] = "",
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Although the environment's file has changed.")
    ] = False,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Play base and trained on the same held-out cases. Exits with 110 unless it is better."""
    from sparring.surfaces.cli import starting

    request = {
        "run": run,
        "checkpoint": checkpoint,
        "cases": cases,
        "rollouts": rollouts,
        "split": split,
        "picked_from": picked_from,
        "also": also,
        "accept_changes": accept_changes,
    }
    raise typer.Exit(starting.prove(request, runs, detach=detach, as_json=as_json))
