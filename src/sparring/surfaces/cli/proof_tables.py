"""Prints the summaries of checks, audits, proofs and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparring.contracts.json import JsonObject
from sparring.contracts.progress import counted, duration_text
from sparring.contracts.summaries import (
    AuditSummary,
    CaseBand,
    CheckSummary,
    MeasureChange,
    MeasureVerdict,
    Note,
    PlanEstimate,
    PlayedModel,
    ProveSummary,
)
from sparring.surfaces.cli.next_steps import (
    after_check,
    after_look,
    after_proof,
    show_next_steps,
)
from sparring.surfaces.cli.tables import facts_table, grid, printable

_GOOD, _BAD, _DOUBTFUL = "bold green", "bold red", "bold yellow"
_STYLES = {
    "learnable": _GOOD,
    "not as it is": _DOUBTFUL,
    "better": _GOOD,
    "not shown": _DOUBTFUL,
    "too easy": _DOUBTFUL,
    "too hard": _DOUBTFUL,
}
_BAR = 24


def show_check(summary: CheckSummary, console: Console) -> None:
    """Print the summary of a check."""
    _headline(summary.verdict, summary.why, console)
    if summary.measures:
        console.print(_measures(summary.measures, summary.group_size))
    _notes(summary.notes, console)
    if summary.live:
        console.print(_live(summary))
    if summary.cases:
        console.print(_cases(summary.cases))
    if len(summary.models) > 1:
        console.print(_models(summary.models))
    if summary.estimate:
        console.print(_estimate(summary.estimate))
    if not summary.audit:
        console.print(Text("the audit of the measures found nothing", style="dim"))
    show_next_steps(after_check(summary), console)


def show_audit(summary: AuditSummary, console: Console) -> None:
    """Print the findings of an audit of measures."""
    findings = summary.audit
    verdict = counted(len(findings), "finding") if findings else "nothing found"
    if any(finding.is_grave for finding in findings):
        verdict += ", some serious"
    scope = f"{', '.join(summary.measures)} made {summary.judgements} judgements of answers "
    scope += "by up to ten null players, of which two give the expected answer"
    left_out = summary.left_out
    style = _BAD if findings else _DOUBTFUL if left_out else _GOOD
    console.print(Text.assemble("\n", (verdict, style), f": {scope}"))
    for message in left_out:
        console.print(Text.assemble(("● ", _DOUBTFUL), printable(message)), soft_wrap=True)
    for finding in findings:
        line = Text.assemble(("✗ ", _BAD) if finding.is_grave else ("● ", _DOUBTFUL))
        line.append(f"{finding.measure} ", style="bold")
        line.append(f"{printable(finding.message)}  ")
        line.append(finding.rollout, style="dim")
        console.print(line, soft_wrap=True)
        console.print(Text(f"  → {finding.advice}", style="cyan"), soft_wrap=True)
    show_next_steps(after_look(summary.run), console)


def show_proof(summary: ProveSummary, console: Console) -> None:
    """Print the verdict of a proof, the differences, and the remaining failures."""
    is_good = summary.is_good or summary.verdict != "better"
    style = None if is_good else _DOUBTFUL
    _headline(summary.verdict, summary.sentence, console, style)
    table = grid("", "base", "trained", "difference", "95 % interval", "", left=("",))
    for name, row in summary.differences.items():
        table.add_row(
            Text(printable(name), style="bold" if name == "reward" else ""),
            f"{row.before:.3f}",
            f"{row.after:.3f}",
            f"{row.value:+.3f}",
            f"{row.low:+.3f} … {row.high:+.3f}",
            "guard" if isinstance(row, MeasureChange) and row.is_guard else "",
        )
    console.print(table)
    for line in _basis(summary):
        console.print(Text(line, style="dim"), soft_wrap=True)
    for failure in summary.still_fails:
        times = counted(failure.count, "time")
        line = f"still fails {failure.measure} {times}, as in: {failure.reason[:100]}"
        console.print(Text(printable(line)), soft_wrap=True)
    for flip in [each for each in summary.flips if each.after < each.before][:3]:
        line = f"got worse, {flip.before:.2f} → {flip.after:.2f}: case {flip.case}"
        console.print(Text(printable(line)), soft_wrap=True)
    show_next_steps(after_proof(summary), console)


def show_comparison(comparison: JsonObject, console: Console) -> None:
    """Print the settings that differ between runs, and their differences in reward."""
    names = comparison["runs"]
    table = grid("setting", *names)
    for name, values in comparison["settings"]:
        table.add_row(Text(printable(name)), *(Text(printable(str(value))) for value in values))
    console.print(table if comparison["settings"] else Text("no setting differs", style="dim"))
    for row in comparison["differences"]:
        _headline(
            row["standing"], f"{row['run']} compared with {names[0]}: {row['sentence']}", console
        )
        console.print(Text(row["basis"], style="dim"), soft_wrap=True)
        for flip in row["flips"][:5]:
            line = f"case {flip['case']}: {flip['before']:.2f} → {flip['after']:.2f}"
            console.print(Text(printable(line)))
    if comparison["html"]:
        console.print(Text(comparison["html"], style="dim"), soft_wrap=True)


def _basis(summary: ProveSummary) -> list[str]:
    reward = summary.reward
    lines = [
        f"{summary.cases} {summary.split} cases × {summary.rollouts_per_case} rollouts of "
        f"each model, at temperature {summary.temperature:g}; "
        f"{duration_text(summary.seconds)}"
    ]
    if reward:
        lines.append(
            f"{reward.differing} cases came out differently; an effect of "
            f"{reward.smallest_effect:.3f} would be detected with 80 % power"
        )
        if reward.mcnemar is not None:
            lines.append(f"exact McNemar test: p = {reward.mcnemar:.4f}")
    if summary.picked_from > 1:
        lines.append(f"corrected for {summary.picked_from} candidates on the same cases")
    if summary.proofs_on_these_cases > 1:
        lines.append(
            f"run number {summary.proofs_on_these_cases} that measured these cases: each makes "
            "a lucky result likelier, so the interval is corrected for all recorded candidates"
        )
    unscored = {side: count for side, count in (summary.unscored or {}).items() if count}
    if unscored:
        counts = ", ".join(f"{count} of {side}" for side, count in unscored.items())
        lines.append(f"rollouts that could not be scored: {counts}")
    return lines


def _headline(verdict: str, why: str, console: Console, style: str | None = None) -> None:
    style = style or _STYLES.get(verdict, _BAD)
    console.print(Text.assemble("\n", (verdict, style), f": {printable(why)}"), soft_wrap=True)


def _notes(notes: Sequence[Note], console: Console) -> None:
    for note in notes:
        mark = ("✗ ", _BAD) if note.is_grave else ("● ", _DOUBTFUL)
        line = Text.assemble(mark, (note.what, "bold"), f": {printable(note.message)}")
        if note.rollout:
            line.append(f"  {note.rollout}", style="dim")
        console.print(line, soft_wrap=True)
        if note.advice:
            console.print(Text(f"  → {note.advice}", style="cyan"), soft_wrap=True)


def _live(summary: CheckSummary) -> Table:
    table = grid("group size", "live groups", "in the first five steps", "", left=("",))
    for row in sorted(summary.live, key=lambda each: each.group_size):
        is_planned = row.group_size == summary.group_size
        table.add_row(
            f"{row.group_size}",
            f"{row.value:.0%}",
            f"{row.low:.0%} … {row.high:.0%}",
            "planned" if is_planned else "",
            style="bold" if is_planned else "",
        )
    return table


_MOVEMENTS = {"can be learned": "green", "already passed": "dim", "constant": "yellow"}


def _measures(measures: Sequence[MeasureVerdict], group_size: int) -> Table:
    differing = f"differs in groups of {group_size}"
    table = grid("measure", "passed", differing, "", left=("measure", ""))
    for each in measures:
        table.add_row(
            Text(printable(each.name)),
            f"{each.passed} of {each.scored}",
            f"{each.live:.0%}",
            Text(_movement(each), style=_MOVEMENTS.get(each.movement, "red")),
        )
    return table


def _movement(measure: MeasureVerdict) -> str:
    is_rare = measure.movement == "never passes" and measure.passed
    return "hardly ever passes" if is_rare else str(measure.movement)


def _cases(cases: Sequence[CaseBand]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("case", "passed", "pass rate lies in", ""):
        justify: Any = "left" if title in ("case", "") else "right"
        table.add_column(
            title,
            justify=justify,
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if title == "case" else len(title) or _BAR,
        )
    for case in cases[:24]:
        table.add_row(
            Text(printable(case.question or case.case)[:48]),
            f"{case.passed} of {case.rollouts}",
            f"{case.low:.0%} … {case.high:.0%}",
            _band(case.low, case.high),
        )
    return table


def _band(low: float, high: float) -> Text:
    first, last = int(low * _BAR), min(_BAR - 1, int(high * _BAR))
    bar = Text()
    for cell in range(_BAR):
        is_inside = first <= cell <= last
        bar.append("━" if is_inside else "·", style="green" if is_inside else "dim")
    return bar


def _models(models: Sequence[PlayedModel]) -> Table:
    titles = ("model", "cases", "rollouts", "correct", "accuracy", "any correct", "time", "")
    table = grid(*titles, left=("model", ""))
    for model in models:
        table.add_row(
            Text(printable(model.name), style="bold" if model.is_learner else ""),
            str(model.cases),
            str(model.rollouts),
            str(model.correct),
            _share(model.accuracy),
            _share(model.any_correct),
            duration_text(model.seconds),
            Text("see above" if model.message else "", style="red"),
        )
    return table


def _estimate(estimate: PlanEstimate) -> Table:
    table = facts_table()
    step, hours = estimate.seconds_per_step, estimate.hours
    low, high = duration_text(3600 * hours.low), duration_text(3600 * hours.high)
    table.add_row("the planned run", Text(estimate.plan))
    table.add_row("a step takes", f"{step.value:.1f} s ({step.low:.1f} … {step.high:.1f})")
    table.add_row("the whole run takes", f"{duration_text(3600 * hours.value)} ({low} … {high})")
    if alone := estimate.hours_alone:
        cores = f"this check had {estimate.cores_had:.1f} of its cores"
        table.add_row("on an idle machine", f"{duration_text(3600 * alone)}; {cores}")
    if proof := estimate.proof_hours:
        table.add_row("the proof after it", duration_text(3600 * proof))
    table.add_row("tokens sampled", f"{estimate.sampled_tokens.value:,.0f}")
    table.add_row("memory", f"{estimate.memory / 2**30:.1f} GiB of {estimate.memory_of}")
    if cost := estimate.cost:
        table.add_row("cost", f"{cost.value:.2f} ({cost.low:.2f} … {cost.high:.2f})")
    table.add_row("based on", Text(estimate.basis))
    return table


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
