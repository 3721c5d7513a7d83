"""A lock keeps others out while it is held, and delays nobody for longer than the deadline."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from sparring.run_folder.file_locks import file_lock, wait_for_lock


def is_free(lock: Path) -> bool:
    """Whether another descriptor gets the lock at once."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def test_a_lock_is_held_while_the_body_runs_and_free_after_it(tmp_path: Path) -> None:
    lock = tmp_path / "new" / "folder" / "a.lock"
    with file_lock(lock, 1.0):
        assert not is_free(lock)
    assert is_free(lock)


def test_a_body_that_raises_gives_the_lock_back(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    with pytest.raises(KeyError), file_lock(lock, 1.0):
        raise KeyError
    assert is_free(lock)


def test_after_the_deadline_the_body_runs_without_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    ran: list[float] = []
    with file_lock(lock, 1.0):
        started = time.monotonic()
        with file_lock(lock, 0.05):
            ran.append(time.monotonic() - started)
        assert not is_free(lock)  # the first holder still has it
    assert ran[0] >= 0.05


def test_a_lock_that_is_given_back_is_taken_before_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder closes its descriptor while the other one waits."""
    lock = tmp_path / "a.lock"
    holder, waiter = (os.open(lock, os.O_RDWR | os.O_CREAT) for _ in range(2))
    fcntl.flock(holder, fcntl.LOCK_EX)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        os.close(holder)

    monkeypatch.setattr(time, "sleep", nap)
    wait_for_lock(waiter, 60.0)
    assert len(naps) == 1
    assert not is_free(lock)
    os.close(waiter)
