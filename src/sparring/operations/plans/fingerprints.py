"""What a plan rests on besides settings: files, told apart by their content.

Source by what it says; what lies beside an environment, files that its config names and weights in
a folder by size and times (also of the last change to the file itself, which nobody can set back),
for they can be large.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from sparring.operations.settling import Settled, path_fields

_NOT_DATA_ENDS = (".log", ".py", ".pyc")  # source is told by what it says
_MOST, _NAMED = 5_000, 200
_NOT_DATA = frozenset({"node_modules", "site-packages", "__pycache__", "build", "dist"})


def fingerprints(settled: Settled) -> dict[str, str]:
    """By what it is, for whoever is told that it has changed."""
    project, found = settled.project, settled.found
    told = {f"file {each}": _content(each) for each in project.sources_of(found)}
    near = list(_data_near(Path(found.file).parent, project.runs))
    if len(near) <= _NAMED:
        told |= {f"file {each}": _stats([each]) for each in near}
    else:
        told["data beside it"] = _stats(near)
    for name in path_fields(settled.description):
        value = settled.config.get(name)
        for place in value if isinstance(value, list) else [value]:
            if isinstance(place, str):
                told[f"config.{name} {place}"] = _stats(_below(Path(place)))
    model = settled.values.get("model")
    if isinstance(model, str) and Path(model).is_dir():
        told[f"model {model}"] = _stats(_below(Path(model)))
    return told


def _content(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "gone"


def _stats(paths: Iterable[Path]) -> str:
    told = hashlib.sha256()
    for path in sorted(paths):
        try:
            stat = path.stat()
        except OSError:
            continue
        told.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode("utf-8", "replace"))
        told.update(f"{stat.st_ctime_ns}\0{stat.st_ino}\n".encode())
    return told.hexdigest()


def _below(place: Path) -> Iterator[Path]:
    """A file, or all of a folder, as far as one looks."""
    if place.is_file():
        yield place
        return
    left = _MOST
    for folder, folders, names in os.walk(place):
        folders.sort()
        for name in sorted(names)[:left]:
            left -= 1
            yield Path(folder, name)
        if left <= 0:
            return


def _data_near(folder: Path, runs: Path) -> Iterator[Path]:
    left = _MOST
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _NOT_DATA and not name.startswith(".") and Path(place, name) != runs
        )
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        for name in sorted(names):
            if left > 0 and not name.startswith(".") and not name.endswith(_NOT_DATA_ENDS):
                left -= 1
                yield Path(place, name)
