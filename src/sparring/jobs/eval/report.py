"""Builds the report of an evaluation and reads its rollouts for comparisons, from its folder."""

from __future__ import annotations

from typing import Any

from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import EvalSummary
from sparring.jobs.rollout_reading import read_rollouts
from sparring.reports.document import Document
from sparring.reports.run_reports import eval_report
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_summary


def document(folder: RunFolder) -> Document:
    """Build the report of an evaluation."""
    return eval_report(read_summary(folder, EvalSummary))


def comparable(folder: RunFolder, spec: dict[str, Any]) -> dict[str, list[Rollout]]:
    """Return all rollouts, under the split of the evaluation."""
    return {str(spec["split"]): read_rollouts(folder.rollout_logs())}
