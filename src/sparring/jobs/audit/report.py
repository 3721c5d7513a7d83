"""Builds the report of an audit from its run folder."""

from __future__ import annotations

from typing import Any

from sparring.contracts.rollouts import Rollout
from sparring.jobs.summary import read_summary
from sparring.reports.document import Document
from sparring.reports.run_reports import audit_report
from sparring.run_folder import RunFolder


def document(folder: RunFolder) -> Document:
    """Build the report of an audit of measures."""
    return audit_report(read_summary(folder))


def comparable(_: RunFolder, __: dict[str, Any]) -> dict[str, list[Rollout]]:
    """Return no rollouts: null players are not models to compare."""
    return {}
