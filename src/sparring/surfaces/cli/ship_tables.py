"""Prints the summary of a shipment."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparring.contracts.summaries import ArtefactRow, ShipSummary
from sparring.surfaces.cli.next_steps import after_shipment, after_trial, show_next_steps
from sparring.surfaces.cli.tables import grid, printable

_STYLES = {"equal": "bold green", "checked": "bold green", "cannot tell": "bold yellow"}


def show_shipment(summary: ShipSummary, console: Console) -> None:
    """Print the verdict, one line per file, and the commands that run the model."""
    word = summary.verdict
    style = _STYLES.get(word, "bold red")
    console.print(
        Text.assemble("\n", (word, style), f": {printable(summary.sentence)}"), soft_wrap=True
    )
    if summary.problem:
        console.print(Text(f"✗ {printable(summary.problem)}", style="red"), soft_wrap=True)
    for warning in summary.warnings:
        console.print(Text(f"● {printable(warning)}", style="yellow"), soft_wrap=True)
    if summary.artefacts:
        console.print(_artefacts(summary.artefacts))
    for row in summary.artefacts:
        if row.warning:
            line = f"● {row.name}: {row.warning}"
            console.print(Text(printable(line), style="yellow"), soft_wrap=True)
    if (compared := summary.without_examples) is not None:
        line = f"the checkpoint's mean reward {compared.sentence}"
        console.print(Text(printable(line), style="dim"), soft_wrap=True)
    if summary.is_trial:
        console.print(Text("A trial: no folder was written.", style="dim"))
        show_next_steps(after_trial(summary), console)
    if not summary.to:
        return
    for program, command in summary.commands.items():
        console.print(Text.assemble((f"{program}  ", "dim"), (command, "cyan")), soft_wrap=True)
    console.print(Text("in your agent:", style="dim"))
    console.print(Text(summary.agent_lines, style="cyan"), soft_wrap=True)
    if compared is not None:
        line = "send the worked examples before each question, as in how_to_run.md"
        console.print(Text(line, style="dim"), soft_wrap=True)
    for line in summary.uploads:
        console.print(Text(printable(line), style="dim"), soft_wrap=True)
    show_next_steps(after_shipment(summary), console)


def _artefacts(rows: Sequence[ArtefactRow]) -> Table:
    titles = ("file", "MB", "prompts equal", "mean gap", "KL", "on validation", "played by")
    table = grid(*titles, left=("file", "played by"))
    for row in rows:
        gap, played = row.gap, row.validation
        reward = played.mean_reward if played else None
        table.add_row(
            Text(printable(row.path)),
            f"{row.size / 1e6:.1f}",
            str(row.prompts.conversations),
            f"{gap.mean:.1e}" if gap else "–",
            f"{gap.kl:.1e}" if gap else "–",
            f"{played.likeness}, {reward:.2f}" if played and reward is not None else "–",
            ", ".join(row.played_by),
        )
    return table
