"""Builds the report of each kind of run from its summary, without playing or judging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparring.contracts.cases import question_of
from sparring.contracts.progress import counted, duration_text
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import (
    Amount,
    AuditSummary,
    CheckSummary,
    Difference,
    EvalSummary,
    Figures,
    Flip,
    LiveShare,
    MeasureChange,
    Note,
    PlanEstimate,
    PlayedModel,
    ProveSummary,
    Share,
)
from sparring.reports.document import (
    Block,
    Column,
    Document,
    Grid,
    Heading,
    Paragraph,
    SideBySide,
    VerdictBlock,
    unsandboxed_note,
)
from sparring.reports.pictures import Curve, case_bands, curves, intervals
from sparring.reports.training_report import Row, TrainingFacts, shortened, training_blocks

_TONES = {"learnable": "good", "better": "good", "worse": "bad", "broken": "bad", "constant": "bad"}
_MESSAGE_LENGTH = 4000


def proof_report(
    summary: ProveSummary,
    pairs: Sequence[tuple[Flip, Rollout, Rollout]],
    training: TrainingFacts | None,
) -> Document:
    """Return the report of a proof: verdict, differences, flipped cases, audit, training."""
    document = Document(f"{summary.environment or 'Proof'}: {summary.verdict}")
    document.add(
        VerdictBlock(summary.verdict, summary.sentence, _tone_of_proof(summary)),
        Paragraph(_what_was_proved(summary)),
        unsandboxed_note(summary.unsandboxed),
        Heading("Before and after"),
        _changes(summary.differences),
        intervals(summary.differences, "Differences with their 95 % intervals"),
        *(Paragraph(line, is_quiet=True) for line in _small_print(summary)),
        *_still_fails(summary),
    )
    if pairs:
        document.add(Heading(_flipped(pairs, summary.flips)))
        document.add(
            *(_pair(flip, (base, "base"), (other, "trained")) for flip, base, other in pairs)
        )
    document.add(*_audit(summary))
    if training is not None:
        document.add(*training_blocks(training))
    return document


def _tone_of_proof(summary: ProveSummary) -> str:
    """Return the tone of a proof's verdict; `better` without `is_good` is doubtful."""
    if summary.verdict == "better" and not summary.is_good:
        return "doubtful"
    return _TONES.get(summary.verdict, "doubtful")


def _still_fails(summary: ProveSummary) -> list[Block]:
    rows = [(each.measure, str(each.count), each.reason) for each in summary.still_fails]
    head = ("measure", "rollouts", "reason (an example)")
    return [Heading("What still fails, and why"), Grid(head, rows)] if rows else []


def training_report(training: TrainingFacts) -> Document:
    """Return the report of a training run."""
    document = Document(f"{training.spec.get('environment') or training.run}: training")
    document.add(*training_blocks(training))
    return document


def check_report(summary: CheckSummary) -> Document:
    """Return the report of a check: verdict, notes, live groups, cases, models, estimate, audit."""
    document = Document(f"{summary.environment or 'Check'}: {summary.verdict}")
    document.add(
        _verdict(summary.verdict, summary.why),
        Paragraph(
            f"{summary.model} played {summary.figures.rollouts} rollouts of "
            f"{len(summary.cases)} training cases; groups of {summary.group_size} are "
            "planned.",
            is_quiet=True,
        ),
        unsandboxed_note(summary.unsandboxed),
        *_measure_verdicts(summary),
        *_notes(summary.notes),
    )
    document.add(*_live_groups(summary))
    if summary.cases:
        caption = "Pass rate of each case, with its 95 % interval"
        document.add(Heading("Cases"), case_bands(summary.cases, caption))
    document.add(*_models(summary.models), *_estimate(summary.estimate))
    document.add(*_figures(summary.figures), *_audit(summary))
    return document


def audit_report(summary: AuditSummary) -> Document:
    """Return the report of an audit of measures."""
    findings = summary.audit
    headline = counted(len(findings), "finding") if findings else "nothing found"
    tone = "bad" if findings else "doubtful" if summary.left_out else "good"
    document = Document(f"{summary.environment or 'Audit'}: {headline}")
    basis = f"{summary.judgements} judgements of {', '.join(summary.measures)}"
    document.add(
        VerdictBlock(headline, basis, tone), unsandboxed_note(summary.unsandboxed), *_audit(summary)
    )
    return document


def eval_report(summary: EvalSummary) -> Document:
    """Return the report of an evaluation."""
    document = Document(f"{summary.run}: evaluation")
    document.add(unsandboxed_note(summary.unsandboxed), *_figures(summary))
    return document


