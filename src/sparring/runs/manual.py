"""The manual launcher: a scheduler or a person starts `sparring run supervise RUN`.

It serves schedulers for which Sparring has no launcher, such as Kubernetes, Ray, SkyPilot and
Modal. They place and restart processes; the state of a run is in its folder.
"""

from __future__ import annotations

from sparring.run_folder import RunFolder
from sparring.runs.claims import claimant, newest_epoch
from sparring.runs.launcher import Handle, SupervisorPresence


class Manual:
    """Starts no process: a run stays queued until `sparring run supervise` is started for it."""

    def start(self, folder: RunFolder, epoch: int) -> Handle:
        """Return a handle without starting a supervisor."""
        del folder, epoch
        return {"launcher": "manual"}

    def look(self, folder: RunFolder, handle: Handle, after: int) -> SupervisorPresence:
        """Return YES if the process that claimed the newest epoch is alive on this host. Otherwise
        return ELSEWHERE, so that no operation starts another supervisor."""
        del handle
        newest = newest_epoch(folder)
        holder = claimant(folder, newest) if newest > after else None
        is_here = holder is not None and holder.is_alive
        return SupervisorPresence.YES if is_here else SupervisorPresence.ELSEWHERE

    def stop(self, folder: RunFolder, handle: Handle) -> bool:
        """Return whether no supervisor has claimed the run yet, so that it can end at once."""
        del handle
        return newest_epoch(folder) == 0
