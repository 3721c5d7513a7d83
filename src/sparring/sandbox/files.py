"""Reads and writes a workspace from outside the sandbox.

Programs in the sandbox control the whole workspace, so its content is untrusted: symbolic links
are never followed, only regular files are opened, and every read has a limit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparring.contracts.errors import InfrastructureError, InvalidInput

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_DEPTH = 32


class OutsideWorkspace(InvalidInput):
    """A path that leaves the workspace, contains a link, or is not a regular file."""


def read_bytes(root: Path, name: str, most: int) -> bytes:
    """Return up to `most` bytes of a regular file."""
    *folders, last = parts_of(name)
    with _open_folder(root, folders) as folder:
        descriptor = _open_file(last, os.O_RDONLY, folder, name)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(most)


def write_bytes(root: Path, name: str, content: bytes, owner: int | None = None) -> None:
    """Create or replace a regular file, and its missing parent folders."""
    *folders, last = parts_of(name)
    with _open_folder(root, folders, owner=owner, make=True) as folder:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        descriptor = _open_file(last, flags, folder, name)
        with os.fdopen(descriptor, "wb") as file:
            if owner is not None:
                os.fchown(descriptor, owner, owner)
            file.write(content)


def list_files(root: Path, most: int) -> list[str]:
    """Return up to `most` names of files and folders, sorted; folders end with a slash."""
    names: list[str] = []
    pending = [""]
    while pending and len(names) < most:
        prefix = pending.pop()
        for name, is_folder in _entries(root, prefix):
            if len(names) >= most:
                break
            path = f"{prefix}{name}"
            names.append(f"{path}/" if is_folder else path)
            if is_folder:
                pending.append(f"{path}/")
    return sorted(names)


def parts_of(name: str) -> list[str]:
    """Split a path in the workspace into its parts; `/workspace/x` means `x`."""
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded or len(encoded) > 1024:
        raise OutsideWorkspace("a file name must be text of at most 1024 bytes, without zero bytes")
    relative = name.removeprefix("/workspace/")
    if relative.startswith("/") or relative in ("", ".", "/workspace"):
        raise OutsideWorkspace(f"{name!r} is not a file of the workspace")
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    if ".." in parts or not parts or len(parts) > _MAX_DEPTH:
        raise OutsideWorkspace(
            f"{name!r} leads out of the workspace, or has more than {_MAX_DEPTH} parts"
        )
    return parts


def _entries(root: Path, prefix: str) -> list[tuple[str, bool]]:
    try:
        parts = parts_of(prefix) if prefix else []
        with _open_folder(root, parts) as folder, os.scandir(folder) as entries:
            return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except (OSError, InvalidInput):  # the folder has disappeared or cannot be read
        return []


@contextmanager
def _open_folder(
    root: Path, parts: list[str], *, owner: int | None = None, make: bool = False
) -> Iterator[int]:
    """Open a folder of the workspace without following links. With `make`, missing folders are
    created and given to `owner`."""
    try:
        current = os.open(root, _DIRECTORY)
    except PermissionError:  # a program removed the permissions
        raise
    except OSError as error:
        raise InfrastructureError(f"the workspace is gone: {error}") from error
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


def _open_file(name: str, flags: int, folder: int, path: str) -> int:
    """Open a regular file. Never blocks, even if the name is a pipe's."""
    try:
        descriptor = os.open(
            name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=folder
        )
    except OSError as error:
        if error.errno in (40, 6):  # ELOOP: a link; ENXIO: a socket, or a pipe without a reader
            raise OutsideWorkspace(f"{path!r} is not a plain file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OutsideWorkspace(f"{path!r} is not a plain file")
    return descriptor
