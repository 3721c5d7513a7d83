"""Finds environments: in source files, classes derived from `sparring.Environment` and files that
are an environment without a class; and entry points of installed packages. None is imported.

A file without such a class is an environment if its top level binds `suite`, `measures` and one of
`agent`, `play`, `command` and `url`, by assignment or `def`. A file that calls a verb, such as
`sparring.train`, when it is imported is a script. If two of the three are bound in a file that
imports sparring, the third was probably forgotten, which is reported as a problem.

Classes derived from Atropos's base class are found, too, and marked as needing a port. The facts of
each file are cached with its size, times and inode, so that a second search only walks the folders.
A file that does not parse is reported as a problem and does not affect the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path

from sparring.contracts.environments import (
    AGENT_PARTS,
    OTHER_PARTS,
    Catalogue,
    FoundEnvironment,
    SourceProblem,
    is_whole,
)
from sparring.installed import entry_points_of
from sparring.projects.source import ClassFacts, FileFacts, read_facts
from sparring.run_folder.files import read_json, write_json

GROUP = "sparring.environments"
_FORMAT = 3
# The base classes of environments, with the framework that they belong to.
_BASES: Mapping[str, str] = {
    "sparring.Environment": "sparring",
    "sparring.environments.Environment": "sparring",
    "sparring.environments.environment.Environment": "sparring",
    "atroposlib.envs.base.BaseEnv": "atropos",
    "atroposlib.envs.BaseEnv": "atropos",
}
_NOT_SOURCE = frozenset({"node_modules", "site-packages", "__pycache__", "runs", "build", "dist"})

_Key = tuple[Path, str]  # a class: its file and its name
_VALID_NAME = re.compile(r"[\w.\-]{1,64}")  # names appear on command lines and in agents' prompts
PORTING = "docs/coming_from_atropos.md"


@dataclass(frozen=True, slots=True)
class _Class:
    file: Path
    facts: ClassFacts


def find_environments(root: Path, folders: Iterable[Path], cache: Path | None = None) -> Catalogue:
    """Return the environments in `folders` and in installed packages, and the source problems."""
    facts = _all_facts(folders, cache)
    sources = _Sources(root, facts)
    problems = [
        SourceProblem(file=str(path), line=each.problem_line, message=each.problem)
        for path, each in facts.items()
        if each.problem
    ]
    problems += sources.half_made()
    found = [*sources.environments(), *sources.modules(), *installed_environments()]
    problems += [_invalid_name(each) for each in found if not _VALID_NAME.fullmatch(each.name)]
    found = [each for each in found if _VALID_NAME.fullmatch(each.name)]
    found.sort(key=lambda each: (each.name, each.file, each.line))
    problems += _duplicates(found)
    return Catalogue(environments=tuple(found), problems=tuple(problems))


def _invalid_name(each: FoundEnvironment) -> SourceProblem:
    message = f"name {each.name[:80]!r} is invalid: use letters, digits, _, - and ., as in my_agent"
    return SourceProblem(file=each.file, line=each.line, message=message)


def source_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, except in virtual environments, runs, builds, caches
    and hidden folders."""
    for parent, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = sorted(
            name for name in folders if name not in _NOT_SOURCE and not name.startswith(".")
        )
        for name in sorted(files):
            if name.endswith(".py"):
                yield Path(parent, name)


# ------------------------------------------------------------------ reading


@dataclass(frozen=True, slots=True)
class _CachedFacts:
    """The facts of a file, and its stamp when they were read."""

    stamp: str
    facts: FileFacts


def _all_facts(folders: Iterable[Path], cache: Path | None) -> dict[Path, FileFacts]:
    cached = _read_cache(cache)
    current: dict[str, _CachedFacts] = {}
    for folder in folders:
        for path in source_files(folder):
            stamp = _stamp(path)
            entry = cached.get(str(path))
            if entry is None or entry.stamp != stamp:
                entry = _CachedFacts(stamp, read_facts(path))
            current[str(path)] = entry
    if cache is not None and current != cached:
        _write_cache(cache, current)
    return {Path(path): entry.facts for path, entry in current.items()}


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "gone"
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_ino}"


