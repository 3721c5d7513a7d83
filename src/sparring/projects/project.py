"""A project: a folder with a project file, or any folder if no parent has a project file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.environments import (
    Catalogue,
    EnvironmentDescription,
    FoundEnvironment,
)
from sparring.contracts.errors import EnvironmentNotFound, InvalidInput
from sparring.projects.descriptions import describe
from sparring.projects.discovery import PORTING, files_needed_by, find_environments
from sparring.settings.fields import nearest
from sparring.settings.project_file import ParsedFile, ProjectFile, parse, read_project_file

PROJECT_FILE = "sparring.toml"


@dataclass(frozen=True, slots=True)
class Project:
    """A project's folder and the contents of its project file."""

    root: Path
    file: ProjectFile

    @property
    def runs(self) -> Path:
        """The folder that holds the runs."""
        return self.root / self.file.tables.project.runs

    @property
    def state(self) -> Path:
        """The `.sparring` folder: caches and other state of the project."""
        return self.root / ".sparring"

    def folders(self) -> list[Path]:
        """Return the folders to search for environments; raises InvalidInput if one is missing."""
        folders = [self.root / each for each in self.file.tables.project.look_in]
        for folder in folders:
            if not folder.is_dir():
                place = self.file.document.place_of("project.look_in")
                raise InvalidInput(f"{place}: look_in lists {folder}, which is not a folder")
        return folders

    def catalogue(self) -> Catalogue:
        """Return all environments of the project and of installed packages."""
        return find_environments(self.root, self.folders(), self._source_cache)

    def find(self, target: str, *, by_name_only: bool = False) -> FoundEnvironment:
        """Return an environment by its name, by `NAME:CLASS` if several share the name, or by
        `FILE:CLASS`. With `by_name_only`, files are not accepted: the caller may not choose which
        file runs."""
        catalogue = self.catalogue()
        first, _, second = target.rpartition(":")
        name, class_name = (first, second) if first else (second, "")
        found = [
            each
            for each in catalogue.environments
            if each.name == name and class_name in ("", each.class_name)
        ]
        if len(found) == 1:
            return _playable(found[0])
        if found:
            listed = " or ".join(_unambiguous(each, found, by_name_only) for each in found)
            raise EnvironmentNotFound(
                f"{len(found)} environments are called {name!r}; write {listed}"
            )
        if not by_name_only and (name.endswith(".py") or "/" in name):
            return self._in_file(Path(name), class_name)
        raise EnvironmentNotFound(self._not_found(target, catalogue))

    def describe(
        self, found: FoundEnvironment, *, is_owner: bool = False
    ) -> EnvironmentDescription:
        """Return an environment's description. With `is_owner`, an import that fails is repeated
        with all environment variables and, if it must write files, without the sandbox."""
        cache = self.state / "cache" / "descriptions"
        return describe(found, self.sources_of(found), cache, is_owner=is_owner)

    def sources_of(self, found: FoundEnvironment) -> list[Path]:
        """Return an environment's file and the project files that it imports."""
        file = Path(found.file)
        files = files_needed_by(file, self.root, self.folders(), self._source_cache)
        if not files:  # the environment is outside the project
            files = files_needed_by(file, file.parent, [file.parent])
        return list(files) or [file]

    @property
    def _source_cache(self) -> Path:
        return self.state / "cache" / "environments.json"

    def _in_file(self, path: Path, name: str) -> FoundEnvironment:
        """Find an environment by its file, which may be outside the project."""
        if not _is_file(path):
            raise InvalidInput(
                f"there is no file {path} here ({Path.cwd()}); write FILE:NAME, as in "
                "my_agent.py:MyAgent, or the name of an environment: `sparring env list`"
            )
        resolved = path.resolve()
        in_folder = find_environments(resolved.parent, [resolved.parent]).environments
        found = [each for each in in_folder if each.file == str(resolved)]
        chosen = [each for each in found if name in ("", each.class_name, each.name)]
        if len(chosen) == 1:
            return _playable(chosen[0])
        if chosen:
            listed = ", ".join(each.class_name for each in chosen)
            raise EnvironmentNotFound(f"{path} has several environments: {listed}; write FILE:NAME")
        # NAME may be an instance, or a class that the syntax tree does not show.
        return FoundEnvironment(
            name=name or resolved.stem, class_name=name, file=str(resolved), line=1
        )

    def _not_found(self, target: str, catalogue: Catalogue) -> str:
        for problem in catalogue.problems:
            if Path(problem.file).stem == target:
                place = f"{problem.file}:{problem.line}"
                return f"there is no environment {target!r}: {place} {problem.message}"
        names = [each.name for each in catalogue.environments]
        listed = (
            ", ".join(list(dict.fromkeys(names))[:10]) or "none: `sparring init NAME` writes one"
        )
        more = ", …" if len(set(names)) > 10 else ""
        hint = nearest(target, names) or f"there are {listed}{more}."
        count = len(catalogue.problems)
        problems = f" The sources have {count} problem{'s' * (count > 1)}; see `sparring env list`."
        return (
            f"there is no environment {target[:80]!r} in {self.root}; {hint}"
            f"{problems if catalogue.problems else ''}"
        )


def find_project(start: Path) -> Project:
    """Return the project of a folder: the nearest folder with a project file, `start` included, or
    `start` itself if there is none."""
    here = start.resolve()
    path = project_file_above(here)
    if path is None:
        return Project(here, ProjectFile(ParsedFile(PROJECT_FILE, {}, {})))
    return Project(path.parent, read_project_file(_parsed(path)))


def project_file_above(here: Path) -> Path | None:
    """Return the project file of a folder or of its nearest parent that has one; None if there is
    none."""
    folders = (here, *here.parents)
    return next((path for folder in folders if (path := folder / PROJECT_FILE).is_file()), None)


def _parsed(path: Path) -> ParsedFile:
    try:
        return parse(path.read_text(encoding="utf-8-sig"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: cannot be read: {error}") from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # not a valid file name
        return False


def _unambiguous(
    found: FoundEnvironment, others: Sequence[FoundEnvironment], by_name_only: bool
) -> str:
    """Return NAME:CLASS if no other environment of the name has the class, else FILE:CLASS."""
    classes = [each.class_name for each in others]
    if by_name_only or classes.count(found.class_name) == 1:
        return f"{found.name}:{found.class_name}"
    return f"{os.path.relpath(found.file)}:{found.class_name}"


def _playable(found: FoundEnvironment) -> FoundEnvironment:
    if found.needs_port:
        raise InvalidInput(
            f"{found.class_name} ({found.file}:{found.line}) is written for Atropos; {PORTING} "
            "shows how to port it"
        )
    return found
