"""Declares `sparring rollout …`: the commands that read rollouts."""

from __future__ import annotations

from typing import Annotated

import typer

from sparring.surfaces.cli.options import AsJson, RunName, RunsFolder

rollouts = typer.Typer(help="Read the rollouts of a run.", no_args_is_help=True)

Log = Annotated[
    str,
    typer.Option(help="The log to read; a training also has validation and demonstrations."),
]


@rollouts.command("list")
def list_rollouts(
    run: RunName,
    start: Annotated[int, typer.Option(help="First rollout to show.")] = 0,
    count: Annotated[int, typer.Option(help="Maximum number of rollouts to show.")] = 20,
    ending: Annotated[
        str | None, typer.Option(help="Only rollouts with this ending, as in token_budget.")
    ] = None,
    min_reward: Annotated[
        float | None, typer.Option(help="Only rollouts with this reward or more.")
    ] = None,
    max_reward: Annotated[
        float | None, typer.Option(help="Only rollouts with this reward or less.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Only rollouts of this step.")] = None,
    player: Annotated[
        str, typer.Option(help="Only rollouts of this player; a proof has base and trained.")
    ] = "",
    log: Log = "rollouts",
    case: Annotated[str, typer.Option(help="Only rollouts of the case with this id.")] = "",
    measure: Annotated[str, typer.Option(help="Only rollouts that this measure judged.")] = "",
    verdict: Annotated[
        str, typer.Option(help="Only this verdict: passed, failed or unscored.")
    ] = "",
    tool: Annotated[str, typer.Option(help="Only rollouts that call this tool.")] = "",
    text: Annotated[str, typer.Option(help="Only rollouts whose messages contain this text.")] = "",
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """List a page of a run's rollouts."""
    from sparring.surfaces.cli import reading

    query = {"run": run, "start": start, "count": count, "ending": ending}
    query |= {"min_reward": min_reward, "max_reward": max_reward, "case": case, "tool": tool}
    query |= {"measure": measure, "verdict": verdict, "text": text}
    query |= {"first_step": step, "last_step": step, "player": player, "log": log}
    reading.list_page(query, runs, as_json=as_json)


@rollouts.command("show")
def show_rollout(
    run: RunName,
    rollout: Annotated[str, typer.Argument(help="The rollout's id, from `rollout list`.")],
    log: Log = "rollouts",
    full: Annotated[bool, typer.Option("--full", help="Do not shorten long messages.")] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Show the text of all tokens, including the chat template."),
    ] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show one rollout: its messages, its tool calls, and why it passed or failed."""
    from sparring.surfaces.cli import reading

    query = {"run": run, "rollout": rollout, "log": log}
    if raw:
        reading.show_raw(query, runs, as_json=as_json)
        return
    reading.show(query, runs, full=full, as_json=as_json)
