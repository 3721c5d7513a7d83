"""Writing so that a reader, or the next process, never sees half a file."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def dump_line(value: Mapping[str, Any]) -> bytes:
    """One JSON line. ASCII only: what a model writes may hold lone surrogates."""
    return json.dumps(value, default=repr, separators=(",", ":")).encode("ascii") + b"\n"


def write_json(path: Path, value: Mapping[str, Any], *, durable: bool = True) -> None:
    """Replace `path` in one move; a crash leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with aside.open("wb") as file:
        file.write(json.dumps(value, indent=2, default=repr).encode("ascii") + b"\n")
        if durable:
            file.flush()
            os.fsync(file.fileno())
    aside.replace(path)
    if durable:
        sync_folder(path.parent)


def read_json(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    return value


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append one whole line; after a torn one, start on a fresh line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = dump_line(value)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        if end and os.pread(descriptor, 1, end - 1) != b"\n":
            line = b"\n" + line
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of an append-only file; torn ones are passed over."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def sync_folder(path: Path) -> None:
    """Make a rename in this folder last."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
