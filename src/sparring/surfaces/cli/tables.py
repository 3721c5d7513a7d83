"""Tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_BAR = 16


def show_summary(summary: dict[str, Any], console: Console) -> None:
    """What an evaluation showed."""
    console.print()
    console.print(
        f"[bold]{summary['policy']}[/bold] on {summary['cases']} {summary['split']} cases × "
        f"{summary['rollouts_per_case']}, temperature {summary['temperature']:g}",
        highlight=False,
    )
    console.print(_measures(summary))
    for name, measure in summary["measures"].items():
        if not measure["judged"]:
            console.print(Text(f"{name} could judge none of the rollouts", style="bold red"))
    console.print(_facts(summary))
    _reasons(summary, console)
    console.print(
        f"[dim]sparring rollout list {summary['run']}[/dim]", highlight=False, soft_wrap=True
    )


def _measures(summary: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("measure", "passed", "95 % interval", "", "weight", "judged", "unsure"):
        table.add_column(title, justify="left" if title in ("measure", "") else "right")
    for name, measure in summary["measures"].items():
        rate = measure["pass_rate"]
        table.add_row(
            Text(name),
            f"{rate['value']:.1%}" if rate else "–",
            f"{rate['low']:.1%} … {rate['high']:.1%}" if rate else "–",
            _bar(rate),
            f"{measure['weight']:g}" if measure["weight"] else "shown",
            str(measure["judged"]),
            str(measure["cannot_tell"]) if measure["cannot_tell"] else "",
        )
    return table


def _bar(rate: dict[str, float] | None) -> Text:
    """The interval as a line, the rate as a mark on it."""
    bar = Text()
    if rate is None:
        return bar
    mark = min(_BAR - 1, int(rate["value"] * _BAR))
    low, high = int(rate["low"] * _BAR), min(_BAR - 1, int(rate["high"] * _BAR))
    for cell in range(_BAR):
        if cell == mark:
            bar.append("●", style="bold green")
        elif low <= cell <= high:
            bar.append("─", style="green")
        else:
            bar.append("·", style="dim")
    return bar


def _facts(summary: dict[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    table.add_row("reward", "–" if summary["reward"] is None else f"{summary['reward']:.3f}")
    table.add_row("endings", _counts(summary["endings"]))
    table.add_row("calls parsed", _percent(summary["parse_rate"]))
    table.add_row("called a tool", _percent(summary["called_a_tool"]))
    table.add_row("tool calls", _counts(summary["tool_calls"]) or "none")
    table.add_row("tool failures", _counts(summary["tool_failures"]) or "none")
    table.add_row("truncated", _percent(summary["truncated"]))
    if summary["unscored"]:
        table.add_row("unscored", f"{summary['unscored']} of {summary['rollouts']}")
    tokens, seconds = summary["tokens"], summary["seconds"]
    rate = f", {tokens['sampled'] / seconds:.0f} a second" if seconds else ""
    table.add_row("tokens", f"{tokens['sampled']:,} sampled{rate}; {tokens['prompt']:,} of prompts")
    table.add_row("time", f"{seconds:.1f} s")
    if summary["hung_tools"]:
        table.add_row("hung tools", ", ".join(summary["hung_tools"]))
    return table


def _reasons(summary: dict[str, Any], console: Console) -> None:
    for name, measure in summary["measures"].items():
        _show_reasons(f"why {name} did not pass", measure["reasons_for_failing"], console)
    _show_reasons("why rollouts ended without a proper answer", summary["causes"], console)


def _show_reasons(title: str, rows: list[dict[str, Any]], console: Console) -> None:
    """Reasons by shape, each with one that was really given."""
    if not rows:
        return
    console.print(Text(title, style="dim"))
    for row in rows:
        line = Text(f"  {row['count']:>4} × {row['shape']}")
        if row["reason"] != row["shape"]:
            line.append(f"   as in: {row['reason']}", style="dim")
        console.print(line, no_wrap=True, overflow="ellipsis")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
