"""Atomic writes and append-only JSON lines: readers see neither partial files nor partial lines.

Locks have a deadline, so that a process suspended with a lock does not block all others.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.json import JsonObject

_POLL_SECONDS = 0.01
_LOCK_SECONDS = 1.0


def wait_for_lock(descriptor: int, seconds: float) -> None:
    """Wait up to `seconds` for the file's lock, and return with or without it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_POLL_SECONDS)


@contextmanager
def file_lock(lock: Path, seconds: float) -> Iterator[None]:
    """Hold the lock while the body runs. If the lock is not free within `seconds`, the body runs
    without it, so it must tolerate a second process."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        wait_for_lock(descriptor, seconds)
        yield
    finally:
        os.close(descriptor)


def dump_line(value: Mapping[str, object]) -> bytes:
    """Return one JSON line, in ASCII, because model output may contain lone surrogates."""
    return json.dumps(value, default=repr, separators=(",", ":")).encode("ascii") + b"\n"


def write_json(path: Path, value: JsonObject, *, durable: bool = True) -> None:
    """Replace `path` atomically: a crash leaves the old file or the new one. Without `durable`, a
    power loss may leave neither; this is for files that are rewritten every second."""
    data = json.dumps(value, indent=2 if durable else None, default=repr).encode("ascii") + b"\n"
    _replace(path, data, durable)


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically and durably."""
    _replace(path, text.encode("utf-8", "replace"), durable=True)


def _replace(path: Path, data: bytes, durable: bool) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        file = temporary.open("wb")
    except FileNotFoundError:  # checked only on failure, to save a call to a file server
        path.parent.mkdir(parents=True, exist_ok=True)
        file = temporary.open("wb")
    with file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
    if durable:
        sync_folder(path.parent)


def read_json(path: Path) -> JsonObject:
    """Return the JSON object in a file; raises ValueError if it contains anything else."""
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    return value


def read_json_or_empty(path: Path) -> JsonObject:
    """Return the JSON object in a file; an empty one if the file is missing or unreadable."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}


def append_line(path: Path, value: JsonObject, *, durable: bool = False) -> None:
    """Append one complete line, after a newline if the last line is torn. With `durable`, the line
    survives a power loss once this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = dump_line(value)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        wait_for_lock(descriptor, _LOCK_SECONDS)  # concurrent writers could mix their lines
        end = os.lseek(descriptor, 0, os.SEEK_END)
        if end and os.pread(descriptor, 1, end - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(descriptor, line) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Lines:
    """Complete lines of an append-only file, and the offset after the last of them."""

    values: list[JsonObject]
    cursor: int


def read_from(path: Path, cursor: int) -> Lines:
    """Read the lines after an offset; an unfinished last line is left for the next call."""
    try:
        with path.open("rb") as file:
            file.seek(cursor)
            block = file.read()
    except FileNotFoundError:
        return Lines([], cursor)
    complete = block[: block.rfind(b"\n") + 1]
    values = [value for value in map(_parse, complete.splitlines()) if value]
    return Lines(values, cursor + len(complete))


def read_tail(path: Path, size: int) -> str:
    """Return the last `size` bytes of a text file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def read_lines(path: Path) -> Iterator[JsonObject]:
    """Yield the JSON objects of an append-only file; torn and malformed lines are skipped."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            if value := _parse(line):
                yield value


def _parse(line: bytes) -> JsonObject:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def sync_files(folder: Path) -> None:
    """Sync a folder and the files in it, so that they survive a power loss."""
    for path in (*folder.iterdir(), folder):
        sync_folder(path)


def sync_folder(path: Path) -> None:
    """Sync a folder, so that renames in it survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
