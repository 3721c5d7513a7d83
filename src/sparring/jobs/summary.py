"""Reads the summary of a run."""

from __future__ import annotations

from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json


def read_summary(folder: RunFolder) -> dict[str, Any]:
    """Return a run's summary. Raises InvalidInput if the run has not written one."""
    if not folder.summary.is_file():
        raise InvalidInput(f"run {folder.id} has no results to report yet; let it complete first")
    summary: dict[str, Any] = read_json(folder.summary)
    return summary
