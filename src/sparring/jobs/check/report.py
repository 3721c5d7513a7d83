"""Builds the report of a check and reads its rollouts for comparisons, from its run folder."""

from __future__ import annotations

from typing import Any

from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import CheckSummary
from sparring.jobs.rollout_reading import read_rollouts
from sparring.reports.document import Document
from sparring.reports.run_reports import check_report
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_summary


def document(folder: RunFolder) -> Document:
    """Build the report of a check."""
    return check_report(read_summary(folder, CheckSummary))


def comparable(folder: RunFolder, _: dict[str, Any]) -> dict[str, list[Rollout]]:
    """Return the rollouts of the model to be trained."""
    return {"training": read_rollouts([folder.rollouts_of("learner")])}
