"""Finds the versions and plugins of installed packages. A leaf.

A plugin is an entry point of a package. Its group is the kind of plugin (`sparring.launchers`), and
its name is the name that users write in settings.

Results are cached until a folder on `sys.path` changes, because reading the metadata of a hundred
packages takes longer than the rest of a server call.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any


def version_of(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    return _version_of(package, _stamp())


def entry_points_of(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points that installed packages declare in a group."""
    return _entry_points_of(group, _stamp())


def plugin_names(group: str) -> list[str]:
    """Return the names of the plugins in a group, sorted."""
    return sorted({entry.name for entry in entry_points_of(group)})


def load_plugin(group: str, name: str) -> Any:
    """Import and return a plugin; None if the group has no plugin of this name."""
    for entry in entry_points_of(group):
        if entry.name == name:
            return entry.load()
    return None


@lru_cache(maxsize=256)
def _version_of(package: str, _: tuple[int, ...]) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@lru_cache(maxsize=8)
def _entry_points_of(group: str, _: tuple[int, ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _stamp() -> tuple[int, ...]:
    """Return the cache key: modification times of the folders on `sys.path`."""
    return tuple(_modified_at(folder) for folder in sys.path)


def _modified_at(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0
