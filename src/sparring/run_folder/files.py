"""Writing so that a reader, or the next process, never sees half a file."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.run_folder.turns import take_turn

_TURN_SECONDS = 1.0


def dump_line(value: Mapping[str, Any]) -> bytes:
    """One JSON line. ASCII only: what a model writes may hold lone surrogates."""
    return json.dumps(value, default=repr, separators=(",", ":")).encode("ascii") + b"\n"


def write_json(path: Path, value: Mapping[str, Any], *, durable: bool = True) -> None:
    """Replace `path` in one move; a crash leaves the old file or the new one."""
    _replace(path, json.dumps(value, indent=2, default=repr).encode("ascii") + b"\n", durable)


def write_text(path: Path, text: str) -> None:
    """The same, for what people read."""
    _replace(path, text.encode("utf-8", "replace"), durable=True)


def _replace(path: Path, data: bytes, durable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with aside.open("wb") as file:
        file.write(data)
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


def read_told(path: Path) -> dict[str, Any]:
    """What a file tells that others write now and then; nothing where it cannot be read."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append one whole line; after a torn one, start on a fresh line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = dump_line(value)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        take_turn(descriptor, _TURN_SECONDS)  # two could else land on each other
        end = os.lseek(descriptor, 0, os.SEEK_END)
        if end and os.pread(descriptor, 1, end - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(descriptor, line) :]
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines of an append-only file from a place on, and the place behind them."""

    values: list[dict[str, Any]]
    cursor: int


def read_from(path: Path, cursor: int) -> Lines:
    """What was appended since; a line that is still being written is left for the next time."""
    try:
        with path.open("rb") as file:
            file.seek(cursor)
            block = file.read()
    except FileNotFoundError:
        return Lines([], cursor)
    whole = block[: block.rfind(b"\n") + 1]
    return Lines(
        [value for value in map(_parsed, whole.splitlines()) if value], cursor + len(whole)
    )


def read_tail(path: Path, size: int) -> str:
    """The last of a text file, at most so many bytes; nothing where there is none."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of an append-only file; torn ones are passed over."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            if value := _parsed(line):
                yield value


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def sync_folder(path: Path) -> None:
    """Make a rename in this folder last."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
