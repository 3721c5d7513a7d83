"""Writes the files of a new environment, for `sparring init`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from sparring.contracts.errors import InvalidInput
from sparring.projects.project import project_file_above
from sparring.run_folder.files import write_json
from sparring.settings.schema import project_file_schema

_SCHEMA = Path(".sparring", "sparring.schema.json")  # named in the template's first line
_TEMPLATE = files("sparring.projects") / "template"
STARTING_POINTS: Mapping[str, str] = {
    "tool": "questions that a tool answers",
    "documents": "questions over a folder of documents",
    "game": "a game over several turns",
}


def write_environment(folder: Path, name: str, start: str = "tool") -> list[Path]:
    """Write an environment, its test and, if no project file applies to `folder`, a project file.
    Return their paths. Raises InvalidInput if any file exists."""
    if start not in STARTING_POINTS:
        listed = ", ".join(f"{each} ({about})" for each, about in STARTING_POINTS.items())
        raise InvalidInput(f"there is no starting point {start!r}; choose from {listed}")
    source = _TEMPLATE / start
    templates = {
        folder / f"{name}.py": source / "environment.py.txt",
        folder / f"test_{name}.py": source / "test.py.txt",
    }
    if project_file_above(folder) is None:  # a second file would hide the first one's locks
        templates[folder / "sparring.toml"] = _TEMPLATE / "sparring.toml.txt"
    templates |= {folder / f"{name}_documents" / each.name: each for each in _files(source)}
    for path in templates:
        if path.exists():
            raise InvalidInput(f"{path} exists already; choose another name or another folder")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    for path, template in templates.items():
        text = template.read_text(encoding="utf-8")
        path.parent.mkdir(exist_ok=True)
        text = text.replace("my_agent", name).replace("MyAgent", class_name)
        path.write_text(text, encoding="utf-8")
    if folder / "sparring.toml" in templates:
        write_json(folder / _SCHEMA, project_file_schema())
    return list(templates)


def _files(source: Traversable) -> list[Traversable]:
    """Return the other files of a starting point, such as documents, sorted by name."""
    folder = source / "files"
    return sorted(folder.iterdir(), key=lambda each: each.name) if folder.is_dir() else []
