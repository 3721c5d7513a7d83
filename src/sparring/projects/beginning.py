"""What `sparring init` writes: an environment, its test, a project file. Small, whole, passing."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from sparring.contracts.errors import InvalidInput
from sparring.projects.project import project_file_above

_TEMPLATE = files("sparring.projects") / "template"


def write_environment(folder: Path, name: str) -> list[Path]:
    """The files of a new environment; none is written over."""
    wanted = {
        folder / f"{name}.py": "environment.py.txt",
        folder / f"test_{name}.py": "test.py.txt",
    }
    if project_file_above(folder) is None:  # a second one would take the place of its locks
        wanted[folder / "sparring.toml"] = "sparring.toml.txt"
    for path in wanted:
        if path.exists():
            raise InvalidInput(f"{path} is there already; take another name, or another folder")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    for path, template in wanted.items():
        text = (_TEMPLATE / template).read_text(encoding="utf-8")
        path.write_text(text.replace("my_agent", name).replace("MyAgent", class_name))
    return list(wanted)
