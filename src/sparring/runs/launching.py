"""Starting a run's supervisor, and telling whether it has one that lives.

Starting one too many does no harm: only the first to claim the next epoch goes on.
"""

from __future__ import annotations

import contextlib
from enum import Enum
from typing import Any, Protocol

from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, write_json
from sparring.runs.claims import newest_epoch
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

    def look(self, folder: RunFolder, handle: dict[str, Any]) -> Watched:
        """Whether the supervisor that was started lives."""

    def stop(self, folder: RunFolder, handle: dict[str, Any]) -> bool:
        """Take back a start that has come to nothing yet; whether that was so."""


def launcher_of(folder: RunFolder) -> Launcher:
    name = (folder.read_spec().get("supervision") or {}).get("launcher", "local")
    if name == "slurm":
        from sparring.runs.slurm import Slurm

        return Slurm()
    from sparring.runs.local import Local

    return Local()


def launch(folder: RunFolder) -> dict[str, Any]:
    """Start the next supervisor of a run."""
    handle = launcher_of(folder).start(folder, newest_epoch(folder) + 1)
    told = {"format": 1, "since_boot": since_boot(), **handle}
    write_json(folder.launch, told)
    return told


def handle_of(folder: RunFolder) -> dict[str, Any]:
    """How the supervisor was started last; empty where it never was."""
    with contextlib.suppress(OSError, ValueError):
        return read_json(folder.launch)
    return {}


def is_watched(folder: RunFolder) -> Watched:
    handle = handle_of(folder)
    return launcher_of(folder).look(folder, handle) if handle else Watched.NO
