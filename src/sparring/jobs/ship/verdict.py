"""The verdict of a shipment and its summary; the choice of the artefact for held-out cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparring.contracts.kinds import Form
from sparring.contracts.specs import FORMAT
from sparring.contracts.summaries import ArtefactRow, HeldOutRow, ShipSummary
from sparring.jobs.ship.context import ShipContext
from sparring.shipping.artefacts import Artefact

REFUSED = "refused"


@dataclass(slots=True)
class ShipVerdict:
    """The outcome of a shipment; commands and uploads are added when the folder is published."""

    verdict: str
    sentence: str
    problem: str = ""
    is_fine: bool = False
    held_out: HeldOutRow | None = None
    commands: Mapping[str, str] = field(default_factory=dict)
    agent_lines: str = ""
    uploads: Sequence[str] = ()


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
    rows: Mapping[str, ArtefactRow],
    chosen: Artefact,
    held_out: HeldOutRow | None,
    *,
    is_proved: bool,
) -> ShipVerdict:
    """Return the verdict on held-out cases or, if none were played, on validation cases. `is_fine`
    is false if the artefact is worse than the checkpoint, if a proved improvement is no longer
    shown, if more than a tenth of the cases could not be scored, or if an artefact plays worse on
    another server."""
    verdict = _verdict_of(rows, chosen, held_out, is_proved=is_proved)
    for name, row in rows.items():
        for server, played in row.servers.items():
            if played.likeness == "worse":
                verdict.is_fine = False
                verdict.problem = f"{name} on {server}, validation cases: {played.sentence}"
    return verdict


def _verdict_of(
    rows: Mapping[str, ArtefactRow],
    chosen: Artefact,
    held_out: HeldOutRow | None,
    *,
    is_proved: bool,
) -> ShipVerdict:
    if held_out is not None:
        sentence = f"{chosen.name} on held-out cases: {held_out.sentence}; "
        sentence += f"compared with the base, {held_out.against_base}"
        is_fine = held_out.is_fine and (held_out.is_improved or not is_proved)
        return ShipVerdict(held_out.likeness, sentence, is_fine=is_fine, held_out=held_out)
    played = rows[chosen.name].validation
    if played is not None:
        sentence = f"{chosen.name} on validation cases: {played.sentence}"
        return ShipVerdict(played.likeness, sentence, is_fine=played.is_fine)
    return ShipVerdict(
        "checked", "prompts and log-probabilities agree; no case was played", is_fine=True
    )


def summary_of(shipping: ShipContext, verdict: ShipVerdict, seconds: float) -> ShipSummary:
    """Return the summary. A refused shipment and a trial have no folder and no commands."""
    spec = shipping.spec
    is_delivered = verdict.verdict != REFUSED and not spec.trial
    proof = shipping.proof_summary()
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
        to=str(shipping.ship.place.resolve()) if is_delivered else "",
        verdict=verdict.verdict,
        sentence=verdict.sentence,
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
