"""What a caller may spend: the project's budget, and what binds operators where it is silent."""

from __future__ import annotations

from pathlib import Path

from sparring.projects import find_project
from sparring.settings.project_file import Budget


def budget_for(folder: Path, *, is_owner: bool) -> Budget:
    budget = find_project(folder).file.budget
    return budget if is_owner else budget.for_operators()
