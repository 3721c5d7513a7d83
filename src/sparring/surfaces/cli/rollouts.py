"""The commands `sparring rollout …`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
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
from sparring.surfaces.cli.page import (
    DIM,
    Paragraph,
    Part,
    print_json,
    printable,
    remark,
    show,
)

_STYLES = {"system": "dim", "user": "bold", "assistant": "green", "tool": "cyan"}
_SPAN_STYLES = {"prompt": "", "sampled": "bold green", "observed": "cyan"}
_MAX_CHARACTERS = 2000
_RULE = 40


@shows(list_rollouts)
def rollout_list(page: RolloutPage) -> Iterator[Part]:
    """Return one page of a run's rollouts."""
    for line in page.rollouts:
        yield from _line_parts(line)
    first, last = (page.rollouts[0], page.rollouts[-1]) if page.rollouts else (None, None)
    range_text = f"{first.position + 1} to {last.position + 1}" if first and last else "none"
    if first and last and len(page.rollouts) <= last.position - first.position:
        range_text = f"{len(page.rollouts)} rollouts from positions {range_text}"
    more = f"; more with --start {page.next}" if page.next is not None else ""
    yield remark(f"{range_text} of {page.total}{more}")


def _line_parts(line: RolloutLine) -> Iterator[Part]:
    """Return the figures of a rollout on one line and its texts below, so that they fit any
    width."""
    style = "green" if line.reward == 1.0 else "yellow" if line.reward is None else "red"
    figures = f"  {line.id}  {line.ending}, {line.tool_calls} calls, {line.sampled_tokens} tokens"
    yield Paragraph(figures, lead=_reward(line.reward), lead_style=style)
    for text, style in ((line.answer, ""), (line.reason, DIM)):
        if text.strip():
            yield Paragraph(" ".join(text.split()), style, indent=6, is_one_line=True)


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
        _print_tokens(shown, Console())
    else:
        show(_record_parts(shown, full=full), Console())


def _record_parts(record: JsonObject, *, full: bool) -> Iterator[Part]:
    for message in record["messages"]:
        yield from _message_parts(message, full=full)
    yield remark("─" * _RULE)
    yield Paragraph(f"{record['ending']} {record['detail']}".strip())
    for judgement in record["judgements"]:
        score = f" {judgement['score']:g}" if judgement["outcome"] == "scored" else ""
        line = f"{judgement['measure']}: {judgement['outcome']}{score}: {judgement['reason']}"
        yield Paragraph(line, "green" if judgement["outcome"] == "passed" else "yellow")
    advantage = record.get("advantage")
    suffix = "" if advantage is None else f", advantage {advantage:+.2f}"
    yield Paragraph(f"reward {_reward(record['reward'])}{suffix}")
    if reason := record.get("dropped"):
        yield remark(f"not trained on: {reason}")


def _message_parts(message: JsonObject, *, full: bool) -> Iterator[Part]:
    """Return a message with its texts indented, so that a tool's result cannot imitate another
    turn."""
    role = message["role"]
    who = f"{role} ({message['agent']})" if role == "assistant" else role
    yield Paragraph(who, _STYLES.get(role, ""))
    texts = [(message["content"], "")]
    if message.get("thinking"):
        texts.insert(0, (f"(thinking) {message['thinking']}", "dim italic"))
    for call in message.get("calls", ()):
        texts.append((f"→ {call['tool']}({call['arguments']})", "magenta"))
    for text, style in texts:
        if len(text) > _MAX_CHARACTERS and not full:
            text = f"{text[:_MAX_CHARACTERS]}… ({len(text):,} characters; --full shows them)"
        if text:
            yield Paragraph(text, style, indent=2)


def _print_tokens(shown: ShownTokens, console: Console) -> None:
    for row in shown.rows:
        console.rule(Text(printable(row.agent or "the model"), style="bold"), style="dim")
        for span in row.spans:
            text = Text(printable("".join(span.texts)), style=_SPAN_STYLES[span.kind])
            console.print(text, end="", soft_wrap=True)
        console.print()
    console.rule(style="dim")
    console.print(Text("green: sampled; cyan: results of tools and messages of users", style="dim"))


def _reward(reward: float | None) -> str:
    return "   –" if reward is None else f"{reward:.2f}"
