"""Declares `sparring check`, `audit` and `prove`, the commands before and after training."""

from __future__ import annotations

from typing import Annotated

import typer

from sparring.surfaces.cli.options import (
    AsJson,
    Assignments,
    Detach,
    EnvironmentName,
    KeyVariable,
    Launcher,
    RunName,
    RunsFolder,
)


def check(
    target: EnvironmentName,
    model: Annotated[
        str | None,
        typer.Option(help="The model to train; default: the agent's own."),
    ] = None,
    cases: Annotated[int, typer.Option(help="Number of training cases to play.")] = 12,
    rollouts: Annotated[int, typer.Option(help="Rollouts per case.")] = 16,
    num_generations: Annotated[
        int | None, typer.Option(help="Group size of the planned training.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Another model that plays the cases, for comparison: MODEL@URL, or the name of a "
            "model on OpenRouter; may be repeated. Default: models on OpenRouter, if "
            "OPENROUTER_API_KEY is set."
        ),
    ] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Compare with no other models.")] = False,
    key_variable: KeyVariable = None,
    other_cases: Annotated[
        int, typer.Option(help="Number of cases that each other model plays.")
    ] = 3,
    minutes: Annotated[float, typer.Option(help="Maximum time for each model, in minutes.")] = 10.0,
    dry_steps: Annotated[
        int, typer.Option(help="Training steps to try and discard, for the estimate; 0 for none.")
    ] = 2,
    price_per_hour: Annotated[
        float | None,
        typer.Option(help="Price of one machine per hour, for an estimate of the cost."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 110 unless the verdict is learnable.")
    ] = False,
    set: Assignments = None,
    launcher: Launcher = None,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Find out before training whether an environment is learnable, and what training costs."""
    from sparring.surfaces.cli import starting

    values = {"model": model, "num_generations": num_generations, "launcher": launcher}
    request = {
        "environment": target,
        "cases": cases,
        "rollouts": rollouts,
        "others": [] if alone else starting.models_from(against, key_variable),
        "other_cases": other_cases,
        "minutes": minutes,
        "dry_steps": dry_steps,
        "price_per_hour": price_per_hour,
        "settings": starting.settings_from(values, set or []),
    }
    code = starting.check(request, runs, detach=detach, as_json=as_json)
    raise typer.Exit(code if strict else 0)


def audit(
    target: EnvironmentName,
    cases: Annotated[int, typer.Option(help="Number of cases that the null players answer.")] = 8,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 110 if a finding is serious.")
    ] = False,
    set: Assignments = None,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Find faults in measures: let them judge empty and worthless answers, each twice."""
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
    checkpoint: Annotated[
        str, typer.Option(help="Checkpoint to prove, such as step-50; default: the best.")
    ] = "",
    cases: Annotated[
        int | None, typer.Option(help="Maximum number of cases; default: all.")
    ] = None,
    rollouts: Annotated[int, typer.Option(help="Rollouts per case, of each model.")] = 4,
    split: Annotated[
        str,
        typer.Option(
            help="held-out; or validation, with an interval corrected for checkpoint selection."
        ),
    ] = "held-out",
    picked_from: Annotated[
        int,
        typer.Option(
            help="Number of trained models compared on these cases; corrects for the selection."
        ),
    ] = 1,
    also: Annotated[
        str, typer.Option(help="A second environment, on which the model must not get worse.")
    ] = "",
    accept_changes: Annotated[
        bool,
        typer.Option("--accept-changes", help="Prove even if the environment's code has changed."),
    ] = False,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compare base and trained model on held-out cases; exit with 110 unless it improved."""
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
