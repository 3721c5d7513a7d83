"""`sparring rollout …` and `sparring models …`."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparring.operations.models import FetchModel, fetch_model
from sparring.operations.rollouts import ListRollouts, ShowRollout, list_rollouts, show_rollout
from sparring.surfaces.cli.evaluating import owner

_WIDTHS = {"rollout": 20, "reward": 6, "ending": 8, "calls": 5, "tokens": 6}
_STYLES = {"system": "dim", "user": "bold", "assistant": "green", "tool": "cyan"}


def list_page(run: str, start: int, count: int, runs: str, *, as_json: bool) -> None:
    page = list_rollouts(ListRollouts(run=run, start=start, count=count), owner(runs))
    if as_json:
        print(page.model_dump_json())
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("rollout", "reward", "ending", "calls", "tokens", "answer", "why not"):
        table.add_column(title, overflow="ellipsis", no_wrap=True, min_width=_WIDTHS.get(title))
    for line in page.rollouts:
        reward = "–" if line.reward is None else f"{line.reward:.2f}"
        table.add_row(
            line.id,
            reward,
            line.ending,
            str(line.tool_calls),
            str(line.sampled_tokens),
            Text(_one_line(line.answer)),
            Text(_one_line(line.reason)),
        )
    console = Console()
    console.print(table)
    last = start + len(page.rollouts)
    console.print(f"[dim]{start}…{last} of {page.total}[/dim]", highlight=False)


def show(run: str, rollout: str, runs: str, *, as_json: bool) -> None:
    record = show_rollout(ShowRollout(run=run, rollout=rollout), owner(runs)).record
    if as_json:
        print(json.dumps(record))
        return
    console = Console()
    for message in record["messages"]:
        _show_message(message, console)
    console.rule(style="dim")
    console.print(Text(f"{record['ending']} {record['detail']}".strip()))
    for judgement in record["judgements"]:
        shown = f"{judgement['measure']}: {judgement['outcome']}: {judgement['reason']}"
        console.print(Text(shown, style="green" if judgement["outcome"] == "passed" else "yellow"))
    console.print(Text(f"reward {record['reward']}"))


def fetch(name: str, *, as_json: bool) -> None:
    with Console(stderr=True).status(f"building {name}…"):
        fetched = fetch_model(FetchModel(name=name), owner("runs"))
    print(fetched.model_dump_json() if as_json else fetched.folder)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _show_message(message: dict[str, Any], console: Console) -> None:
    role = message["role"]
    who = f"{role} ({message['agent']})" if role == "assistant" else role
    console.print(Text(who, style=_STYLES.get(role, "")))
    if message.get("thinking"):
        console.print(Text(f"  (thinking) {message['thinking']}", style="dim italic"))
    if message["content"]:
        console.print(Text(f"  {message['content']}"))
    for call in message.get("calls", ()):
        console.print(Text(f"  → {call['tool']}({call['arguments']})", style="magenta"))
