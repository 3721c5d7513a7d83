"""What `sparring init` writes: an environment, its test, a project file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from sparring.contracts.errors import InvalidInput
from sparring.projects.project import project_file_above

_TEMPLATE = files("sparring.projects") / "template"
# What to start from, by the name of its folder.
STARTING_POINTS: Mapping[str, str] = {
    "tool": "questions that a tool answers",
    "documents": "questions over a folder of documents",
    "game": "a game over several turns",
}


def write_environment(folder: Path, name: str, start: str = "tool") -> list[Path]:
    """The files of a new environment; none is written over."""
    if start not in STARTING_POINTS:
        listed = ", ".join(f"{each} ({what})" for each, what in STARTING_POINTS.items())
        raise InvalidInput(f"there is no starting point {start!r}; there are {listed}")
    source = _TEMPLATE / start
    wanted = {
        folder / f"{name}.py": source / "environment.py.txt",
        folder / f"test_{name}.py": source / "test.py.txt",
    }
    if project_file_above(folder) is None:  # a second one would take the place of its locks
        wanted[folder / "sparring.toml"] = _TEMPLATE / "sparring.toml.txt"
    wanted |= {folder / f"{name}_documents" / each.name: each for each in _files(source)}
    for path in wanted:
        if path.exists():
            raise InvalidInput(f"{path} is there already; take another name, or another folder")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    for path, template in wanted.items():
        text = template.read_text(encoding="utf-8")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("my_agent", name).replace("MyAgent", class_name))
    return list(wanted)


def _files(source: Traversable) -> list[Traversable]:
    """What lies beside an environment as it is."""
    place = source / "files"
    return sorted(place.iterdir(), key=lambda each: each.name) if place.is_dir() else []
