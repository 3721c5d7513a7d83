"""Builds the report of a shipment: verdict, files compared with the checkpoint, and commands."""

from __future__ import annotations

from collections.abc import Sequence

from sparring.contracts.summaries import ArtefactRow, ShipSummary
from sparring.reports.document import (
    Document,
    Grid,
    Heading,
    Paragraph,
    Picture,
    VerdictBlock,
    unsandboxed_note,
)
from sparring.reports.pictures import artefacts_picture

_TONES = {"equal": "good", "checked": "good", "worse": "bad", "refused": "bad"}


def ship_report(summary: ShipSummary) -> Document:
    """Return the report of a shipment, from its summary."""
    document = Document(f"{summary.name}: {summary.verdict}")
    tone = _TONES.get(summary.verdict, "doubtful")
    if tone == "good" and not summary.is_fine:
        tone = "doubtful"
    document.add(VerdictBlock(summary.verdict, summary.sentence, tone))
    if summary.problem:
        document.add(Paragraph(summary.problem))
    document.add(
        Paragraph(
            f"Checkpoint {summary.checkpoint} of run {summary.training}, trained from "
            f"{summary.model}; its proof: {summary.proof_verdict}."
        )
    )
    document.add(unsandboxed_note(summary.unsandboxed))
    document.add(*(Paragraph(warning) for warning in summary.warnings))
    if rows := summary.artefacts:
        document.add(Heading("Files compared with the checkpoint"), _files(rows), _picture(rows))
        document.add(*(Paragraph(row.warning) for row in rows if row.warning))
    if held_out := summary.held_out:
        document.add(
            Heading(f"Held-out cases, played by {held_out.artefact}"),
            Paragraph(f"{held_out.likeness}: {held_out.sentence}"),
            Paragraph(f"Compared with the base: {held_out.against_base}."),
            Paragraph(
                f"Margin {summary.margin:g}; {held_out.rollouts} rollouts; candidates "
                f"measured on these cases so far: {held_out.looks}.",
                is_quiet=True,
            ),
        )
    if summary.commands:
        commands = list(summary.commands.items())
        document.add(Heading("How to run it"), Grid(("program", "command"), commands))
    return document


def _files(rows: Sequence[ArtefactRow]) -> Grid:
    head = (
        "file",
        "MB",
        "prompts",
        "mean gap",
        "largest",
        "KL",
        "mean reward",
        "validation",
        "server",
    )
    return Grid(head, [_line(row) for row in rows])


def _line(row: ArtefactRow) -> tuple[str, ...]:
    gap, played = row.gap, row.validation
    reward = played.mean_reward if played else None
    return (
        row.path,
        f"{row.size / 1e6:.1f}",
        str(row.prompts.conversations),
        f"{gap.mean:.1e}" if gap else "–",
        f"{gap.largest:.1e}" if gap else "–",
        f"{gap.kl:.1e}" if gap else "–",
        "–" if reward is None else f"{reward:.2f}",
        played.likeness if played else "not played",
        ", ".join(row.played_by),
    )


def _picture(rows: Sequence[ArtefactRow]) -> Picture | None:
    points = [
        (row.name, row.size / 1e6, row.validation.mean_reward, row.validation.seconds)
        for row in rows
        if row.validation is not None and row.validation.mean_reward is not None
    ]
    caption = "Mean reward on validation cases by size on disk; the number is seconds of play"
    return artefacts_picture(points, caption)
