"""Where development models are kept once they are built."""

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
_VERSION = "1"  # raised when a builder writes something else than before


def cache_folder() -> Path:
    """`SPARRING_CACHE`, or the user's cache folder."""
    if given := os.environ.get("SPARRING_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sparring"


def development_model(name: str, cache: Path | None = None) -> Path:
    """The folder of a development model, built on first use.

    Built aside and renamed, so that two processes may build it at the same time.
    """
    if name not in BUILDERS:
        raise UnknownModel(
            f"there is no development model {name!r}; there are {', '.join(BUILDERS)}"
        )
    folder = (cache or cache_folder()) / "models" / f"{name}-{_VERSION}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    try:
        BUILDERS[name](aside)
        try:
            aside.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder
