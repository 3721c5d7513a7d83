"""Prints the summaries of evaluations and training runs; provides helpers for safe output."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparring.contracts.json import JsonObject
from sparring.contracts.progress import duration_text
from sparring.contracts.summaries import EvalSummary, Reason, Share, TrainSummary
from sparring.surfaces.cli.next_steps import after_eval, after_training, show_next_steps

_BAR = 16


def show_summary(summary: EvalSummary, console: Console) -> None:
    """Print the summary of an evaluation."""
    console.print()
    setup = (
        f" on {summary.cases} {summary.split} cases × {summary.rollouts_per_case}, "
        f"temperature {summary.temperature:g}"
    )
    console.print(Text.assemble((printable(summary.policy), "bold"), setup))
    _show_unsandboxed(summary.unsandboxed, console)
    console.print(_measures(summary))
    for name, measure in summary.measures.items():
        if not measure.judged:
            console.print(Text(f"{name} could not judge any rollout", style="bold red"))
    console.print(_facts(summary))
    for name, measure in summary.measures.items():
        _show_reasons(f"why {name} did not pass", measure.reasons_for_failing, console)
    _show_reasons("why rollouts ended without an answer", summary.causes, console)
    show_next_steps(after_eval(summary), console)


def _show_unsandboxed(is_unsandboxed: bool, console: Console) -> None:
    if is_unsandboxed:
        warning = "code that the model wrote ran without a sandbox (unsandboxed=true)"
        console.print(Text(warning, style="bold red"))


def show_training(summary: TrainSummary, console: Console) -> None:
    """Print the summary of a training run."""
    console.print()
    console.print(Text.assemble((printable(summary.model), "bold"), f": {summary.plan}"))
    _show_unsandboxed(summary.unsandboxed, console)
    table = facts_table()
    last = summary.last
    if last:
        reward = f"{last['reward']:.3f}" if "reward" in last else "–"
        table.add_row("last step", f"loss {last['loss']:+.3f}, reward {reward}")
        for name, rate in last.items():
            if name.startswith("pass_rate/"):
                table.add_row(printable(name.removeprefix("pass_rate/")), f"{rate:.1%} passed")
    for row in summary.validation:
        scored = row["rollouts"] * (1 - row.get("unscored", 0.0))
        result = f"reward {row['reward']:.3f} on {scored:.0f} cases"
        if row.get("unscored"):
            result += f"; {row['rollouts'] - scored:.0f} more could not be scored"
        warm = " (after the warm start)" if summary.warm_start and not row["step"] else ""
        table.add_row(f"validation at step {row['step']}{warm}", result)
    if warm_start := summary.warm_start:
        table.add_row("warm start", f"{warm_start['demonstrations']} demonstrations")
    if weights := summary.best_checkpoint or summary.last_checkpoint:
        is_best = summary.best_score is not None
        why = f", the best on validation ({summary.best_score:.3f})" if is_best else ""
        table.add_row("weights", Text(f"{Path(weights).name}{why}"))
    table.add_row("time", f"{duration_text(summary.seconds)} for {summary.steps} steps")
    for name, link in summary.links.items():
        table.add_row(name, Text(printable(link)))
    console.print(table)
    show_next_steps(after_training(summary), console)


def _measures(summary: EvalSummary) -> Table:
    titles = ("measure", "passed", "95 % interval", "", "weight", "judged", "unsure")
    table = grid(*titles, left=("measure", ""))
    for name, measure in summary.measures.items():
        rate = measure.pass_rate
        table.add_row(
            Text(printable(name)),
            f"{rate.value:.1%}" if rate else "–",
            f"{rate.low:.1%} … {rate.high:.1%}" if rate else "–",
            _bar(rate),
            f"{measure.weight:g}" if measure.weight else "shown",
            str(measure.judged),
            str(measure.cannot_tell) if measure.cannot_tell else "",
        )
    return table


def _bar(rate: Share | None) -> Text:
    """Draw the interval as a line and the rate as a mark on it."""
    bar = Text()
    if rate is None:
        return bar
    mark = min(_BAR - 1, int(rate.value * _BAR))
    low, high = int(rate.low * _BAR), min(_BAR - 1, int(rate.high * _BAR))
    for cell in range(_BAR):
        if cell == mark:
            bar.append("●", style="bold green")
        elif low <= cell <= high:
            bar.append("─", style="green")
        else:
            bar.append("·", style="dim")
    return bar


def _facts(summary: EvalSummary) -> Table:
    table = facts_table()
    table.add_row("reward", "–" if summary.reward is None else f"{summary.reward:.3f}")
    table.add_row("endings", _counts(summary.endings))
    table.add_row("calls parsed", _percent(summary.parse_rate))
    table.add_row("called a tool", _percent(summary.called_a_tool))
    table.add_row("tool calls", _counts(summary.tool_calls))
    table.add_row("tool failures", _counts(summary.tool_failures))
    table.add_row("truncated", _percent(summary.truncated))
    if summary.unscored:
        table.add_row("unscored", f"{summary.unscored} of {summary.rollouts}")
    tokens, seconds = summary.tokens, summary.seconds
    rate = f", {tokens.sampled / seconds:.0f} a second" if seconds else ""
    table.add_row("tokens", f"{tokens.sampled:,} sampled{rate}; {tokens.prompt:,} of prompts")
    table.add_row("time", f"{seconds:.1f} s")
    if summary.hung_tools:
        table.add_row("hung tools", _counts(Counter(summary.hung_tools)))
    return table


def _show_all_reasons(summary: EvalSummary, console: Console) -> None:
    for name, measure in summary.measures.items():
        _show_reasons(f"why {name} did not pass", measure.reasons_for_failing, console)
    _show_reasons("why rollouts ended without an answer", summary.causes, console)


def _show_reasons(title: str, rows: Sequence[Reason], console: Console) -> None:
    """Print how often each kind of reason occurred, with one example in full."""
    if not rows:
        return
    console.print(Text(title, style="dim"))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(justify="right", min_width=6, no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        like = "like " if row.count > 1 and row.reason != row.shape else ""
        table.add_row(f"{row.count} ×", Text.assemble((like, "dim"), printable(row.reason)))
    console.print(table)


def facts_table(rows: Iterable[tuple[str, str | Text]] = ()) -> Table:
    """Return a table of names and values."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def grid(*titles: str, left: Collection[str] | None = None) -> Table:
    """Return a table with these columns. With `left`, all others are aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        is_left = left is None or title in left
        table.add_column(title, justify="left" if is_left else "right", overflow="fold")
    return table


def print_json(answer: BaseModel | JsonObject) -> None:
    """Print one line of ASCII JSON, so that text from models or data cannot control a terminal."""
    plain = json.loads(answer.model_dump_json()) if isinstance(answer, BaseModel) else answer
    print(json.dumps(plain, separators=(",", ":")))


def printable(text: str) -> str:
    """Return text from models and data with its control characters escaped."""
    return "".join(
        character if character in "\n\t" or character.isprintable() else f"\\x{ord(character):02x}"
        for character in text
    )


def _counts(counts: dict[str, int]) -> Text:
    return Text(printable(", ".join(f"{count} {name}" for name, count in counts.items()) or "none"))


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
