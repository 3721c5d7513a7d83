"""What a terminal shows of the summary of each kind of run, and of a comparison of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sparring.contracts.progress import counted, duration_text
from sparring.contracts.result_text import (
    ARTEFACT_LEGEND,
    Grid,
    artefact_grid,
    difference_grid,
    proof_basis,
)
from sparring.contracts.summaries import (
    AuditSummary,
    CaseBand,
    CheckSummary,
    EvalSummary,
    MeasureVerdict,
    Note,
    PlanEstimate,
    PlayedModel,
    ProveSummary,
    Reason,
    Share,
    ShipSummary,
    TrainSummary,
)
from sparring.operations.reporting import Comparison
from sparring.run_folder.layout import short_id
from sparring.surfaces.cli.next_steps import (
    after_check,
    after_eval,
    after_look,
    after_proof,
    after_shipment,
    after_training,
)
from sparring.surfaces.cli.page import (
    BAD,
    DIM,
    DOUBTFUL,
    GOOD,
    FactList,
    Paragraph,
    Part,
    Styled,
    advice,
    commands,
    headline,
    remark,
)

_STYLES = {
    "learnable": GOOD,
    "better": GOOD,
    "shipped": GOOD,
    "tried": GOOD,
    "not as it is": DOUBTFUL,
    "not shown": DOUBTFUL,
    "too easy": DOUBTFUL,
    "too hard": DOUBTFUL,
}
_MOVEMENTS = {"can be learned": "green", "already passed": DIM, "constant": "yellow"}
_BAR = 12
_QUESTION = 40
_MOST_CASES = 24


def check_parts(summary: CheckSummary) -> Iterator[Part]:
    """Return the verdict, each measure, what was noticed, the cases and the estimate."""
    yield headline(summary.verdict, summary.why, _STYLES.get(summary.verdict, BAD))
    if summary.measures:
        yield _measure_verdicts(summary.measures, summary.group_size)
        yield remark(_passed_all(summary))
    yield from _notes(summary.notes)
    if summary.live:
        yield _live_shares(summary)
    if summary.cases:
        yield _case_bands(summary.cases)
    if len(summary.models) > 1:
        yield _played_models(summary.models)
    if summary.estimate:
        yield _estimate(summary.estimate)
    if not summary.audit:
        yield remark("the audit of the measures found nothing")
    yield from commands(after_check(summary))


def audit_parts(summary: AuditSummary) -> Iterator[Part]:
    """Return the findings of an audit of measures."""
    verdict = counted(len(summary.audit), "finding") if summary.audit else "nothing found"
    if not summary.has_passed:
        verdict += ", some serious"
    style = BAD if summary.audit else DOUBTFUL if summary.left_out else GOOD
    yield headline(
        verdict,
        f"{', '.join(summary.measures)} made {summary.judgements} judgements of answers by up to "
        "eleven null players, of which two give the expected answer",
        style,
    )
    for message in summary.left_out:
        yield _remarkable(message)
    yield from _notes(
        Note(found.measure, found.message, found.advice, found.rollout, found.is_grave)
        for found in summary.audit
    )
    yield from commands(after_look(summary.run))


def proof_parts(summary: ProveSummary) -> Iterator[Part]:
    """Return the verdict of a proof, the differences, and the remaining failures."""
    is_good = summary.is_good or not summary.has_passed
    style = _STYLES.get(summary.verdict, BAD) if is_good else DOUBTFUL
    yield headline(summary.verdict, summary.sentence, style)
    yield difference_grid(summary)
    yield remark(" ".join([*proof_basis(summary), f"It took {duration_text(summary.seconds)}."]))
    for failure in summary.still_fails:
        times = counted(failure.count, "time")
        yield Paragraph(f"still fails {failure.measure} {times}, as in: {failure.reason[:100]}")
    for flip in [flip for flip in summary.flips if flip.after < flip.before][:3]:
        yield Paragraph(f"got worse, {flip.before:.2f} → {flip.after:.2f}: case {flip.case}")
    yield from commands(after_proof(summary))


def shipment_parts(summary: ShipSummary) -> Iterator[Part]:
    """Return what was written, each file, and how the model plays."""
    yield headline(summary.verdict, summary.sentence, _STYLES.get(summary.verdict, BAD))
    if summary.problem:
        yield Paragraph(summary.problem, "red", lead="✗ ", lead_style="red")
    for warning in summary.warnings:
        yield _remarkable(warning)
    if summary.artefacts:
        yield artefact_grid(summary.artefacts)
        yield remark(ARTEFACT_LEGEND)
    for row in summary.artefacts:
        if row.warning:
            yield _remarkable(f"{row.name}: {row.warning}")
    if summary.comparison:
        yield Paragraph(summary.comparison)
    if (compared := summary.without_examples) is not None:
        yield Paragraph(f"The checkpoint's mean reward {compared.sentence}")
        yield remark("Send the worked examples before each question, as how_to_run.md shows.")
    for line in summary.uploads:
        yield remark(line)
    yield from commands(after_shipment(summary))


def eval_parts(summary: EvalSummary) -> Iterator[Part]:
    """Return the pass rates and figures of an evaluation, and why rollouts failed."""
    setup = (
        f" on {summary.cases} {summary.split} cases × {summary.rollouts_per_case}, "
        f"temperature {summary.temperature:g}"
    )
    yield Paragraph(setup, lead=f"\n{summary.policy}", lead_style="bold")
    yield from _unsandboxed(is_unsandboxed=summary.unsandboxed)
    yield _measures(summary)
    for name, measure in summary.measures.items():
        if not measure.judged:
            yield Paragraph(f"{name} could not judge any rollout", BAD)
    yield _figures(summary)
    for name, measure in summary.measures.items():
        yield from _reasons(f"why {name} did not pass", measure.reasons_for_failing)
    yield from _reasons("why rollouts ended without an answer", summary.causes)
    yield from commands(after_eval(summary))


def training_parts(summary: TrainSummary) -> Iterator[Part]:
    """Return the last step, the validations and the weights of a training run."""
    yield Paragraph(f": {summary.plan}", lead=f"\n{summary.model}", lead_style="bold")
    yield from _unsandboxed(is_unsandboxed=summary.unsandboxed)
    yield FactList(list(_training_facts(summary)))
    yield from commands(after_training(summary))


def comparison_parts(found: Comparison) -> Iterator[Part]:
    """Return the settings that differ between runs, and their differences in reward."""
    if found.settings:
        heads = ("setting", *map(short_id, found.runs))
        rows = [(name, *map(str, values)) for name, values in found.settings]
        yield Grid(heads, rows, texts=heads)
    else:
        yield remark("no setting differs")
    for row in found.differences:
        verdict = row["standing"]
        why = f"{row['run']} compared with {found.runs[0]}: {row['sentence']}"
        yield headline(verdict, why, _STYLES.get(verdict, BAD))
        yield remark(row["basis"])
        for flip in row["flips"][:5]:
            yield Paragraph(f"case {flip['case']}: {flip['before']:.2f} → {flip['after']:.2f}")
    if found.html:
        yield remark(found.html)


# ---------------------------------------------------------------------- shared


def _remarkable(text: str) -> Paragraph:
    return Paragraph(text, lead="● ", lead_style=DOUBTFUL)


def _notes(notes: Iterator[Note] | Sequence[Note]) -> Iterator[Part]:
    for note in notes:
        mark, style = ("✗", BAD) if note.is_grave else ("●", DOUBTFUL)
        rollout = f"  {note.rollout}" if note.rollout else ""
        lead = f"{mark} {note.what}"
        yield Paragraph(f": {note.message}{rollout}", lead=lead, lead_style=style)
        if note.advice:
            yield advice(note.advice)


def _unsandboxed(*, is_unsandboxed: bool) -> Iterator[Part]:
    if is_unsandboxed:
        yield Paragraph("code that the model wrote ran without a sandbox (unsandboxed=true)", BAD)


def _share(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:.{digits}%}"


# ---------------------------------------------------------------------- checks


def _measure_verdicts(measures: Sequence[MeasureVerdict], group_size: int) -> Styled:
    rows = []
    for measure in measures:
        is_rare = measure.movement == "never passes" and measure.passed
        movement = "hardly ever passes" if is_rare else str(measure.movement)
        passed = f"{measure.passed} of {measure.scored}"
        rows.append((measure.name, passed, _share(measure.live), movement))
    differs = f"differs in groups of {group_size}"
    grid = Grid(("measure", "passed", differs, ""), rows, texts=("measure", ""))
    return Styled(grid, {row[3]: _MOVEMENTS.get(row[3], "red") for row in rows})


def _passed_all(summary: CheckSummary) -> str:
    passed = sum(case.passed for case in summary.cases)
    rollouts = sum(case.rollouts for case in summary.cases)
    count = len(summary.measures)
    measures = {1: "the measure", 2: "both measures"}.get(count, f"all {count} measures")
    return f"{passed} of {rollouts} rollouts pass {measures}"


def _live_shares(summary: CheckSummary) -> Styled:
    rows = []
    for row in sorted(summary.live, key=lambda row: row.group_size):
        planned = "planned" if row.group_size == summary.group_size else ""
        interval = f"{row.low:.0%} … {row.high:.0%}"
        rows.append((str(row.group_size), _share(row.value), interval, planned))
    heads = ("group size", "live groups", "in the first five steps", "")
    return Styled(Grid(heads, rows, texts=("",)), {"planned": "bold"})


def _case_bands(cases: Sequence[CaseBand]) -> Grid:
    rows = []
    for case in cases[:_MOST_CASES]:
        question = " ".join((case.question or case.case).split())
        if len(question) > _QUESTION:
            question = f"{question[: _QUESTION - 1]}…"
        passed = f"{case.passed} of {case.rollouts}"
        interval = f"{case.low:.0%} … {case.high:.0%}"
        rows.append((question, passed, interval, _band(case.low, case.high)))
    heads = ("case", "passed", "pass rate", "")
    return Grid(heads, rows, texts=("case",))


def _band(low: float, high: float) -> str:
    first, last = int(low * _BAR), min(_BAR - 1, int(high * _BAR))
    return "".join("━" if first <= cell <= last else "·" for cell in range(_BAR))


def _played_models(models: Sequence[PlayedModel]) -> Styled:
    rows = [
        (
            f"{model.name} (see above)" if model.message else model.name,
            str(model.cases),
            f"{model.correct} of {model.rollouts}",
            _share(model.accuracy),
            _share(model.any_correct),
            duration_text(model.seconds),
        )
        for model in models
    ]
    heads = ("model", "cases", "correct", "accuracy", "any correct", "time")
    learner = {model.name: "bold" for model in models if model.is_learner}
    return Styled(Grid(heads, rows, texts=("model",)), learner)


def _estimate(estimate: PlanEstimate) -> FactList:
    step, hours = estimate.seconds_per_step, estimate.hours
    low, high = duration_text(3600 * hours.low), duration_text(3600 * hours.high)
    rows = [
        ("the planned run", estimate.plan),
        ("a step takes", f"{step.value:.1f} s ({step.low:.1f} … {step.high:.1f})"),
        ("the whole run takes", f"{duration_text(3600 * hours.value)} ({low} … {high})"),
    ]
    if alone := estimate.hours_alone:
        cores = f"this check had {estimate.cores_had:.1f} of its cores"
        rows.append(("on an idle machine", f"{duration_text(3600 * alone)}; {cores}"))
    if proof := estimate.proof_hours:
        rows.append(("the proof after it", duration_text(3600 * proof)))
    rows.append(("tokens sampled", f"{estimate.sampled_tokens.value:,.0f}"))
    rows.append(("memory", f"{estimate.memory / 2**30:.1f} GiB of {estimate.memory_of}"))
    if cost := estimate.cost:
        rows.append(("cost", f"{cost.value:.2f} ({cost.low:.2f} … {cost.high:.2f})"))
    rows.append(("based on", estimate.basis))
    return FactList(rows)


# ---------------------------------------------------------------------- evaluations


def _measures(summary: EvalSummary) -> Grid:
    rows = []
    for name, measure in summary.measures.items():
        rate = measure.pass_rate
        rows.append(
            (
                name,
                _share(rate.value if rate else None, 1),
                f"{rate.low:.1%} … {rate.high:.1%}" if rate else "–",
                _marked_band(rate) if rate else "",
                f"{measure.weight:g}" if measure.weight else "shown",
                str(measure.judged),
                str(measure.cannot_tell or ""),
            )
        )
    heads = ("measure", "passed", "95 % interval", "", "weight", "judged", "unsure")
    return Grid(heads, rows, texts=("measure",), optional=("",))


def _marked_band(rate: Share) -> str:
    """Draw the interval as a line and the rate as a mark on it."""
    cells = list(_band(rate.low, rate.high))
    cells[min(_BAR - 1, int(rate.value * _BAR))] = "●"
    return "".join(cells)


def _figures(summary: EvalSummary) -> FactList:
    tokens, seconds = summary.tokens, summary.seconds
    rate = f", {tokens.sampled / seconds:.0f} a second" if seconds else ""
    rows = [
        ("reward", "–" if summary.reward is None else f"{summary.reward:.3f}"),
        ("endings", _counts(summary.endings)),
        ("calls parsed", _share(summary.parse_rate, 1)),
        ("called a tool", _share(summary.called_a_tool, 1)),
        ("tool calls", _counts(summary.tool_calls)),
        ("tool failures", _counts(summary.tool_failures)),
        ("truncated", _share(summary.truncated, 1)),
    ]
    if summary.unscored:
        rows.append(("unscored", f"{summary.unscored} of {summary.rollouts}"))
    rows.append(("tokens", f"{tokens.sampled:,} sampled{rate}; {tokens.prompt:,} of prompts"))
    rows.append(("time", f"{seconds:.1f} s"))
    if summary.hung_tools:
        rows.append(("hung tools", _counts(Counter(summary.hung_tools))))
    return FactList(rows)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def _reasons(title: str, reasons: Sequence[Reason]) -> Iterator[Part]:
    """Return how often each kind of reason occurred, with one example in full."""
    if reasons:
        yield remark(title)
    rows = []
    for reason in reasons:
        like = "like " if reason.count > 1 and reason.reason != reason.shape else ""
        rows.append((f"{reason.count:6} ×", like + reason.reason))
    yield FactList(rows)


# ---------------------------------------------------------------------- trainings


def _training_facts(summary: TrainSummary) -> Iterator[tuple[str, str]]:
    if last := summary.last:
        reward = f"{last['reward']:.3f}" if "reward" in last else "–"
        yield "last step", f"loss {last['loss']:+.3f}, reward {reward}"
        for name, rate in last.items():
            if name.startswith("pass_rate/"):
                yield name.removeprefix("pass_rate/"), f"{rate:.1%} passed"
    for row in summary.validation:
        scored = row["rollouts"] * (1 - row.get("unscored", 0.0))
        result = f"reward {row['reward']:.3f} on {scored:.0f} cases"
        if row.get("unscored"):
            result += f"; {row['rollouts'] - scored:.0f} more could not be scored"
        warm = " (after the warm start)" if summary.warm_start and not row["step"] else ""
        yield f"validation at step {row['step']}{warm}", result
    if warm_start := summary.warm_start:
        yield "warm start", f"{warm_start['demonstrations']} demonstrations"
    if weights := summary.best_checkpoint or summary.last_checkpoint:
        is_best = summary.best_score is not None
        why = f", the best on validation ({summary.best_score:.3f})" if is_best else ""
        yield "weights", f"{Path(weights).name}{why}"
    yield "time", f"{duration_text(summary.seconds)} for {summary.steps} steps"
    yield from summary.links.items()
