"""Writes the results of a proof as a small card in Markdown."""

from __future__ import annotations

from sparring.contracts.result_text import (
    difference_grid,
    markdown_table,
    markdown_text,
    proof_basis,
)
from sparring.contracts.summaries import ProveSummary


def proof_card(proof: ProveSummary) -> str:
    """Return the verdict, the differences, and what they are based on."""
    verdict = markdown_text(proof.verdict)
    parts = (
        f"# {markdown_text(proof.environment or proof.run)}: {verdict}",
        f"**{verdict}**: {markdown_text(proof.sentence)}",
        markdown_table(difference_grid(proof)),
        " ".join(map(markdown_text, proof_basis(proof))),
    )
    return "\n\n".join(parts) + "\n"
