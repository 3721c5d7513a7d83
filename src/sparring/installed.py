"""What is installed beside us, remembered until something is installed or removed.

A leaf. Reading the metadata of a hundred packages takes longer than anything else that a server
does for one call.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path


def version_of(package: str) -> str | None:
    """None where it is not installed."""
    return _version_of(package, _stamp())


def entry_points_of(group: str) -> tuple[EntryPoint, ...]:
    return _entry_points_of(group, _stamp())


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
    """Changes with the folders that packages are put into."""
    return tuple(_changed(place) for place in sys.path)


def _changed(place: str) -> int:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0
