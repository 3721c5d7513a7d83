"""Holding a run, and telling facts about it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparring.contracts.errors import SparringError
from sparring.run_folder import RunFolder
from sparring.run_folder.events import note_news, tell

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


def report_event(folder: RunFolder, name: str, **data: Any) -> None:
    """A fact about the run, for whoever decides about its state."""
    attempt = supervised_attempt()
    mine = {} if attempt is None else {"attempt": attempt}
    tell(folder, name, author="worker", **{**mine, **data})
    if attempt is None and name in ("started", "completed", "stopped", "failed"):
        note_news(folder)  # nobody else will


def supervised_attempt() -> int | None:
    """Which attempt of a supervised run this process belongs to; None where nobody supervises."""
    told = os.environ.get("SPARRING_ATTEMPT")
    return int(told) if told else None
