"""Finds the versions and plugins of installed packages, and how to install an extra. A leaf.

A plugin is an entry point of a package. Its group is the kind of plugin (`sparring.launchers`), and
its name is the name that users write in settings.

Results are cached until a folder on `sys.path` changes, because reading the metadata of a hundred
packages takes longer than the rest of a server call.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import (
    EntryPoint,
    PackageNotFoundError,
    distribution,
    entry_points,
    version,
)
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import unquote, urlsplit

from sparring.contracts.errors import MissingPackage

_LOCAL = ("torch", "transformers", "accelerate")
# The packages of the extras that runs need; their names are also those of their modules.
EXTRAS: Mapping[str, Sequence[str]] = {
    "local": _LOCAL,
    "train": (*_LOCAL, "trl", "peft", "datasets", "numpy", "scipy"),
}
_SOURCE = Path(__file__).parents[2]


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


def require_extra(extra: str, what: str, otherwise: str = "") -> None:
    """Raise MissingPackage if a package of the extra is not installed. Nothing is imported."""
    if missing := [package for package in EXTRAS[extra] if not _is_importable(package)]:
        raise MissingPackage(
            f"{what} needs the extra {extra} ({', '.join(missing)} not installed): "
            f"{how_to_install(extra)}{otherwise}"
        )


def how_to_install(extra: str = "") -> str:
    """Return the command that installs Sparring with an extra, from where it was installed."""
    wanted = f"[{extra}]" if extra else ""
    try:
        text = distribution("sparring").read_text("direct_url.json")
    except PackageNotFoundError:
        return f"pip install -e {quote(f'{_SOURCE}{wanted}')}"
    origin = json.loads(text or "{}")
    url = str(origin.get("url", ""))
    if not url:
        return f"pip install {quote(f'sparring{wanted}')}"
    address = urlsplit(url)
    if address.scheme == "file":
        option = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {option}{quote(f'{unquote(address.path)}{wanted}')}"
    if version_control := origin.get("vcs_info"):
        url = f"{version_control['vcs']}+{url}"
    return f"pip install {quote(f'sparring{wanted} @ {url}')}"


def _is_importable(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # hidden, or half imported
        return False


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
