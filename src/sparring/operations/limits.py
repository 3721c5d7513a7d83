"""The budget of a caller: the project's, with defaults for operators where it sets no limit."""

from __future__ import annotations

from pathlib import Path

from sparring.projects import find_project
from sparring.settings.project_file import Budget


def budget_for(folder: Path, *, is_owner: bool) -> Budget:
    """Return the budget that binds this caller in the project of `folder`."""
    budget = find_project(folder).file.budget
    return budget if is_owner else budget.for_operators()
