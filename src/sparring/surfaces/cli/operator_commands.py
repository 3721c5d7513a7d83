"""`sparring mcp`, `limits`, `plan …` and `audit …`: an AI agent at work, and its record."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sparring.surfaces.cli import proof_commands
from sparring.surfaces.cli.options import AsJson, Assignments, Detach, EnvironmentName, RunsFolder


class _MeasuresByDefault(TyperGroup):
    """`sparring audit ENVIRONMENT` is short for `sparring audit measures ENVIRONMENT`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["measures", *args]
        return super().parse_args(ctx, args)


audits = typer.Typer(
    help="`audit ENV` looks for faults in its measures; the rest shows what operators did.",
    cls=_MeasuresByDefault,
    no_args_is_help=True,
)
audits.command("measures")(proof_commands.audit)


@audits.command("show")
def show_trail(
    count: Annotated[int, typer.Option(help="The last so many entries.")] = 20,
    who: Annotated[str, typer.Option(help="Of one operator only.")] = "",
    refused: Annotated[bool, typer.Option("--refused", help="Refusals only.")] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show who did what, and what was refused to whom."""
    from sparring.surfaces.cli import operating

    query = {"count": count, "who": who, "refused": refused}
    operating.show_audit(query, runs, as_json=as_json)


@audits.command("verify")
def verify_trail(
    expect: Annotated[
        str, typer.Option(help="A digest kept from an earlier look: it must still be there.")
    ] = "",
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Say whether the record is whole: no entry changed, none missing. Else exit with 1."""
    from sparring.surfaces.cli import operating

    raise typer.Exit(operating.verify_audit(expect, runs, as_json=as_json))


plans = typer.Typer(help="Say what a run would be, before it is started.", no_args_is_help=True)


@plans.command("make")
def make_plan(
    environment: EnvironmentName,
    kind: Annotated[str, typer.Option(help="train or eval.")] = "train",
    like: Annotated[str, typer.Option(help="A run whose settings are taken over.")] = "",
    prove: Annotated[bool, typer.Option("--prove/--no-prove", help="Followed by a proof.")] = True,
    cases: Annotated[int | None, typer.Option(help="Of an evaluation: at most so many.")] = None,
    set: Assignments = None,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Say what a run would be, what it would cost and what is missing, without starting it."""
    from sparring.surfaces.cli import operating

    request = {"environment": environment, "kind": kind, "like": like, "prove": prove}
    operating.make_plan({**request, "cases": cases}, set or [], runs, as_json=as_json)


@plans.command("revise")
def revise_plan(
    plan: Annotated[str, typer.Argument(help="The id of a plan.")],
    field: Annotated[str, typer.Argument(help="A setting, as in temperature or config.level.")],
    value: Annotated[str, typer.Argument(help="JSON, or a text.")],
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Make a new plan from one that is there, with one field changed."""
    from sparring.surfaces.cli import operating

    operating.revise_plan(plan, field, value, runs, as_json=as_json)


@plans.command("start")
def start_plan(
    plan: Annotated[str, typer.Argument(help="The id of a plan.")],
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Start the run of a plan: exactly that, and once."""
    from sparring.surfaces.cli import operating

    operating.start_plan(plan, runs, detach=detach, as_json=as_json)


def limits(runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Show what an AI operator may do here, and how much of its budget is left."""
    from sparring.surfaces.cli import operating

    operating.limits(runs, as_json=as_json)


def mcp(
    name: Annotated[
        str, typer.Option("--as", help="What the operator is called in the record.")
    ] = "operator",
    role: Annotated[str, typer.Option(help="operator, or viewer, who only looks.")] = "operator",
    project: Annotated[
        str, typer.Option(help="Folder of the project; default: where it is started.")
    ] = ".",
    runs: RunsFolder = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print what an MCP client wants to know.")
    ] = False,
    print_tools: Annotated[
        bool, typer.Option("--print-tools", help="Print the tools as function schemas.")
    ] = False,
) -> None:
    """Let an AI agent operate this project: tools over MCP, on standard input and output."""
    from sparring.surfaces.cli import operating

    if print_tools:
        operating.print_tools(role)
    elif print_config:
        operating.print_config(name, role, project, runs)
    else:
        operating.serve(name, role, project, runs)