def comparison_report(
    compared: Row, panels: Mapping[str, Sequence[Curve]], pairs: Mapping[str, Sequence[Any]]
) -> Document:
    """Return the report that compares runs with the first of them."""
    names = list(compared["runs"])
    document = Document(f"{len(names)} runs compared")
    document.add(Heading("Settings that differ"))
    settings = [
        (name, *(shortened(value) for value in values)) for name, values in compared["settings"]
    ]
    document.add(
        Grid(("setting", *names), settings) if settings else Paragraph("none", is_quiet=True),
        Heading("Curves"),
        curves(panels) or Paragraph("none", is_quiet=True),
    )
    for each in compared["differences"]:
        document.add(Heading(f"{each['run']} compared with {names[0]}"))
        if each["reward"] is None:
            document.add(Paragraph(each["sentence"], is_quiet=True))
            continue
        document.add(_verdict(each["standing"], each["sentence"]))
        found = {"reward": each["reward"], **each["measures"]}
        rows = {name: MeasureChange(**row) for name, row in found.items() if row}
        document.add(Paragraph(each["basis"], is_quiet=True), _changes(rows))
        shown = pairs.get(each["run"], ())
        if shown:
            document.add(Heading(_flipped(shown, each["flips"]), 3))
        for flip, one, other in shown:
            document.add(_pair(flip, (one, names[0]), (other, each["run"])))
    return document


# ---------------------------------------------------------------------- proofs


def _changes(differences: Mapping[str, Difference]) -> Grid:
    rows = [
        (
            name + (" (guard)" if isinstance(row, MeasureChange) and row.is_guard else ""),
            f"{row.before:.3f}",
            f"{row.after:.3f}",
            f"{row.value:+.3f}",
            f"{row.low:+.3f} … {row.high:+.3f}",
            str(row.cases),
        )
        for name, row in differences.items()
    ]
    return Grid(("", "before", "after", "difference", "95 % interval", "cases"), rows)


def _what_was_proved(summary: ProveSummary) -> str:
    return (
        f"The base model ({summary.model or 'the agent’s own'}) and the trained one "
        f"({summary.training}, {summary.checkpoint.rpartition('/')[2]}) played the same "
        f"{summary.cases} {summary.split} cases, {summary.rollouts_per_case} rollouts "
        "each."
    )


def _small_print(summary: ProveSummary) -> list[str]:
    lines = []
    if reward := summary.reward:
        lines.append(
            f"The interval is a bootstrap over cases. {reward.differing} of {reward.cases} "
            "cases came out differently; the smallest effect that these cases detect with 80 % "
            f"power is {reward.smallest_effect:.3f}."
        )
        if reward.mcnemar is not None:
            lines.append(f"Exact McNemar test: p = {reward.mcnemar:.4f}.")
    if summary.picked_from > 1:
        lines.append(
            f"Corrected for {summary.picked_from} candidates that were compared on these cases."
        )
    lines.append(f"Run number {summary.proofs_on_these_cases} that measured these cases.")
    if summary.regressed:
        lines.append(f"Got worse without being trained on: {', '.join(summary.regressed)}")
    return lines


def _flipped(shown: Sequence[Any], flips: Sequence[Any]) -> str:
    more = f", of which {len(shown)} are shown" if len(shown) < len(flips) else ""
    return f"Cases that flipped: {len(flips)}{more}"


def _pair(flip: Flip, *sides: tuple[Rollout, str]) -> SideBySide:
    question = shortened(" ".join(question_of(sides[0][0].case).split()), 80)
    title = f"{flip.before:.2f} → {flip.after:.2f}: {question} (case {flip.case})"
    return SideBySide(title, [_column(*side) for side in sides])


def _column(rollout: Rollout, name: str) -> Column:
    lines = []
    for message in rollout.messages:
        text = message.content or ""
        text += "".join(f"\n→ {call.tool}({call.arguments})" for call in message.calls)
        lines.append((message.role, shortened(text.strip() or "(nothing)", _MESSAGE_LENGTH)))
    for judgement in rollout.judgements:
        result = {True: "passed", False: "failed", None: "cannot tell"}[judgement.is_correct]
        lines.append(("verdict", f"{judgement.measure}: {result}: {judgement.verdict.reason}"))
    reward = "none" if rollout.reward is None else f"{rollout.reward:.2f}"
    return Column(f"{name}, reward {reward}", lines)


# ---------------------------------------------------------------------- checks


