"""The local launcher: each supervisor is a process of this host with its own session."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import sys

from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.runs.claims import claimant, newest_epoch
from sparring.runs.launcher import Handle, SupervisorPresence
from sparring.runs.processes import ProcessIdentity, boot_id, identity_of, since_boot

SILENT_SECONDS = 15.0


class Local:
    """Starts supervisors as processes that outlive their parent."""

    def start(self, folder: RunFolder, epoch: int) -> Handle:
        """Start the supervisor; its handle is its process identity."""
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

    def look(self, folder: RunFolder, handle: Handle, after: int) -> SupervisorPresence:
        """Check the process that claimed the newest epoch, and the process started last. A process
        without a heartbeat for 15 s is suspended or hung, and counts as dead."""
        newest = newest_epoch(folder)
        holder = claimant(folder, newest) if newest > after else None
        started = ProcessIdentity.from_dict(handle) if int(handle.get("epoch", 0)) > after else None
        for process in (holder, started):
            if process and process.is_alive and self._is_responsive(folder, process, handle):
                return SupervisorPresence.YES
        is_elsewhere = holder is not None and not holder.is_of_this_host
        return SupervisorPresence.ELSEWHERE if is_elsewhere else SupervisorPresence.NO

    def stop(self, folder: RunFolder, handle: Handle) -> bool:  # noqa: ARG002
        """Return False: local starts are never pending. A supervisor reads stop requests itself."""
        return False

    def _is_responsive(self, folder: RunFolder, process: ProcessIdentity, handle: Handle) -> bool:
        is_last = ProcessIdentity.from_dict(handle) == process
        heard_at = float(handle.get("since_boot", 0.0)) if is_last else 0.0
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            beat = read_json(folder.supervisor)
            if beat.get("pid") == process.pid and beat.get("boot") == boot_id():
                heard_at = max(heard_at, float(beat["since_boot"]))
        return since_boot() - heard_at < SILENT_SECONDS


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
