"""Claims on a run: the process that created the file of the newest epoch is its supervisor.

Claim files are created atomically, also on network file systems, and never change. A supervisor
that finds an epoch newer than its own has been replaced, and stops writing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets

from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.runs.processes import ProcessIdentity, identity_of


def newest_epoch(folder: RunFolder) -> int:
    """Return the newest claimed epoch; 0 if there is none."""
    names = os.listdir(folder.epochs) if folder.epochs.is_dir() else []  # noqa: PTH208 - names only
    numbers = [name.removesuffix(".json") for name in names]
    return max((int(text) for text in numbers if text.isascii() and text.isdigit()), default=0)


def claim(folder: RunFolder, epoch: int, job: str = "") -> bool:
    """Claim an epoch. Return False if this epoch or a newer one has already been claimed. `job` is
    the id of the scheduler's job that this process belongs to."""
    folder.epochs.mkdir(exist_ok=True)  # fails for a run that was deleted
    if newest_epoch(folder) >= epoch:
        return False
    temporary = folder.epochs / f".{secrets.token_hex(8)}"
    holder = {"format": 1, **identity_of(os.getpid()).to_dict(), "job": job}
    temporary.write_text(json.dumps(holder))
    try:
        os.link(temporary, folder.epochs / f"{epoch:06d}.json")  # atomic; fails if it exists
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return newest_epoch(folder) == epoch


def job_of_claim(folder: RunFolder, epoch: int) -> str:
    """Return the scheduler's job whose process claimed an epoch; empty if there is none."""
    with contextlib.suppress(OSError, ValueError):
        return str(read_json(folder.epochs / f"{epoch:06d}.json").get("job") or "")
    return ""


def claimant(folder: RunFolder, epoch: int) -> ProcessIdentity | None:
    """Return the process that claimed an epoch; None if the claim is missing or unreadable."""
    with contextlib.suppress(OSError, ValueError):
        return ProcessIdentity.from_dict(read_json(folder.epochs / f"{epoch:06d}.json"))
    return None


def is_held(folder: RunFolder) -> bool:
    """Whether a live process holds the run's lock; also true if the lock cannot be tested."""
    if not folder.lock.exists():
        return False
    try:
        with folder.lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
