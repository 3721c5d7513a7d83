"""The lock of a run, and the events that its process reports."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparring.contracts.errors import SparringError
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, note_change

_TRIES = 25


@contextmanager
def hold_run(folder: RunFolder) -> Iterator[None]:
    """Hold the run's lock, because a second writer would corrupt the run.

    Processes that read the run's state also take the lock for an instant, so this function retries
    for half a second, and then raises SparringError.
    """
    with folder.lock.open("a") as file:
        for remaining in range(_TRIES, -1, -1):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not remaining:
                    raise SparringError(
                        f"run {folder.id} is in use by another process; wait for it, or stop it"
                    ) from None
                time.sleep(0.02)
        yield


def report_event(folder: RunFolder, name: str, **data: Any) -> None:
    """Append an event to the run's history, from which the supervisor derives the run's state."""
    attempt = supervised_attempt()
    origin = {} if attempt is None else {"attempt": attempt}
    append_event(folder, name, author="worker", **{**origin, **data})
    if attempt is None and name in ("started", "completed", "stopped", "failed"):
        note_change(folder)  # otherwise the supervisor does this


def supervised_attempt() -> int | None:
    """Return the attempt that this process belongs to; None without a supervisor."""
    value = os.environ.get("SPARRING_ATTEMPT")
    return int(value) if value else None