def _live_groups(summary: CheckSummary) -> list[Block]:
    rows = [
        (
            str(each.group_size),
            _percent(each.value),
            _span(each),
            "planned" if each.group_size == summary.group_size else "",
        )
        for each in sorted(summary.live, key=lambda each: each.group_size)
    ]
    head = ("group size", "live groups", "in the first five steps", "")
    return [Heading("Expected share of live groups"), Grid(head, rows)] if rows else []


def _notes(notes: Sequence[Note]) -> list[Block]:
    if not notes:
        return []
    rows = [
        (
            ("✗ " if note.is_grave else "") + note.what,
            note.message,
            note.advice,
            note.rollout,
        )
        for note in notes
    ]
    return [Heading("What was found"), Grid(("", "what", "what to do", "rollout"), rows)]


def _measure_verdicts(summary: CheckSummary) -> list[Block]:
    rows = [
        (
            each.name,
            f"{each.passed} of {each.scored}",
            _percent(each.live),
            each.movement,
        )
        for each in summary.measures
    ]
    head = ("measure", "passed", f"differs in groups of {summary.group_size}", "")
    return [Heading("Measures that carry reward"), Grid(head, rows)] if rows else []


def _models(models: Sequence[PlayedModel]) -> list[Block]:
    rows = [
        (
            each.name + (" (to be trained)" if each.is_learner else ""),
            str(each.cases),
            str(each.rollouts),
            str(each.correct),
            _percent(each.accuracy),
            _percent(each.any_correct),
            each.message,
        )
        for each in models
    ]
    head = ("model", "cases", "rollouts", "correct", "accuracy", "cases with a correct rollout", "")
    return [Heading("Models"), Grid(head, rows)] if rows else []


def _estimate(estimate: PlanEstimate | None) -> list[Block]:
    if not estimate:
        return []
    step, hours = estimate.seconds_per_step, estimate.hours
    tokens = estimate.sampled_tokens
    rows = [
        ("plan", estimate.plan),
        ("one step", f"{step.value:.1f} s ({step.low:.1f} … {step.high:.1f})"),
        ("the training", _hours(hours)),
        ("the proof after it", duration_text(3600 * estimate.proof_hours)),
        ("tokens sampled", f"{tokens.value:,.0f}"),
        ("memory", f"{estimate.memory / 2**30:.1f} GiB of {estimate.memory_of}"),
    ]
    if cost := estimate.cost:
        rows.append(("cost", f"{cost.value:.2f} ({cost.low:.2f} … {cost.high:.2f})"))
    basis = Paragraph(f"From {estimate.basis}. {estimate.parity}", is_quiet=True)
    return [Heading("Estimate of the training"), Grid(("", ""), rows), basis]


def _hours(hours: Amount) -> str:
    value, low, high = map(duration_text, (3600 * n for n in (hours.value, hours.low, hours.high)))
    return f"{value} ({low} … {high})"


def _figures(figures: Figures) -> list[Block]:
    rows = [
        (
            name,
            _percent(each.pass_rate.value if each.pass_rate else None),
            _span(each.pass_rate) if each.pass_rate else "–",
            f"{each.weight:g}",
            str(each.judged),
        )
        for name, each in figures.measures.items()
    ]
    facts = [
        ("calls parsed", _percent(figures.parse_rate)),
        ("rollouts with a tool call", _percent(figures.called_a_tool)),
        ("truncated", _percent(figures.truncated)),
        (
            "tool failures",
            ", ".join(f"{n} {k}" for k, n in figures.tool_failures.items()) or "0",
        ),
        ("unscored", f"{figures.unscored} of {figures.rollouts}"),
    ]
    return [
        Heading("Measures"),
        Grid(("measure", "passed", "95 % interval", "weight", "judged"), rows),
        Grid(("", ""), facts),
    ]


def _audit(summary: ProveSummary | CheckSummary | AuditSummary) -> list[Block]:
    findings = summary.audit
    if findings is None:
        return []
    notes = [Paragraph(message) for message in summary.left_out]
    if not findings:
        message = (
            "Nothing was found: null players do not pass, and each measure gives the same verdict "
            "when it runs again."
        )
        message = "Nothing was found in what was judged." if notes else message
        return [Heading("Audit of the measures"), *notes, Paragraph(message)]
    rows = [(each.measure, each.fault, each.message, each.rollout) for each in findings]
    return [
        Heading("Audit of the measures"),
        *notes,
        Grid(("measure", "fault", "what", "rollout"), rows),
    ]


def _verdict(word: str, why: str) -> VerdictBlock:
    return VerdictBlock(word, why, _TONES.get(word, "doubtful"))


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _span(row: Share | LiveShare) -> str:
    return f"{_percent(row.low)} … {_percent(row.high)}"
