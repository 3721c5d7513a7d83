"""Writes the files of a new environment, for `sparring init`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from sparring.contracts.errors import InvalidInput
from sparring.projects.project import project_file_above
from sparring.run_folder.files import write_json
from sparring.settings.project_file import project_file_schema

_SCHEMA = Path(".sparring", "sparring.schema.json")  # named in the template's first line
_TEMPLATE = files("sparring.projects") / "template"
STARTING_POINTS: Mapping[str, str] = {
    "tool": "questions that a tool answers",
    "documents": "questions about a folder of documents",
    "game": "a game of several turns",
}


def write_environment(folder: Path, name: str, start: str = "tool") -> list[Path]:
    """Write an environment, its test, its documents and, if no project file applies to `folder`, a
    project file with its schema, and `.gitignore` and `AGENTS.md` unless they exist. Return the
    paths except the schema's. Raises InvalidInput if another file exists, or if the name or `start`
    cannot be used."""
    if start not in STARTING_POINTS:
        listed = ", ".join(f"{each} ({about})" for each, about in STARTING_POINTS.items())
        raise InvalidInput(f"there is no template {start!r}; choose from {listed}")
    source = _TEMPLATE / start
    class_name = "".join(part.capitalize() for part in name.split("_"))
    if class_name in _names_in(source / "environment.py.txt"):
        raise InvalidInput(
            f"the environment's class would be {class_name}, a name that its file uses already; "
            f"choose another name, such as {name}_task"
        )
    templates = {
        folder / f"{name}.py": source / "environment.py.txt",
        folder / f"test_{name}.py": source / "test.py.txt",
    }
    if project_file_above(folder) is None:  # a second file would hide the first one's locks
        templates[folder / "sparring.toml"] = _TEMPLATE / "sparring.toml.txt"
        for file, text in ((".gitignore", "gitignore.txt"), ("AGENTS.md", "agents.txt")):
            if not (folder / file).exists():
                templates[folder / file] = _TEMPLATE / text
    templates |= {folder / f"{name}_documents" / each.name: each for each in _files(source)}
    for path in templates:
        if path.exists():
            raise InvalidInput(f"{path} exists already; choose another name or another folder")
    for path, template in templates.items():
        written = template.read_text(encoding="utf-8")
        path.parent.mkdir(exist_ok=True)
        written = written.replace("my_agent", name).replace("MyAgent", class_name)
        path.write_text(written, encoding="utf-8")
    if folder / "sparring.toml" in templates:
        write_json(folder / _SCHEMA, project_file_schema())
    return list(templates)


def _names_in(template: Traversable) -> set[str]:
    """Return the names that a template imports and defines."""
    names = set()
    for node in ast.parse(template.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
    return names - {"MyAgent"}


def _files(source: Traversable) -> list[Traversable]:
    """Return the other files of a template, such as documents, sorted by name."""
    folder = source / "files"
    return sorted(folder.iterdir(), key=lambda each: each.name) if folder.is_dir() else []
