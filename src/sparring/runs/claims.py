"""Who supervises a run: whoever made the file of the newest epoch.

A file is made once and never changed, also on a shared file system. A supervisor that finds a
newer epoch than its own has been replaced, and does nothing any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets

from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.runs.processes import Identity, identity_of


def newest_epoch(folder: RunFolder) -> int:
    names = os.listdir(folder.epochs) if folder.epochs.is_dir() else []  # noqa: PTH208 - names only
    numbers = [name.removesuffix(".json") for name in names]
    return max((int(each) for each in numbers if each.isascii() and each.isdigit()), default=0)


def claim(folder: RunFolder, epoch: int) -> bool:
    """Whether this process is the supervisor of that epoch, and no other ever was or will be."""
    folder.epochs.mkdir(exist_ok=True)  # of a run that is there: none is made here
    if newest_epoch(folder) >= epoch:
        return False
    aside = folder.epochs / f".{secrets.token_hex(8)}"
    aside.write_text(json.dumps({"format": 1, **identity_of(os.getpid()).to_dict()}))
    try:
        os.link(aside, folder.epochs / f"{epoch:06d}.json")  # in one move, and only once
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    return newest_epoch(folder) == epoch


def claimant(folder: RunFolder, epoch: int) -> Identity | None:
    """The process that made an epoch its own."""
    with contextlib.suppress(OSError, ValueError):
        return Identity.from_dict(read_json(folder.epochs / f"{epoch:06d}.json"))
    return None
