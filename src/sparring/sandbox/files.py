"""Reading and writing a workspace from outside, where every name in it may be a trap.

No component of a path is ever followed if it is a link, nothing but plain files is opened, and
nothing is read beyond a limit: a workspace belongs to the program that ran in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparring.contracts.errors import InvalidInput

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 32


class OutsideWorkspace(InvalidInput):
    """A path that leads out of the workspace, or through a link."""


def read_bytes(root: Path, name: str, most: int) -> bytes:
    """At most so many bytes of a plain file."""
    *folders, last = parts_of(name)
    with _folder(root, folders) as folder:
        descriptor = _opened(last, os.O_RDONLY, folder, name)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(most)


def write_bytes(root: Path, name: str, content: bytes, owner: int | None = None) -> None:
    """Replace a plain file, or make it; folders on the way are made."""
    *folders, last = parts_of(name)
    with _folder(root, folders, owner=owner, make=True) as folder:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        descriptor = _opened(last, flags, folder, name)
        with os.fdopen(descriptor, "wb") as file:
            if owner is not None:
                os.fchown(descriptor, owner, owner)
            file.write(content)


def list_files(root: Path, most: int) -> list[str]:
    """Names of what is in the workspace, folders with a slash behind, at most so many."""
    found: list[str] = []
    waiting = [""]
    while waiting and len(found) < most:
        prefix = waiting.pop()
        for name, is_folder in _entries(root, prefix):
            if len(found) >= most:
                break
            path = f"{prefix}{name}"
            found.append(f"{path}/" if is_folder else path)
            if is_folder:
                waiting.append(f"{path}/")
    return sorted(found)


def parts_of(name: str) -> list[str]:
    """A name inside the workspace, in parts; `/workspace/x` means `x`."""
    if "\0" in name or len(name) > 1024:
        raise OutsideWorkspace("a file name must be short and without zero bytes")
    given = name.removeprefix("/workspace/")
    if given.startswith("/") or given in ("", ".", "/workspace"):
        raise OutsideWorkspace(f"{name!r} is not a file of the workspace")
    parts = [part for part in given.split("/") if part not in ("", ".")]
    if ".." in parts or not parts or len(parts) > _DEEPEST:
        raise OutsideWorkspace(f"{name!r} leads out of the workspace")
    return parts


def _entries(root: Path, prefix: str) -> list[tuple[str, bool]]:
    try:
        parts = parts_of(prefix) if prefix else []
        with _folder(root, parts) as folder, os.scandir(folder) as entries:
            return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except (OSError, InvalidInput):  # gone meanwhile, or not ours to read
        return []


@contextmanager
def _folder(
    root: Path, parts: list[str], *, owner: int | None = None, make: bool = False
) -> Iterator[int]:
    """A descriptor of a folder in the workspace, reached without following anything."""
    current = os.open(root, _DIRECTORY)
    try:
        for part in parts:
            if make:
                try:
                    os.mkdir(part, 0o755, dir_fd=current)
                    if owner is not None:
                        os.chown(part, owner, owner, dir_fd=current, follow_symlinks=False)
                except FileExistsError:
                    pass
            try:
                below = os.open(part, _DIRECTORY, dir_fd=current)
            except NotADirectoryError as error:
                raise OutsideWorkspace(f"{part!r} is not a folder of the workspace") from error
            os.close(current)
            current = below
        yield current
    finally:
        os.close(current)


def _opened(name: str, flags: int, folder: int, told: str) -> int:
    """Never waits: a pipe in place of a file would hold the caller up for ever."""
    try:
        descriptor = os.open(
            name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=folder
        )
    except OSError as error:
        if error.errno in (40, 6):  # ELOOP: a link; ENXIO: a pipe or socket without a reader
            raise OutsideWorkspace(f"{told!r} is not a plain file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OutsideWorkspace(f"{told!r} is not a plain file")
    return descriptor
