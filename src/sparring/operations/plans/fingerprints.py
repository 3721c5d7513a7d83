"""Fingerprints of the files that a plan depends on, to detect changes before it is started.

Source files are hashed. Data beside the environment, files that its config names, and weights can
be large: their fingerprints cover path, size, inode, modification time, and change time, which a
program cannot set.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from sparring.operations.resolution import RunSettings

_IGNORED_SUFFIXES = (".log", ".py", ".pyc")  # .py files are hashed
_MAX_FILES, _MAX_LISTED = 5_000, 200
_IGNORED_FOLDERS = frozenset({"node_modules", "site-packages", "__pycache__", "build", "dist"})


def fingerprints(run_settings: RunSettings) -> dict[str, str]:
    """Return fingerprints by label. A refusal lists the labels that have changed."""
    project, found = run_settings.project, run_settings.environment.found
    prints = {f"file {path}": _content(path) for path in project.sources_of(found)}
    data = list(_data_below(Path(found.file).parent, project.runs))
    if len(data) <= _MAX_LISTED:
        prints |= {f"file {path}": _stats([path]) for path in data}
    else:
        prints["data beside the environment"] = _stats(data)
    for name in run_settings.environment.path_fields:
        value = run_settings.checked.config.get(name)
        for place in value if isinstance(value, list) else [value]:
            if isinstance(place, str):
                prints[f"config.{name} {place}"] = _stats(_files_below(Path(place)))
    model = run_settings.checked.model.model
    if model is not None and Path(model).is_dir():
        prints[f"model {model}"] = _stats(_files_below(Path(model)))
    return prints


def _content(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "gone"


def _stats(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        try:
            stat = path.stat()
        except OSError:
            continue
        digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode("utf-8", "replace"))
        digest.update(f"{stat.st_ctime_ns}\0{stat.st_ino}\n".encode())
    return digest.hexdigest()


def _files_below(place: Path) -> Iterator[Path]:
    """Yield the file itself, or the first `_MAX_FILES` files below a folder."""
    if place.is_file():
        yield place
        return
    left = _MAX_FILES
    for folder, folders, names in os.walk(place):
        folders.sort()
        for name in sorted(names)[:left]:
            left -= 1
            yield Path(folder, name)
        if left <= 0:
            return


def _data_below(folder: Path, runs: Path) -> Iterator[Path]:
    left = _MAX_FILES
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _IGNORED_FOLDERS
            and not name.startswith(".")
            and Path(place, name) != runs
        )
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        for name in sorted(names):
            if left > 0 and not name.startswith(".") and not name.endswith(_IGNORED_SUFFIXES):
                left -= 1
                yield Path(place, name)
