"""The protocol of launchers, which start the supervisors of runs.

A package adds a launcher with an entry point in the group `sparring.launchers`: a class that
implements `Launcher` and takes no arguments.
"""

from __future__ import annotations

import contextlib
from enum import Enum
from typing import Any, Protocol

from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json

Handle = dict[str, Any]  # what a launcher stores to find its supervisor again


class SupervisorPresence(Enum):
    """Whether a run has a supervisor, as far as this host can tell."""

    YES = "yes"
    NO = "no"
    ELSEWHERE = "elsewhere"  # unknown: this host cannot see its process


class Launcher(Protocol):
    """Starts supervisors in one place, such as this machine or a cluster."""

    def start(self, folder: RunFolder, epoch: int) -> Handle:
        """Start the supervisor of this epoch; returns the handle that `look` and `stop` take."""

    def look(self, folder: RunFolder, handle: Handle, after: int) -> SupervisorPresence:
        """Return whether a supervisor of an epoch after `after` is alive or about to start."""

    def stop(self, folder: RunFolder, handle: Handle) -> bool:
        """Cancel a pending start. Return whether there was one."""


def handle_of(folder: RunFolder) -> Handle:
    """Return the handle of the last started supervisor; empty if there is no valid one."""
    with contextlib.suppress(OSError, ValueError):
        handle = read_json(folder.launch)
        numbers = (handle.get(name, 0) for name in ("since_boot", "time", "epoch", "tries"))
        if all(isinstance(number, int | float) for number in numbers):
            return handle
    return {}
