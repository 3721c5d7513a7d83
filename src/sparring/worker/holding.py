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


@contextmanager
def alone(folder: RunFolder) -> Iterator[None]:
    """Hold the run for as long as this process lives; a second writer would corrupt it."""
    with folder.lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SparringError(
                f"run {folder.id} is being worked on by another process; wait for it, or stop it"
            ) from None
        yield


def report_event(folder: RunFolder, name: str, **data: Any) -> None:
    """A fact about the run, for whoever decides about its state."""
    event = {"format": 1, "event": name, "time": time.time(), "author": "worker", **data}
    append_line(folder.events, event)
