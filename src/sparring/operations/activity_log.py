"""The activity log: an append-only file in which each entry carries the digest of the previous one.

A head file holds the last digest, so that `verify` detects an edit, a gap or a truncated end. It
does not detect a rewrite of the whole log with recomputed digests by a person who can write to the
folder. To detect that, store the last digest elsewhere and compare.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sparring.contracts.errors import ActivityLogBusy
from sparring.contracts.json import JsonObject
from sparring.run_folder.files import dump_line, read_json_or_empty, write_json

DAY_SECONDS = 86_400.0
_CLOCK_ERROR_SECONDS = 7 * DAY_SECONDS
_LOCK_SECONDS = 10.0
_POLL_SECONDS = 0.002
_BLOCK = 1 << 16
START = "0" * 64


class CallOutcome(StrEnum):
    """The stage of a call that an entry records: its request or its end."""

    REQUESTED = "requested"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LogFault:
    """A failed check, and the entry at which it failed."""

    number: int
    message: str


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """The result of verifying a log."""

    entries: int
    digest: str
    faults: tuple[LogFault, ...]
    is_torn: bool = False  # an incomplete line follows the last entry


class ActivityLog:
    """The log of one folder of runs."""

    def __init__(self, runs: Path) -> None:
        self.path = path = runs / ".sparring" / "activity.jsonl"
        self._head = path.with_suffix(".head.json")
        self._lock = path.with_suffix(".lock")

    def append(
        self, entry: JsonObject, allowed: Callable[[ActivityLog], None] | None = None
    ) -> None:
        """Append one entry, synced to disk before this returns. `allowed` may refuse it by raising
        an error; it runs under the lock, so no entry comes between its check and this one."""
        with self._locked():
            if allowed is not None:
                allowed(self)
            last = next(self.backwards(), None)
            number = 1 if last is None else int(last["number"]) + 1
            previous = START if last is None else str(last["digest"])
            line = dump_line({"format": 1, "number": number, **entry, "before": previous})
            stored = json.loads(line)  # the digest is of the values that `verify` reads
            digest = _digest(stored)
            self._write(dump_line({**stored, "digest": digest}))
            write_json(self._head, {"format": 1, "number": number, "digest": digest})

    def backwards(self) -> Iterator[JsonObject]:
        """Yield the entries from the last to the first, reading the file as needed."""
        for line in _lines_backwards(self.path):
            value = _parse(line)
            if value is not None and "digest" in value and "number" in value:
                yield value

    def verify(self) -> CheckedLog:
        """Verify every entry; each fault is reported once."""
        faults: list[LogFault] = []
        number, previous = 0, START
        head = read_json_or_empty(self._head)
        has_seen_head = False
        for line in _complete_lines(self.path):
            number += 1
            value = _parse(line)
            if value is None or dump_line(value) != line or not _has_valid_digest(value):
                faults.append(
                    LogFault(number, "was changed: its digest does not match its content")
                )
            elif value.get("before") != previous or value.get("number") != number:
                message = (
                    f"does not follow the entry before it: its number is {value.get('number')}"
                )
                faults.append(LogFault(number, message))
            previous = str((value or {}).get("digest", ""))
            number = _number(value, number)
            has_seen_head |= (number, previous) == (head.get("number"), head.get("digest"))
        if not head and number:
            message = f"the head file {self._head.name} is missing or empty"
            faults.append(LogFault(number, message))
        elif head and not has_seen_head:
            message = f"the end is missing: entry {head.get('number')} was the last one"
            faults.append(LogFault(number, message))
        return CheckedLog(number, previous, tuple(faults), _is_torn(self.path))

    def starts_today(self, now: float | None = None) -> int:
        """Count the runs that operators started or resumed in the last 24 hours.

        Refusals and calls that started nothing new do not count. A request without an outcome
        counts, because it may have started a run.
        """
        since = (time.time() if now is None else now) - DAY_SECONDS
        uncounted: set[str] = set()
        count = 0
        for entry in self.backwards():
            when = float(entry.get("time", 0.0))
            if when < since - _CLOCK_ERROR_SECONDS:
                break
            if when < since:  # a clock may have been wrong: an earlier line can have a later time
                continue
            if entry.get("role") == "owner" or not entry.get("starts"):
                continue
            if (
                entry["outcome"] == CallOutcome.REFUSED
                or entry.get("result", {}).get("is_new") is False
            ):
                uncounted.add(entry["call"])
            elif entry["outcome"] == CallOutcome.REQUESTED and entry["call"] not in uncounted:
                count += 1
        return count

    # ------------------------------------------------------------------ inside

    def _write(self, line: bytes) -> None:
        """Append a line. A partial line of a killed process is removed: its call never returned."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            end = _complete_end(descriptor)
            os.ftruncate(descriptor, end)
            os.lseek(descriptor, end, os.SEEK_SET)
            while line:
                line = line[os.write(descriptor, line) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, or raise ActivityLogBusy after 10 s: without the lock, two entries could
        get the same number, which `verify` would report as a fault."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + _LOCK_SECONDS
            while not _try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise ActivityLogBusy(
                        f"{self.path} has been locked by another process for {_LOCK_SECONDS:g} s, "
                        "and no operation runs without being logged; try again"
                    )
                time.sleep(_POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _digest(value: JsonObject) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()


def _has_valid_digest(value: JsonObject) -> bool:
    content = {name: field for name, field in value.items() if name != "digest"}
    return bool(value.get("digest") == _digest(content))


def _is_torn(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return _complete_end(descriptor) != os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def _number(value: JsonObject | None, counted: int) -> int:
    """Return the number in the entry, if valid, so that a gap is reported as one fault."""
    number = (value or {}).get("number")
    return number if isinstance(number, int) and number > 0 else counted


def _parse(line: bytes) -> JsonObject | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _complete_lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line
    except FileNotFoundError:
        return


def _complete_end(descriptor: int) -> int:
    """Return the offset after the last complete line."""
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
        end, rest = _complete_end(descriptor), b""
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
