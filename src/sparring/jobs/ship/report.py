"""Builds the report of a shipment, and reads the rollouts that comparisons of runs use."""

from __future__ import annotations

from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import ShipSummary
from sparring.jobs.rollout_reading import read_rollouts
from sparring.jobs.ship.playing import HELD_OUT
from sparring.reports.document import Document
from sparring.reports.ship_report import ship_report
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_summary


def document(folder: RunFolder) -> Document:
    """Build the report of a shipment."""
    return ship_report(read_summary(folder, ShipSummary))


def comparable(folder: RunFolder, _: dict[str, Any]) -> dict[str, list[Rollout]]:
    """Return the rollouts of the artefact that played held-out cases."""
    return {Split.HELD_OUT.value: read_rollouts([folder.rollouts_of(HELD_OUT)])}
