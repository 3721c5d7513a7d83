"""What a shell offers when Tab is pressed: names of runs and of environments."""

from __future__ import annotations


def runs_there(incomplete: str) -> list[str]:
    """The newest runs of this project that begin like that."""
    try:
        from sparring.runs.index import Index
        from sparring.surfaces.cli.starting import owner

        return [row.id for row in Index(owner().runs).named(incomplete, 20)]
    except Exception:  # a shell that wants to complete a word is no place for errors
        return []


def environments_there(incomplete: str) -> list[str]:
    try:
        from pathlib import Path

        from sparring.projects import find_project

        found = find_project(Path.cwd()).catalogue().environments
        return [each.name for each in found if each.name.startswith(incomplete)]
    except Exception:
        return []


def states_there(incomplete: str) -> list[str]:
    from sparring.runs.lifecycle import RunState

    return [state.value for state in RunState if state.value.startswith(incomplete)]
