"""The callers of commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparring.contracts.errors import SparringError
from sparring.operations.operation import Caller, Role
from sparring.projects import find_project


def owner(runs: str | None = None) -> Caller:
    """Return the caller of commands that start runs: the owner of the project in the current
    folder."""
    here = Path.cwd()
    folder = Path(runs) if runs is not None else find_project(here).runs
    return Caller(Role.OWNER, folder, folder=here)


def reader(runs: str | None = None) -> Caller:
    """Return the caller of all other commands. In a folder named with `--runs` that is not the
    project's, reading starts no runs: the folder may be a copy from elsewhere, and must not execute
    the code that its specs name."""
    caller = owner(runs)
    if runs is None:
        return caller
    try:
        is_own = find_project(caller.folder).runs.resolve() == caller.runs.resolve()
    except SparringError:  # reading another folder needs no valid project here
        is_own = False
    return replace(caller, can_supervise=is_own)
