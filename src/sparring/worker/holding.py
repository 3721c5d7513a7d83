"""Holding a run, and telling facts about it."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparring.contracts.errors import SparringError
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line, read_lines

_TRIES = 25


@contextmanager
def alone(folder: RunFolder) -> Iterator[None]:
    """Hold the run for as long as this process lives; a second writer would corrupt it.

    Whoever asks for a run's state holds its lock for an instant, so it is tried for a while.
    """
    with folder.lock.open("a") as file:
        for remaining in range(_TRIES, -1, -1):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not remaining:
                    raise SparringError(
                        f"run {folder.id} is being worked on by another process; wait for it, "
                        "or stop it"
                    ) from None
                time.sleep(0.02)
        yield


def wait_until_started(folder: RunFolder, seconds: float = 60.0) -> None:
    """For the other ranks of a gang: until rank 0 has told that it started.

    What they tell would otherwise come before the start that it belongs to.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        told = [event.get("event") for event in read_lines(folder.events)]
        if [name for name in told if name in ("queued", "started")][-1:] == ["started"]:
            return
        time.sleep(0.2)


def report_event(folder: RunFolder, name: str, **data: Any) -> None:
    """A fact about the run, for whoever decides about its state."""
    event = {"format": 1, "event": name, "time": time.time(), "author": "worker", **data}
    append_line(folder.events, event)


def seconds_worked(folder: RunFolder) -> float:
    """How long earlier attempts took, from each start to the last that was told of it."""
    total, since, last = 0.0, None, 0.0
    for event in read_lines(folder.events):
        now = float(event.get("time", last))
        if event.get("event") in ("queued", "started"):
            total += last - since if since is not None else 0.0
            since = now if event["event"] == "started" else None
        last = now
    return total
