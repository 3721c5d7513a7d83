"""Builds the report of an audit from its run folder."""

from __future__ import annotations

from typing import Any

from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import AuditSummary
from sparring.reports.document import Document
from sparring.reports.run_reports import audit_report
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_summary


def document(folder: RunFolder) -> Document:
    """Build the report of an audit of measures."""
    return audit_report(read_summary(folder, AuditSummary))


def comparable(_: RunFolder, __: dict[str, Any]) -> dict[str, list[Rollout]]:
    """Return no rollouts: null players are not models to compare."""
    return {}
