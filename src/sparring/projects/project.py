"""A project: a folder with a `sparring.toml`, or the folder one stands in."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.environments import (
    Catalogue,
    EnvironmentDescription,
    FoundEnvironment,
)
from sparring.contracts.errors import EnvironmentNotFound, InvalidInput
from sparring.projects.describing import describe
from sparring.projects.discovery import PORTING, files_needed_by, find_environments
from sparring.settings.document import Document, parse
from sparring.settings.project_file import ProjectFile, read_project_file

FILES = ("sparring.toml", "sparring.yaml", "sparring.yml")


@dataclass(frozen=True, slots=True)
class Project:
    """Where a project is, and what its file says."""

    root: Path
    file: ProjectFile

    @property
    def runs(self) -> Path:
        return self.root / self.file.project.runs

    @property
    def state(self) -> Path:
        """What can be made again: caches, and later the index of runs."""
        return self.root / ".sparring"

    def folders(self) -> list[Path]:
        folders = [self.root / each for each in self.file.project.look_in]
        for folder in folders:
            if not folder.is_dir():
                place = self.file.document.place_of("project.look_in")
                raise InvalidInput(f"{place}: look_in names {folder}, which is not a folder")
        return folders

    def catalogue(self) -> Catalogue:
        """All environments, by reading source."""
        return find_environments(self.root, self.folders(), self._source_cache)

    def find(self, target: str) -> FoundEnvironment:
        """An environment by its name, by `NAME:CLASS` where two share one, or by `FILE:CLASS`."""
        first, _, second = target.rpartition(":")
        if Path(first or second).suffix == ".py" or Path(first or second).is_file():
            return self._in_file(Path(first or second), second if first else "")
        name, class_name = (first, second) if first else (second, "")
        catalogue = self.catalogue()
        found = [
            each
            for each in catalogue.environments
            if each.name == name and class_name in ("", each.class_name)
        ]
        if not found:
            raise EnvironmentNotFound(self._not_found(target, catalogue))
        if len(found) > 1:
            listed = ", ".join(f"{each.name}:{each.class_name} ({each.file})" for each in found)
            raise EnvironmentNotFound(f"{len(found)} environments are called {name!r}: {listed}")
        return _playable(found[0])

    def describe(self, found: FoundEnvironment) -> EnvironmentDescription:
        """What an environment says of itself."""
        file = Path(found.file)
        files = files_needed_by(file, self.root, self.folders(), self._source_cache) or [file]
        return describe(found, files, self.state / "cache" / "descriptions")

    @property
    def _source_cache(self) -> Path:
        return self.state / "cache" / "environments.json"

    def _in_file(self, path: Path, name: str) -> FoundEnvironment:
        """By file: it need not lie in the folders of the project."""
        if not path.is_file():
            raise InvalidInput(
                f"there is no file {path} here ({Path.cwd()}); write FILE:NAME, as in "
                "my_agent.py:MyAgent, or the name of an environment: `sparring env list`"
            )
        resolved = path.resolve()
        beside = find_environments(resolved.parent, [resolved.parent]).environments
        found = [each for each in beside if each.file == str(resolved)]
        chosen = [each for each in found if name in ("", each.class_name, each.name)]
        if len(chosen) == 1:
            return _playable(chosen[0])
        if chosen:
            listed = ", ".join(each.class_name for each in chosen)
            raise EnvironmentNotFound(f"{path} has several environments: {listed}; write FILE:NAME")
        # An instance, or a class that its source does not show: whoever loads it will see.
        return FoundEnvironment(
            name=name or resolved.stem, class_name=name, file=str(resolved), line=1
        )

    def _not_found(self, target: str, catalogue: Catalogue) -> str:
        names = [each.name for each in catalogue.environments]
        near = difflib.get_close_matches(target, names, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else ""
        listed = ", ".join(dict.fromkeys(names[:10])) or "none: `sparring init NAME` writes one"
        broken = f" {len(catalogue.problems)} problems: `sparring env list`." * bool(
            catalogue.problems
        )
        return (
            f"there is no environment {target!r} in {self.root}; {hint or 'there are ' + listed}."
            f"{broken}"
        )


def find_project(start: Path) -> Project:
    """The project that a folder lies in: the nearest one above with a project file."""
    here = start.resolve()
    for folder in (here, *here.parents):
        for name in FILES:
            path = folder / name
            if path.is_file():
                return Project(folder, read_project_file(_parsed(path)))
    return Project(here, ProjectFile(Document(FILES[0], {}, {})))


def _parsed(path: Path) -> Document:
    try:
        return parse(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: cannot be read: {error}") from error


def _playable(found: FoundEnvironment) -> FoundEnvironment:
    if found.needs_port:
        raise InvalidInput(
            f"{found.class_name} ({found.file}:{found.line}) is written for Atropos; {PORTING} "
            "shows how to bring it over"
        )
    return found