def _read_cache(cache: Path | None) -> dict[str, _CachedFacts]:
    if cache is None or not cache.is_file():
        return {}
    try:
        content = read_json(cache)
        if content.get("format") != _FORMAT:
            return {}
        return {
            path: _CachedFacts(entry["stamp"], FileFacts.model_validate(entry["facts"]))
            for path, entry in content["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # a broken cache is rebuilt


def _write_cache(cache: Path, entries: Mapping[str, _CachedFacts]) -> None:
    files = {
        path: {"stamp": entry.stamp, "facts": entry.facts.model_dump(exclude_defaults=True)}
        for path, entry in entries.items()
    }
    try:
        write_json(cache, {"format": _FORMAT, "files": files}, durable=False)
    except OSError:
        return  # in a read-only project, every search reads all files


# ------------------------------------------------------------------ linking


class _Sources:
    """All classes of a project, linked to their bases across files."""

    def __init__(self, root: Path, facts: Mapping[Path, FileFacts]) -> None:
        self._root = root
        self._facts = facts
        self._modules: dict[tuple[Path, str], Path | None] = {}
        self._classes = {
            (path, each.name): _Class(path, each)
            for path, file in facts.items()
            for each in file.classes
        }

    @cached_property
    def _linked(self) -> tuple[dict[_Key, str], dict[_Key, list[_Key]]]:
        """Return the framework of each class of an environment, and the classes derived from each
        class."""
        children: dict[_Key, list[_Key]] = {}
        kinds: dict[_Key, str] = {}
        for key, each in self._classes.items():
            for base in each.facts.bases:
                origin = self._origin(each.file, base)
                if isinstance(origin, str):
                    kinds.setdefault(key, _BASES[origin])
                elif origin is not None:
                    children.setdefault(origin, []).append(key)
        pending = list(kinds)
        while pending:
            parent_key = pending.pop()
            for key in children.get(parent_key, ()):
                if key not in kinds:
                    kinds[key] = kinds[parent_key]
                    pending.append(key)
        return kinds, children

    def environments(self) -> list[FoundEnvironment]:
        """Return the classes that derive from a base class of environments, except hidden ones."""
        kinds, children = self._linked
        return [
            self._as_found(self._classes[key], needs_port=kind == "atropos")
            for key, kind in kinds.items()
            if not self._is_hidden(self._classes[key], has_children=key in children)
        ]

    def modules(self) -> list[FoundEnvironment]:
        """Return the files that are an environment without a class."""
        return [
            FoundEnvironment(
                name=file.stem,
                class_name=file.stem,
                file=str(file),
                line=min(facts.parts.values()),
                description=facts.description,
            )
            for file, facts in self._without_class()
            if is_whole(facts.parts)
        ]

    def half_made(self) -> list[SourceProblem]:
        """Return the files that lack one part of an environment without a class."""
        return [
            SourceProblem(
                file=str(file),
                line=min(facts.parts.values()),
                message=f"defines {' and '.join(facts.parts)}, but no {missing[0]}; an environment "
                "without a class defines agent (or play, command or url), suite and measures",
            )
            for file, facts in self._without_class()
            if any(each.partition(".")[0] == "sparring" for each in facts.modules)
            and len(missing := _missing(facts)) == 1
        ]

    def _without_class(self) -> Iterator[tuple[Path, FileFacts]]:
        """Yield the files, other than scripts, private files and tests, that have no class of an
        environment."""
        with_class = {file for file, _ in self._linked[0]}
        for file, facts in self._facts.items():
            is_private = file.name.startswith(("_", "test_"))
            if not (is_private or facts.runs_a_verb or file in with_class):
                yield file, facts

    def _is_hidden(self, each: _Class, *, has_children: bool) -> bool:
        """Whether a class is private, or is a base class with neither a name nor a description."""
        if each.file.name.startswith("_") or each.facts.name.startswith("_"):
            return True
        return has_children and not each.facts.given_name and not each.facts.description

    def needed_by(self, file: Path) -> set[Path]:
        """Return a file and the project files that it imports, directly or indirectly."""
        needed: set[Path] = set()
        pending = [file]
        while pending:
            current = pending.pop()
            if current in needed or current not in self._facts:
                continue
            needed.add(current)
            facts = self._facts[current]
            for dotted in facts.modules:
                for candidate in (dotted, f"{dotted}.x"):
                    if found := self._module_of(current, candidate):
                        pending.append(found[0])
        return needed

    def _as_found(self, each: _Class, *, needs_port: bool) -> FoundEnvironment:
        description = each.facts.description
        if needs_port:
            description = f"(needs a port: see {PORTING}) {description}".strip()
        return FoundEnvironment(
            name=each.facts.given_name or each.file.stem,
            class_name=each.facts.name,
            file=str(each.file),
            line=each.facts.line,
            description=description,
            config_class=self._inherited_config(each),
            needs_port=needs_port,
        )

    def _origin(self, file: Path, dotted: str, depth: int = 0) -> tuple[Path, str] | str | None:
        """Return the project's class or the name in `_BASES` that the name of a base refers to,
        also through re-exports; None for any other class."""
        names = [dotted]
        if "." not in dotted:
            if (file, dotted) in self._classes:
                return (file, dotted)
            names = [f"{star}.{dotted}" for star in self._facts[file].star_imports]
        for name in names:
            if name in _BASES:
                return name
            found = self._module_of(file, name)
            if found in self._classes:
                return found
            if found is None or "." not in dotted or depth > 10:
                continue
            module, attribute = found
            if (reexported := self._facts[module].imports.get(attribute)) is not None:
                return self._origin(module, reexported, depth + 1)
        return None

    def _module_of(self, file: Path, dotted: str) -> tuple[Path, str] | None:
        """For `package.module.Class`, return the project file of `package.module`, and `Class`."""
        module, _, name = dotted.rpartition(".")
        key = (file.parent, module)
        if key not in self._modules:
            self._modules[key] = self._file_of(file, module)
        found = self._modules[key]
        return None if found is None else (found, name)

    def _file_of(self, file: Path, module: str) -> Path | None:
        level = len(module) - len(module.lstrip("."))
        parts = [part for part in module.lstrip(".").split(".") if part]
        if level:
            package = file.parent
            for _ in range(level - 1):
                package = package.parent
            starts = [package]
        else:
            starts = [file.parent, self._root, *file.parent.parents]
        for start in starts:
            path = start.joinpath(*parts)
            for candidate in (path.with_suffix(".py") if parts else None, path / "__init__.py"):
                if candidate is not None and candidate in self._facts:
                    return candidate
        return None

    def _inherited_config(self, each: _Class) -> str:
        seen: set[tuple[Path, str]] = set()
        pending = [each]
        while pending:
            current = pending.pop(0)
            if current.facts.config_class:
                return current.facts.config_class
            for base in current.facts.bases:
                parent = self._origin(current.file, base)
                if isinstance(parent, tuple) and parent not in seen:
                    seen.add(parent)
                    pending.append(self._classes[parent])
        return ""


def _missing(facts: FileFacts) -> list[str]:
    """Return the parts that a file lacks to be an environment without a class."""
    has_agent = any(part in facts.parts for part in AGENT_PARTS)
    others = [part for part in OTHER_PARTS if part not in facts.parts]
    return others if has_agent else ["agent", *others]


def _duplicates(found: list[FoundEnvironment]) -> list[SourceProblem]:
    by_name: dict[str, list[FoundEnvironment]] = {}
    for each in found:
        by_name.setdefault(each.name, []).append(each)
    return [
        SourceProblem(
            file=each.file,
            line=each.line,
            message=f"{each.class_name} is called {name!r}, like "
            + " and ".join(f"{o.class_name} ({o.file}:{o.line})" for o in same if o is not each)
            + "; give it another `name`",
        )
        for name, same in by_name.items()
        if len(same) > 1
        for each in same
    ]


def files_needed_by(
    file: Path, root: Path, folders: Iterable[Path], cache: Path | None = None
) -> list[Path]:
    """Return a file and the project files that it imports, directly or indirectly, sorted."""
    return sorted(_Sources(root, _all_facts(folders, cache)).needed_by(file))


# ------------------------------------------------------------------ installed packages


def installed_environments() -> Iterator[FoundEnvironment]:
    """Yield the environments that installed packages declare in the group `GROUP`."""
    for entry in entry_points_of(GROUP):
        if (found := _found(entry)) is not None:
            yield found


def _found(entry: EntryPoint) -> FoundEnvironment | None:
    file = _file_of(entry.module)
    if file is None:
        return None
    for facts in read_facts(file).classes:
        if facts.name == entry.attr:
            return FoundEnvironment(
                name=entry.name,
                class_name=facts.name,
                file=str(file),
                line=facts.line,
                description=facts.description,
                config_class=facts.config_class,
                package=entry.dist.name if entry.dist else entry.module.partition(".")[0],
            )
    return None


def _file_of(module: str) -> Path | None:
    """Return the file of a module, or None. `importlib.util.find_spec` is not used, because it
    imports parent packages."""
    top, *rest = module.split(".")
    spec = PathFinder.find_spec(top)
    if spec is None:
        return None
    folders = [Path(each) for each in spec.submodule_search_locations or ()]
    if not rest:
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    for folder in folders:
        path = folder.joinpath(*rest)
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None
