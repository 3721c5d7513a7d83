"""Holding a run, and telling facts about it."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparring.contracts.errors import SparringError
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line

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


def wait_until_held(folder: RunFolder, seconds: float = 30.0) -> None:
    """For the other ranks of a gang: until rank 0 holds the run and has told that it started.

    What they tell would otherwise come before the start that it belongs to.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if folder.lock.exists():
            with folder.lock.open("a") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(0.1)  # between holding and telling
                    return
        time.sleep(0.05)


def report_event(folder: RunFolder, name: str, **data: Any) -> None:
    """A fact about the run, for whoever decides about its state."""
    event = {"format": 1, "event": name, "time": time.time(), "author": "worker", **data}
    append_line(folder.events, event)
