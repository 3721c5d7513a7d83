"""The summary of a shipment, the source of its report, its tables and its `--json` output."""

from __future__ import annotations

from sparring.contracts.specs import FORMAT
from sparring.contracts.summaries import ShipSummary
from sparring.jobs.ship.context import ShipContext
from sparring.jobs.ship.verdict import REFUSED, ShipVerdict


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
        commands=dict(verdict.commands) if is_delivered else {},
        agent_lines=verdict.agent_lines if is_delivered else "",
        uploads=tuple(verdict.uploads),
        unsandboxed=spec.play.unsandboxed,
        seconds=round(seconds, 1),
    )
