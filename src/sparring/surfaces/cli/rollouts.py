"""The commands `sparring rollout …`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from sparring.contracts.json import JsonObject
from sparring.operations.rollouts import (
    RolloutLine,
    RolloutPage,
    ShowRollout,
    list_rollouts,
    show_rollout,
)
from sparring.operations.token_views import ShownTokens, show_tokens
from sparring.surfaces.cli.commands import AsJson, Reader, shows
from sparring.surfaces.cli.tables import print_json, printable

_STYLES = {"system": "dim", "user": "bold", "assistant": "green", "tool": "cyan"}
_SPAN_STYLES = {"prompt": "", "sampled": "bold green", "observed": "cyan"}
_MAX_CHARACTERS = 2000


@shows(list_rollouts)
def rollout_list(page: RolloutPage, console: Console) -> None:
    """Print one page of a run's rollouts."""
    for line in page.rollouts:
        _show_line(line, console)
    first, last = (page.rollouts[0], page.rollouts[-1]) if page.rollouts else (None, None)
    range_text = f"{first.position + 1} to {last.position + 1}" if first and last else "none"
    if first and last and len(page.rollouts) <= last.position - first.position:
        range_text = f"{len(page.rollouts)} rollouts from positions {range_text}"
    more = f"; more with --start {page.next}" if page.next is not None else ""
    console.print(Text(f"{range_text} of {page.total}{more}", style="dim"))


def rollout_show(
    request: ShowRollout,
    caller: Reader,
    as_json: AsJson,
    full: Annotated[bool, typer.Option("--full", help="Do not shorten long messages.")] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Show the text of all tokens, including the chat template."),
    ] = False,
) -> None:
    """Print one rollout, as messages or as tokens."""
    shown = show_tokens(request, caller) if raw else show_rollout(request, caller).record
    if as_json:
        print_json(shown)
    elif isinstance(shown, ShownTokens):
        _show_tokens(shown, Console())
    else:
        _show_record(shown, Console(), full=full)


def _show_record(record: JsonObject, console: Console, *, full: bool) -> None:
    for message in record["messages"]:
        _show_message(message, console, full=full)
    console.rule(style="dim")
    console.print(Text(printable(f"{record['ending']} {record['detail']}".strip())))
    for judgement in record["judgements"]:
        score = f" {judgement['score']:g}" if judgement["outcome"] == "scored" else ""
        line = f"{judgement['measure']}: {judgement['outcome']}{score}: {judgement['reason']}"
        style = "green" if judgement["outcome"] == "passed" else "yellow"
        console.print(Text(printable(line), style=style))
    advantage = record.get("advantage")
    suffix = "" if advantage is None else f", advantage {advantage:+.2f}"
    console.print(Text(f"reward {_reward(record['reward'])}{suffix}"))
    if reason := record.get("dropped"):
        console.print(Text(printable(f"not trained on: {reason}"), style="dim"))


def _show_tokens(shown: ShownTokens, console: Console) -> None:
    for row in shown.rows:
        console.rule(Text(printable(row.agent or "the model"), style="bold"), style="dim")
        for span in row.spans:
            text = Text(printable("".join(span.texts)), style=_SPAN_STYLES[span.kind])
            console.print(text, end="", soft_wrap=True)
        console.print()
    console.rule(style="dim")
    console.print(Text("green: sampled; cyan: results of tools and messages of users", style="dim"))


def _show_line(line: RolloutLine, console: Console) -> None:
    """Print the metrics on one line and the texts below it, so that they fit any width."""
    style = "green" if line.reward == 1.0 else "yellow" if line.reward is None else "red"
    figures = f"  {line.ending}, {line.tool_calls} calls, {line.sampled_tokens} tokens"
    head = Text.assemble((_reward(line.reward), style), "  ", (printable(line.id), "bold"), figures)
    console.print(head, soft_wrap=True)
    for text in (line.answer, line.reason):
        if text.strip():
            style = "dim" if text is line.reason else ""
            row = Text(printable(" ".join(text.split())), style=style)
            console.print(Padding(row, (0, 0, 0, 6)), no_wrap=True, overflow="ellipsis")


def _show_message(message: JsonObject, console: Console, *, full: bool) -> None:
    role = message["role"]
    who = f"{role} ({message['agent']})" if role == "assistant" else role
    console.print(Text(printable(who), style=_STYLES.get(role, "")))
    if message.get("thinking"):
        _show_text(f"(thinking) {message['thinking']}", "dim italic", console, full=full)
    _show_text(message["content"], "", console, full=full)
    for call in message.get("calls", ()):
        _show_text(f"→ {call['tool']}({call['arguments']})", "magenta", console, full=full)


def _show_text(text: str, style: str, console: Console, *, full: bool) -> None:
    """Print a text indented, so that a tool's result cannot imitate another turn."""
    if not text:
        return
    if len(text) > _MAX_CHARACTERS and not full:
        text = f"{text[:_MAX_CHARACTERS]}… ({len(text):,} characters; --full shows them)"
    console.print(Padding(Text(printable(text), style=style), (0, 0, 0, 2)))


def _reward(reward: float | None) -> str:
    return "   –" if reward is None else f"{reward:.2f}"
