"""File locks with a deadline, so that a process suspended with a lock does not block all others."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_SECONDS = 0.01


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
