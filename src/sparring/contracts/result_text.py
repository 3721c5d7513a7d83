"""The text of results that the terminal and the Markdown cards share: tables and sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparring.contracts.progress import counted
from sparring.contracts.summaries import ArtefactRow, MeasureChange, ProveSummary

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of text. The columns in `texts` hold words, which may be long; all others hold
    figures. If there is no room, the columns in `optional` are left out, the first one first."""

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    texts: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def without(self, head: str) -> Grid:
        """Return the table without a column."""
        at = self.heads.index(head)
        heads, *rows = ((*row[:at], *row[at + 1 :]) for row in (self.heads, *self.rows))
        return Grid(heads, rows, self.texts, self.optional)


def markdown_table(grid: Grid) -> str:
    """Return the table in Markdown."""
    rows = (grid.heads, ["---"] * len(grid.heads), *grid.rows)
    return "\n".join(f"| {' | '.join(map(markdown_text, row))} |" for row in rows)


def markdown_text(text: str) -> str:
    """Join the text into one line, escape Markdown and HTML, and show control characters."""
    escaped = re.sub(r"([\\`*_<>\[\]|&])", r"\\\1", " ".join(text.split()))
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", escaped)


# ---------------------------------------------------------------------- proofs


def difference_grid(proof: ProveSummary) -> Grid:
    """Return the differences between base and trained model."""
    rows = [
        (
            f"{name} (guard)" if isinstance(row, MeasureChange) and row.is_guard else name,
            f"{row.before:.3f}",
            f"{row.after:.3f}",
            f"{row.value:+.3f}",
            f"{row.low:+.3f} … {row.high:+.3f}",
            str(row.cases),
        )
        for name, row in proof.differences.items()
    ]
    heads = ("", "base", "trained", "difference", "95 % interval", "cases")
    return Grid(heads, rows, texts=("",))


def proof_basis(proof: ProveSummary) -> list[str]:
    """Return sentences on what was played, and on everything that qualifies the verdict."""
    base = (proof.model or "the agent’s own").rpartition("/")[2]  # cards must show no local folder
    sentences = [
        f"The base model ({base}) and the trained one ({proof.training}, "
        f"{proof.checkpoint.rpartition('/')[2]}) played the same {proof.cases} {proof.split} "
        f"cases, {counted(proof.rollouts_per_case, 'rollout')} each, at temperature "
        f"{proof.temperature:g}."
    ]
    if reward := proof.reward:
        differing = f"{reward.differing} of {reward.cases} cases came out differently"
        if proof.verdict == "not shown":
            differing += (
                f"; these cases rarely show a difference below {reward.smallest_effect:.3f}"
            )
        sentences.append(f"{differing}.")
        if reward.mcnemar is not None:
            sentences.append(f"Exact McNemar test: p = {reward.mcnemar:.4f}.")
    if proof.picked_from > 1:
        sentences.append(
            f"The interval is corrected for {proof.picked_from} candidates on the same cases."
        )
    if proof.proofs_on_these_cases > 1:
        sentences.append(
            f"This is run number {proof.proofs_on_these_cases} that measured these cases. Each "
            "makes a lucky result likelier, so the interval is corrected for all recorded "
            "candidates."
        )
    unscored = {side: count for side, count in (proof.unscored or {}).items() if count}
    if unscored:
        counts = ", ".join(f"{count} of {side}" for side, count in unscored.items())
        sentences.append(f"Rollouts that could not be scored: {counts}.")
    return sentences


# ---------------------------------------------------------------------- shipments


ARTEFACT_LEGEND = (
    "gap: mean difference in log-probability from the checkpoint, at sampled tokens; reward and "
    "same answers: on validation cases, compared with the checkpoint"
)


def artefact_grid(artefacts: Sequence[ArtefactRow]) -> Grid:
    """Return one row for each file that was shipped; `ARTEFACT_LEGEND` explains the columns."""
    rows = []
    for artefact in artefacts:
        gap, played = artefact.gap, artefact.validation
        reward = played.mean_reward if played else None
        rows.append(
            (
                artefact.path,
                f"{artefact.size / 1e6:.1f}",
                f"{gap.mean:.1e}" if gap else "–",
                "–" if reward is None else f"{reward:.2f}",
                f"{played.same_answers} of {played.rollouts}" if played else "–",
                ", ".join(artefact.played_by),
            )
        )
    heads = ("file", "MB", "gap", "reward", "same answers", "played by")
    return Grid(heads, rows, texts=("file", "played by"))
