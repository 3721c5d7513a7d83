"""Taking turns at a file, with a patience that ends: whoever was stopped in the middle of its turn
must not stop all others."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOK_SECONDS = 0.01


def take_turn(descriptor: int, seconds: float) -> None:
    """Wait for the file's lock, at most so long; then go ahead."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOOK_SECONDS)


@contextmanager
def in_turn(lock: Path, seconds: float) -> Iterator[None]:
    """One process at a time, as a rule; what is done inside must bear two."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        take_turn(descriptor, seconds)
        yield
    finally:
        os.close(descriptor)
