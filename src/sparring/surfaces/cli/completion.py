"""Shell completion: names of runs, environments and states."""

from __future__ import annotations


def complete_runs(incomplete: str) -> list[str]:
    """Return the newest runs of this project whose ids begin with `incomplete`."""
    try:
        from sparring.runs.index import Index
        from sparring.surfaces.cli.starting import reader

        return [row.id for row in Index(reader().runs).named(incomplete, 20)]
    except Exception:  # an error would break the command line that is being typed
        return []


def complete_environments(incomplete: str) -> list[str]:
    """Return the environments of this project whose names begin with `incomplete`."""
    try:
        from pathlib import Path

        from sparring.projects import find_project

        environments = find_project(Path.cwd()).catalogue().environments
        return [each.name for each in environments if each.name.startswith(incomplete)]
    except Exception:  # as above
        return []


def complete_states(incomplete: str) -> list[str]:
    """Return the states of a run that begin with `incomplete`."""
    from sparring.runs.lifecycle import RunState

    return [state.value for state in RunState if state.value.startswith(incomplete)]
