"""Writes the results of a proof as a small card in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparring.contracts.summaries import ProveSummary

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_HEAD = ("", "before", "after", "difference", "95 % interval", "cases")


def proof_card(proof: ProveSummary) -> str:
    """Return the verdict, what was played, and the differences."""
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
    parts = (
        f"# {_plain(proof.environment or proof.run)}: {_plain(proof.verdict)}",
        f"**{_plain(proof.verdict)}**: {_plain(proof.sentence)}",
        _plain(played),
        "\n".join(map(_row, (_HEAD, ["---"] * len(_HEAD), *rows))),
    )
    return "\n\n".join(parts) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_plain, cells)) + " |"


def _plain(text: str) -> str:
    """Join the text into one line, escape Markdown and HTML, and show control characters."""
    escaped = re.sub(r"([\\`*_<>\[\]|&])", r"\\\1", " ".join(text.split()))
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", escaped)
