"""Declares `sparring mcp`, `limits`, `plan …` and `activity …`, the commands about AI operators."""

from __future__ import annotations

from typing import Annotated

import typer

from sparring.surfaces.cli.options import AsJson, Assignments, Detach, EnvironmentName, RunsFolder

activity = typer.Typer(
    help="The activity log: who did what, and which calls were refused.", no_args_is_help=True
)


@activity.command("show")
def show_activity(
    count: Annotated[int, typer.Option(help="Number of entries, counted from the last.")] = 20,
    who: Annotated[str, typer.Option(help="Only entries of this caller.")] = "",
    refused: Annotated[bool, typer.Option("--refused", help="Only refusals.")] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show who did what, and which calls were refused."""
    from sparring.surfaces.cli import operating

    query = {"count": count, "who": who, "refused": refused}
    operating.show_log(query, runs, as_json=as_json)


@activity.command("verify")
def verify_activity(
    expect: Annotated[
        str,
        typer.Option(help="A digest that this command printed earlier; the log must contain it."),
    ] = "",
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Check that no entry was changed or removed. Exits with 1 if one was."""
    from sparring.surfaces.cli import operating

    raise typer.Exit(operating.verify_log(expect, runs, as_json=as_json))


plans = typer.Typer(help="Plan a run before starting it.", no_args_is_help=True)


@plans.command("make")
def make_plan(
    environment: EnvironmentName,
    kind: Annotated[str, typer.Option(help="train or eval.")] = "train",
    like: Annotated[str, typer.Option(help="A run whose settings the plan copies.")] = "",
    prove: Annotated[
        bool, typer.Option("--prove/--no-prove", help="Prove the training at its end.")
    ] = True,
    cases: Annotated[
        int | None, typer.Option(help="Maximum number of cases of an evaluation.")
    ] = None,
    set: Assignments = None,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings, the cost and the missing parts of a run, without starting it."""
    from sparring.surfaces.cli import operating

    request = {"environment": environment, "kind": kind, "like": like, "prove": prove}
    operating.make_plan({**request, "cases": cases}, set or [], runs, as_json=as_json)


@plans.command("revise")
def revise_plan(
    plan: Annotated[str, typer.Argument(help="The id of a plan.")],
    field: Annotated[str, typer.Argument(help="A setting, as in temperature or config.level.")],
    value: Annotated[str, typer.Argument(help="JSON or text.")],
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Make a new plan from an existing one, with one field changed."""
    from sparring.surfaces.cli import operating

    operating.revise_plan(plan, field, value, runs, as_json=as_json)


@plans.command("start")
def start_plan(
    plan: Annotated[str, typer.Argument(help="The id of a plan.")],
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Start the run of a plan, unchanged. A plan can be started once."""
    from sparring.surfaces.cli import operating

    operating.start_plan(plan, runs, detach=detach, as_json=as_json)


def limits(runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Show the limits of AI operators in this project, and how much of the budget is left."""
    from sparring.surfaces.cli import operating

    operating.limits(runs, as_json=as_json)


def mcp(
    name: Annotated[
        str, typer.Option("--as", help="Name of the operator in the activity log.")
    ] = "operator",
    role: Annotated[
        str, typer.Option(help="operator, or viewer, which is read-only.")
    ] = "operator",
    project: Annotated[
        str, typer.Option(help="Folder of the project; default: the current one.")
    ] = ".",
    runs: RunsFolder = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the configuration for an MCP client.")
    ] = False,
    print_tools: Annotated[
        bool, typer.Option("--print-tools", help="Print the tools as function schemas.")
    ] = False,
) -> None:
    """Let an AI agent operate this project, with tools over MCP on standard input and output."""
    from sparring.surfaces.cli import operating

    if print_tools:
        operating.print_tools(role)
    elif print_config:
        operating.print_config(name, role, project, runs)
    else:
        operating.serve(name, role, project, runs)
