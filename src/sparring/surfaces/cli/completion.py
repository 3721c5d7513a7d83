"""Shell completion: names of runs, environments and settings, and the choices of an option."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence


def complete_runs(incomplete: str) -> list[str]:
    """Return the newest runs of this project whose ids begin with `incomplete`."""
    try:
        from sparring.runs.index import Index
        from sparring.surfaces.cli.callers import reader

        return [row.id for row in Index(reader().runs).named(incomplete, 20)]
    except Exception:  # an error would break the command line that is being typed
        return []


def complete_environments(incomplete: str) -> list[str]:
    """Return the environments of this project whose names begin with `incomplete`."""
    try:
        from pathlib import Path

        from sparring.projects import find_project

        environments = find_project(Path.cwd()).catalogue().environments
        return completer_of([each.name for each in environments])(incomplete)
    except Exception:  # as above
        return []


def complete_settings(incomplete: str) -> list[str]:
    """Return the settings whose names begin with `incomplete`, each with an equals sign."""
    from sparring.settings.fields import known_names

    return completer_of([f"{name}=" for name in known_names("train")])(incomplete)


def completer_of(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a function that completes one of the choices."""

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


COMPLETERS: Mapping[str, Callable[[str], list[str]]] = {
    "runs": complete_runs,
    "environments": complete_environments,
}
