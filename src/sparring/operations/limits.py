"""Reads the budget that applies to a caller."""

from __future__ import annotations

from pathlib import Path

from sparring.projects import find_project
from sparring.settings.project_file import Budget


def budget_for(folder: Path, *, is_owner: bool) -> Budget:
    """Return the budget of the project of `folder`, with operators' defaults unless `is_owner`."""
    budget = find_project(folder).file.budget
    return budget if is_owner else budget.for_operators()
