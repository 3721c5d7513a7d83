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

    def look(self, folder: RunFolder, handle: dict[str, Any]) -> Watched:
        """By who made the newest epoch, or was started to make it, and by its beat: one that is
        stopped, or hangs, is as good as gone."""
        started = Identity.from_dict(handle)
        holder = claimant(folder, newest_epoch(folder)) or started
        if holder is None:
            return Watched.NO
        if not holder.is_of_this_host:
            return Watched.ELSEWHERE
        if started is not None and started != holder and started.is_alive:
            beat_at = float(handle.get("since_boot", 0))  # it has not claimed yet
        elif holder.is_alive:
            beat_at = max(self._beat_of(folder, holder), float(handle.get("since_boot", 0)))
        else:
            return Watched.NO
        return Watched.YES if since_boot() - beat_at < SILENT_SECONDS else Watched.NO

    def stop(self, folder: RunFolder, handle: dict[str, Any]) -> bool:  # noqa: ARG002
        """A supervisor of this machine finds the wish in the folder."""
        return False

    def _beat_of(self, folder: RunFolder, holder: Identity) -> float:
        with contextlib.suppress(OSError, ValueError, TypeError):
            told = read_json(folder.supervisor)
            if told.get("pid") == holder.pid and told.get("boot") == boot_id():
                return float(told["since_boot"])
        return 0.0


def is_held(folder: RunFolder) -> bool:
    """Whether a live process works on this run."""
    if not folder.lock.exists():
        return False
    with folder.lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
