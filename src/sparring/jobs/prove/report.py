"""Builds the report of a proof and reads its rollouts for comparisons, from its run folder."""

from __future__ import annotations

from typing import Any

from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import ProveSummary
from sparring.jobs.rollout_reading import read_rollout, read_rollouts
from sparring.jobs.train.report import training_facts
from sparring.reports.document import Document
from sparring.reports.run_reports import proof_report
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_summary

_FLIPS = 12


def document(folder: RunFolder) -> Document:
    """Build the report of a proof, with flipped cases and facts about the training run."""
    summary = read_summary(folder, ProveSummary)
    training = RunFolder(folder.path.parent / summary.training)
    pairs = [
        (
            flip,
            read_rollout(folder, "base", flip.base),
            read_rollout(folder, "trained", flip.trained),
        )
        for flip in summary.flips[:_FLIPS]
    ]
    facts = training_facts(training) if training.spec.is_file() else None
    return proof_report(summary, pairs, facts)


def comparable(folder: RunFolder, spec: dict[str, Any]) -> dict[str, list[Rollout]]:
    """Return the rollouts of the trained model, under the split of the proof."""
    return {str(spec["split"]): read_rollouts([folder.rollouts_of("trained")])}
