"""Finds environments of installed packages by their entry points, without importing packages."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path

from sparring.contracts.environments import FoundEnvironment
from sparring.installed import entry_points_of
from sparring.projects.source import read_facts

GROUP = "sparring.environments"


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
