"""Starting a run's supervisor, and telling whether it has one that lives.

Starting one too many does no harm: each is started for one epoch, and only the first to claim it
goes on.
"""

from __future__ import annotations

import contextlib
from enum import Enum
from typing import Any, Protocol

from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, write_json
from sparring.runs.processes import since_boot


class Watched(Enum):
    """Whether somebody sees a run through."""

    YES = "yes"
    NO = "no"
    ELSEWHERE = "elsewhere"  # on another host, which cannot be asked from here


class Launcher(Protocol):
    """Where supervisors are started: this machine, a cluster."""

    def start(self, folder: RunFolder, epoch: int) -> dict[str, Any]:
        """Start the supervisor of this epoch; returns what it takes to find it again."""

    def look(self, folder: RunFolder, handle: dict[str, Any], after: int) -> Watched:
        """Whether a supervisor of an epoch after that one lives, or is on its way."""

    def stop(self, folder: RunFolder, handle: dict[str, Any]) -> bool:
        """Take back a start that has come to nothing yet; whether that was so."""


def launcher_of(folder: RunFolder) -> Launcher:
    name = (folder.read_spec().get("supervision") or {}).get("launcher", "local")
    if name == "slurm":
        from sparring.runs.slurm import Slurm

        return Slurm()
    from sparring.runs.local import Local

    return Local()


def launch(folder: RunFolder, epoch: int) -> dict[str, Any]:
    """Start a supervisor to claim that epoch. How often this one was tried is kept: one that
    never gets as far as claiming it must not be started for ever."""
    before = handle_of(folder)
    tries = 1 + (int(before.get("tries", 0)) if before.get("epoch") == epoch else 0)
    handle = launcher_of(folder).start(folder, epoch)
    told = {"format": 1, "since_boot": since_boot(), "epoch": epoch, "tries": tries, **handle}
    write_json(folder.launch, told)
    return told


def handle_of(folder: RunFolder) -> dict[str, Any]:
    """How the supervisor was started last; empty where it never was, or where nobody can tell."""
    with contextlib.suppress(OSError, ValueError):
        told = read_json(folder.launch)
        numbers = (told.get(name, 0) for name in ("since_boot", "epoch", "tries"))
        if all(isinstance(each, int | float) for each in numbers):
            return told
    return {}


def is_watched(folder: RunFolder, after: int = 0) -> Watched:
    """Whether a run has a supervisor. One that waits to begin anew wants another than the one
    that saw it to its last end, which may still be there: `after` is that one's epoch."""
    return launcher_of(folder).look(folder, handle_of(folder), after)
