"""Writes the results of a proof or a shipment as a small card in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sparring.contracts.summaries import ArtefactRow, ProveSummary, ShipSummary
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import find_summary

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def card_of(folder: RunFolder) -> str:
    """Return the card of a run; empty if it is neither a proof nor a shipment with results."""
    if proof := find_summary(folder, ProveSummary):
        return _card(proof.environment or folder.id, proof.verdict, _proof_parts(proof))
    if shipment := find_summary(folder, ShipSummary):
        return _card(shipment.name, shipment.verdict, _ship_parts(shipment))
    return ""


def _card(name: str, verdict: str, parts: Sequence[str]) -> str:
    title = f"# {_plain(name)}: {_plain(verdict)}"
    return "\n\n".join([title, *filter(None, parts)]) + "\n"


def _proof_parts(proof: ProveSummary) -> list[str]:
    rows = [
        (
            name,
            f"{row.before:.3f}",
            f"{row.after:.3f}",
            f"{row.value:+.3f}",
            f"{row.low:+.3f} … {row.high:+.3f}",
            str(row.cases),
        )
        for name, row in proof.differences.items()
    ]
    played = (
        f"The base model ({proof.model or 'the agent’s own'}) and the trained one "
        f"({proof.training}, {proof.checkpoint.rpartition('/')[2]}) played the same {proof.cases} "
        f"{proof.split} cases, {proof.rollouts_per_case} rollouts each."
    )
    head = ("", "before", "after", "difference", "95 % interval", "cases")
    return [
        f"**{_plain(proof.verdict)}**: {_plain(proof.sentence)}",
        _plain(played),
        _table(head, rows),
    ]


def _ship_parts(shipment: ShipSummary) -> list[str]:
    about = (
        f"Checkpoint {shipment.checkpoint} of run {shipment.training}, trained from "
        f"{shipment.model}; its proof: {shipment.proof_verdict}."
    )
    parts = [
        f"**{_plain(shipment.verdict)}**: {_plain(shipment.sentence)}",
        _plain(shipment.problem),
        _plain(about),
        *map(_plain, shipment.warnings),
        _table(("file", "MB", "mean gap", "KL", "validation"), map(_line, shipment.artefacts)),
    ]
    if held_out := shipment.held_out:
        likeness = f"Held-out cases, played by {held_out.artefact}: {held_out.likeness}"
        parts.append(_plain(f"{likeness}, {held_out.sentence}; {held_out.against_base}"))
    return parts


def _line(row: ArtefactRow) -> tuple[str, ...]:
    gap, played = row.gap, row.validation
    return (
        row.path,
        f"{row.size / 1e6:.1f}",
        f"{gap.mean:.1e}" if gap else "–",
        f"{gap.kl:.1e}" if gap else "–",
        played.likeness if played else "not played",
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(map(_plain, row)) + " |" for row in rows]
    dashes = "|---" * len(head) + "|"
    return "\n".join(["| " + " | ".join(head) + " |", dashes, *lines]) if lines else ""


def _plain(text: str) -> str:
    """Join the text into one line, escape Markdown and HTML, and show control characters."""
    escaped = re.sub(r"([\\`*_<>\[\]|&])", r"\\\1", " ".join(text.split()))
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", escaped)
