"""The manual launcher: somebody else starts the supervisors, with `sparring run supervise RUN`.

For schedulers that Sparring does not know: Kubernetes, Ray, SkyPilot, Modal. They place processes
and start them again; the state of a run is in its folder.
"""

from __future__ import annotations

from typing import Any

from sparring.run_folder import RunFolder
from sparring.runs.claims import claimant, newest_epoch
from sparring.runs.launcher import SupervisorPresence


class Manual:
    """Starts nothing: a run waits until a supervisor is started for it."""

    def start(self, folder: RunFolder, epoch: int) -> dict[str, Any]:
        """Return the handle of a start that somebody else makes."""
        del folder, epoch
        return {"launcher": "manual"}

    def look(self, folder: RunFolder, handle: dict[str, Any], after: int) -> SupervisorPresence:
        """Whether the process that claimed the newest epoch runs on this host. Otherwise it counts
        as running elsewhere, or about to: nothing is started in its place."""
        del handle
        newest = newest_epoch(folder)
        holder = claimant(folder, newest) if newest > after else None
        is_here = holder is not None and holder.is_alive
        return SupervisorPresence.YES if is_here else SupervisorPresence.ELSEWHERE

    def stop(self, folder: RunFolder, handle: dict[str, Any]) -> bool:
        """Whether no supervisor has been started yet, so that the run can end at once."""
        del handle
        return newest_epoch(folder) == 0
