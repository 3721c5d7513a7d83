"""An append-only file whose entries hold on to one another: each carries the digest of the one
before, and a second file remembers the last. An edit, a gap or a cut end shows.

It keeps nobody out who can write to the folder and makes the digests anew; whoever wants to know
that, too, keeps the last digest elsewhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.errors import TrailBusy
from sparring.run_folder.files import dump_line, read_told, write_json

_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.002
_BLOCK = 1 << 16
START = "0" * 64


@dataclass(frozen=True, slots=True)
class Fault:
    """What does not hold, and from which entry on."""

    number: int
    message: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A chain that was read from end to end."""

    entries: int
    digest: str
    faults: tuple[Fault, ...]
    is_torn: bool = False  # something follows that is no whole entry


class Chain:
    """One such file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._head = path.with_suffix(".head.json")
        self._lock = path.with_suffix(".lock")

    def append(
        self, entry: Mapping[str, Any], allowed: Callable[[Chain], None] | None = None
    ) -> None:
        """One whole entry, on disk before this returns. `allowed` may refuse by raising; nobody
        else appends between its look and the entry."""
        with self._held():
            if allowed is not None:
                allowed(self)
            last = next(self.backwards(), None)
            number = 1 if last is None else int(last["number"]) + 1
            before = START if last is None else str(last["digest"])
            line = dump_line({"format": 1, "number": number, **entry, "before": before})
            whole = json.loads(line)  # as it will be read back
            digest = _digest(whole)
            self._write(dump_line({**whole, "digest": digest}))
            write_json(self._head, {"format": 1, "number": number, "digest": digest})

    def backwards(self) -> Iterator[dict[str, Any]]:
        """Entries from the last to the first, without reading more than is asked for."""
        for line in _lines_backwards(self.path):
            value = _parsed(line)
            if value is not None and "digest" in value and "number" in value:
                yield value

    def verify(self) -> Checked:
        """Read all of it; what is wrong is told once for each place."""
        faults: list[Fault] = []
        number, before = 0, START
        head = read_told(self._head)
        seen_head = False
        for line in _whole_lines(self.path):
            number += 1
            value = _parsed(line)
            if value is None or dump_line(value) != line or not _is_its_own(value):
                faults.append(Fault(number, "was changed: its digest is not that of its words"))
            elif value.get("before") != before or value.get("number") != number:
                told = value.get("number")
                faults.append(
                    Fault(number, f"does not follow the one before: it says it is number {told}")
                )
            before = str((value or {}).get("digest", ""))
            number = _number(value, number)
            seen_head |= (number, before) == (head.get("number"), head.get("digest"))
        if not head and number:
            faults.append(Fault(number, "the note of the last entry is missing, or was emptied"))
        elif head and not seen_head:
            faults.append(
                Fault(number, f"the end is missing: entry {head.get('number')} was there")
            )
        return Checked(number, before, tuple(faults), _is_torn(self.path))

    # ------------------------------------------------------------------ inside

    def _write(self, line: bytes) -> None:
        """What a process left half-written when it was killed was never answered, and goes."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            end = _whole_end(descriptor)
            os.ftruncate(descriptor, end)
            os.lseek(descriptor, end, os.SEEK_SET)
            while line:
                line = line[os.write(descriptor, line) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """One at a time, without exception: two ends would look like an edit."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while not _taken(descriptor):
                if time.monotonic() > deadline:
                    raise TrailBusy(
                        f"{self.path} has been held by another process for "
                        f"{_PATIENCE_SECONDS:g} s, and nothing happens off the record; try again"
                    )
                time.sleep(_LOOK_SECONDS)
            yield
        finally:
            os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()


def _without_digest(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name != "digest"}


def _is_its_own(value: Mapping[str, Any]) -> bool:
    return bool(value.get("digest") == _digest(_without_digest(value)))


def _is_torn(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return _whole_end(descriptor) != os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def _number(value: Mapping[str, Any] | None, counted: int) -> int:
    """Go on from what an entry says of itself, so that one gap is one fault."""
    told = (value or {}).get("number")
    return told if isinstance(told, int) and told > 0 else counted


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _whole_lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line
    except FileNotFoundError:
        return


def _whole_end(descriptor: int) -> int:
    """Where the last whole line ends."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    while end:
        start = max(0, end - _BLOCK)
        block = os.pread(descriptor, end - start, start)
        if (found := block.rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0


def _lines_backwards(path: Path) -> Iterator[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        end, rest = _whole_end(descriptor), b""
        while end:
            start = max(0, end - _BLOCK)
            block = os.pread(descriptor, end - start, start) + rest
            first, *others = block.split(b"\n")
            for line in reversed(others):
                if line:
                    yield line
            rest, end = first, start
        if rest:
            yield rest
    finally:
        os.close(descriptor)
