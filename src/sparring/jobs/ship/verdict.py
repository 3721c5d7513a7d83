"""The verdict of a shipment and its summary; the choice of the artefact for held-out cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparring.contracts.kinds import Form
from sparring.contracts.specs import FORMAT
from sparring.contracts.summaries import ArtefactRow, HeldOutRow, ShipSummary
from sparring.jobs.ship.context import ShipContext
from sparring.shipping.artefacts import Artefact


@dataclass(slots=True)
class ShipVerdict:
    """The outcome of a shipment. `comparison` tells how the chosen artefact plays, compared with
    checkpoint and base; `problem` is the fault of a shipment that is refused, or not fine. Commands
    and uploads are added when the folder is published."""

    comparison: str = ""
    problem: str = ""
    is_refused: bool = False
    held_out: HeldOutRow | None = None
    commands: Mapping[str, str] = field(default_factory=dict)
    agent_lines: str = ""
    uploads: Sequence[str] = ()

    @property
    def is_fine(self) -> bool:
        """Whether nothing is at fault with the artefacts."""
        return not self.problem


def choose(
    artefacts: Sequence[Artefact], rows: Mapping[str, ArtefactRow], *, is_compared: bool
) -> Artefact:
    """Return the artefact that plays held-out cases: the first GGUF file, or without one the merged
    model, or else the adapter.

    With `is_compared`, the choice among GGUF files is the smallest without a warning whose
    validation result is "equal", then the smallest with "cannot tell", then the largest.
    """
    files = [each for each in artefacts if each.form is Form.GGUF]
    if not files:
        return next((each for each in artefacts if each.form is Form.MERGED), artefacts[0])
    if not is_compared:
        return files[0]
    by_size = sorted(files, key=lambda each: each.size)
    for likeness in ("equal", "cannot tell"):
        for each in by_size:
            row = rows[each.name]
            if row.validation and row.validation.likeness == likeness and not row.warning:
                return each
    return by_size[-1]


def verdict_of(
    rows: Mapping[str, ArtefactRow], chosen: Artefact, held_out: HeldOutRow | None
) -> ShipVerdict:
    """Return how the chosen artefact plays on held-out cases or, if none were played, on validation
    cases. Its problem is that an artefact plays worse than the checkpoint, also on another server,
    or that more than a tenth of the cases could not be scored."""
    problem = ""
    if held_out is not None:
        comparison = f"{chosen.name} on held-out cases: {held_out.sentence}; "
        comparison += f"compared with the base, {held_out.against_base}"
        if not held_out.is_fine:
            problem = f"{chosen.name} on held-out cases: {held_out.missing or held_out.sentence}"
    elif (played := rows[chosen.name].validation) is not None:
        comparison = f"{chosen.name} on validation cases: {played.sentence}"
        if not played.is_fine:
            problem = f"{chosen.name} on validation cases: {played.missing or played.sentence}"
    else:
        comparison = "prompts and log-probabilities agree; no case was played"
    for name, row in rows.items():
        for server, played in row.servers.items():
            if played.likeness == "worse":
                problem = f"{name} on {server}, validation cases: {played.sentence}"
    return ShipVerdict(comparison, problem, held_out=held_out)


def headline(verdict: ShipVerdict, place: str, count: int, *, is_trial: bool) -> tuple[str, str]:
    """Return the verdict in a word or two, and a sentence on what was written."""
    if verdict.is_refused:
        return "refused", "an artefact is faulty; no folder was written"
    forms = "1 form" if count == 1 else f"{count} forms"
    if is_trial:
        word = "tried" if verdict.is_fine else "not as good"
        return word, f"{forms} of the model verified and played; no folder was written"
    if verdict.is_fine:
        return "shipped", f"{forms} of the model written to {place}, each verified"
    return "not as good", f"{forms} of the model written to {place}, but see the problem"


def summary_of(shipping: ShipContext, verdict: ShipVerdict, seconds: float) -> ShipSummary:
    """Return the summary. A refused shipment and a trial have no folder and no commands."""
    spec = shipping.spec
    is_delivered = not verdict.is_refused and not spec.trial
    proof = shipping.proof_summary()
    place = str(shipping.ship.place.resolve()) if is_delivered else ""
    word, sentence = headline(verdict, place, len(shipping.rows), is_trial=spec.trial)
    return ShipSummary(
        format=FORMAT,
        kind="ship",
        run=shipping.folder.id,
        environment=spec.environment,
        training=spec.run,
        checkpoint=shipping.checkpoint.path.name,
        model=shipping.source.base,
        name=shipping.name,
        proof=spec.proof,
        proof_verdict=proof.verdict if proof else "unproven",
        is_trial=spec.trial,
        to=place,
        verdict=word,
        sentence=sentence,
        comparison=verdict.comparison,
        problem=verdict.problem,
        is_fine=verdict.is_fine,
        margin=spec.margin,
        warnings=tuple(shipping.warnings),
        artefacts=tuple(shipping.rows.values()),
        held_out=verdict.held_out,
        without_examples=shipping.without_examples,
        commands=dict(verdict.commands) if is_delivered else {},
        agent_lines=verdict.agent_lines if is_delivered else "",
        uploads=tuple(verdict.uploads),
        unsandboxed=spec.play.unsandboxed,
        seconds=round(seconds, 1),
    )
