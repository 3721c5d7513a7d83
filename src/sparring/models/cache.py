"""Builds development models on first use, and caches them on disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from sparring.contracts.errors import UnknownModel
from sparring.models.smollm2 import build_smollm2
from sparring.models.tiny import build_tiny

BUILDERS: dict[str, Callable[[Path], Path]] = {"tiny": build_tiny, "smollm2": build_smollm2}
_VERSION = "2"  # increased when the output of a builder changes


def cache_folder() -> Path:
    """Return `SPARRING_CACHE`, or the folder `sparring` in the user's cache folder."""
    if folder := os.environ.get("SPARRING_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sparring"


def development_model(name: str, cache: Path | None = None) -> Path:
    """Return the folder of a development model, built on first use.

    It is built in a staging folder and renamed into place, so that two processes may build the same
    model at once.
    """
    if name not in BUILDERS:
        raise UnknownModel(f"unknown development model {name!r}; use one of {', '.join(BUILDERS)}")
    folder = (cache or cache_folder()) / "models" / f"{name}-{_VERSION}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    try:
        BUILDERS[name](staging)
        try:
            staging.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder
