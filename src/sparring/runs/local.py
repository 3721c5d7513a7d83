"""Supervisors on this machine: each a process in a session of its own."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import sys
from typing import Any

from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.runs.claims import claimant, newest_epoch
from sparring.runs.launching import Watched
from sparring.runs.processes import Identity, boot_id, identity_of, since_boot

SILENT_SECONDS = 15.0


class Local:
    """Starts supervisors as processes that go on when whoever started them ends."""

    def start(self, folder: RunFolder, epoch: int) -> dict[str, Any]:
        folder.path.joinpath("logs").mkdir(exist_ok=True)
        log = folder.path / "logs" / "supervisor.log"
        command = ["-m", "sparring.runs.supervisor", str(folder.path.resolve()), str(epoch)]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return identity_of(process.pid).to_dict()

    def look(self, folder: RunFolder, handle: dict[str, Any], after: int) -> Watched:
        """By who made the newest epoch, or was started to make it, and by its beat: one that is
        stopped, or hangs, is as good as gone."""
        newest = newest_epoch(folder)
        holder = claimant(folder, newest) if newest > after else None
        started = Identity.from_dict(handle) if int(handle.get("epoch", 0)) > after else None
        known = [each for each in (holder, started) if each is not None]
        alive = [each for each in known if each.is_alive and self._is_awake(folder, each, handle)]
        if alive:
            return Watched.YES
        is_elsewhere = holder is not None and not holder.is_of_this_host
        return Watched.ELSEWHERE if is_elsewhere else Watched.NO

    def stop(self, folder: RunFolder, handle: dict[str, Any]) -> bool:  # noqa: ARG002
        """A supervisor of this machine finds the wish in the folder."""
        return False

    def _is_awake(self, folder: RunFolder, who: Identity, handle: dict[str, Any]) -> bool:
        is_last = Identity.from_dict(handle) == who
        heard_at = float(handle.get("since_boot", 0.0)) if is_last else 0.0
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            told = read_json(folder.supervisor)
            if told.get("pid") == who.pid and told.get("boot") == boot_id():
                heard_at = max(heard_at, float(told["since_boot"]))
        return since_boot() - heard_at < SILENT_SECONDS


def is_held(folder: RunFolder) -> bool:
    """Whether a live process works on this run; where the file system cannot tell, it may be."""
    if not folder.lock.exists():
        return False
    with folder.lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
