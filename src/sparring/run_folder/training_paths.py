"""Finds the folder of a training run by the end of its id, as in runs/8542."""

from __future__ import annotations

from pathlib import Path

from sparring.run_folder.files import read_json_or_empty


def whole_path(path: Path) -> Path:
    """Return the folder of the training run that `path` names by the end of its id. A path that
    exists, or that no training or several match, is returned unchanged."""
    found = trainings_named(path)
    return found[0] if len(found) == 1 else path


def existing_folder(path: Path) -> Path | None:
    """Return `whole_path` of a path if it is a folder, else None."""
    whole = whole_path(path)
    try:
        return whole if whole.is_dir() else None
    except OSError:  # such as a name that is too long
        return None


def trainings_named(path: Path) -> list[Path]:
    """Return the training runs beside `path` whose id ends with its name, sorted; none if `path`
    exists or its folder cannot be read."""
    try:
        beside = [] if path.exists() else list(path.parent.iterdir())
    except OSError:
        return []
    named = [each for each in beside if path.name and each.name.endswith(f"-{path.name}")]
    return sorted(
        each for each in named if read_json_or_empty(each / "spec.json").get("kind") == "train"
    )
