"""The epoch-guarded writer through which a supervisor reads and writes its run's folder.

Every write first checks that this epoch is still current. Events are written even when the disk
is full: space was reserved for them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from sparring.contracts.errors import CasesBroken
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import read_json_or_empty, write_json
from sparring.runs.claims import newest_epoch
from sparring.runs.history import History, HistoryRead, read_history
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import identity_of, since_boot
from sparring.runs.worker_group import WorkerGroup

_BEAT_SECONDS = 1.0
_RESERVED = 256 * 1024
_TRIES = 30


class Superseded(Exception):
    """Another supervisor has replaced this one, or the run was deleted."""


class EpochWriter:
    """Reads and writes one run's folder for one epoch."""

    def __init__(self, folder: RunFolder, epoch: int) -> None:
        self.folder = folder
        self.epoch = epoch
        self.last_report = read_json_or_empty(folder.supervisor)  # the previous supervisor's
        self._earlier_seconds = _number(self.last_report.get("seconds"))
        self._read = HistoryRead()
        self._began = time.monotonic()
        self._beat_at = float("-inf")

    @property
    def history(self) -> History:
        """The history as of the last `look`."""
        return self._read.history

    @property
    def seconds(self) -> float:
        """Seconds of work on the run, including earlier supervisors and before a resume."""
        return self._earlier_seconds + time.monotonic() - self._began

    # ------------------------------------------------------------------ reading

    def look(self) -> History:
        """Read new events and return the history. Raise Superseded if a newer epoch wrote any."""
        self._read = read_history(self.folder, self._read)
        if self.history.epoch > self.epoch:
            raise Superseded
        return self.history

    def check(self) -> None:
        """Raise Superseded unless this epoch is current and the run still exists."""
        if newest_epoch(self.folder) != self.epoch or not self.folder.spec.exists():
            raise Superseded

    # ------------------------------------------------------------------ writing

    def append_event(self, event: str, **data: Any) -> None:
        """Append an event."""
        self.check()
        _print(event, data)
        self._write_when_full(
            lambda: append_event(self.folder, event, author="supervisor", epoch=self.epoch, **data)
        )

    def move(self, state: RunState, **data: Any) -> None:
        """Change the run's state; does nothing if the run is already in it."""
        self.check()
        if self.look().state is state:
            return
        _print(state.value, data)
        self._write_when_full(
            lambda: append_state(self.folder, state, author="supervisor", epoch=self.epoch, **data)
        )
        self.look()

    def beat_if_due(self, workers: WorkerGroup | None) -> bool:
        """Write a heartbeat if the last one is a second old; whether it was written."""
        if time.monotonic() - self._beat_at < _BEAT_SECONDS:
            return False
        self.beat(workers)
        return True

    def beat(self, workers: WorkerGroup | None) -> None:
        """Write the supervisor's heartbeat, with the state of each worker process."""
        self.check()
        self._beat_at = time.monotonic()
        report: dict[str, Any] = {
            "format": 1,
            "epoch": self.epoch,
            "since_boot": since_boot(),
            "time": time.time(),
            "state": self.history.state.value,
            "seconds": round(self.seconds, 1),
            "attempt": self.history.attempt,
            **identity_of(os.getpid()).to_dict(),
            "processes": [],
        }
        if workers:
            report |= workers.to_dict()
        with contextlib.suppress(OSError):  # a full disk must not end the supervisor
            write_json(self.folder.supervisor, report, durable=False)

    def reserve_space(self) -> None:
        """Occupy disk space that `append_event` and `move` can release when the disk is full."""
        with contextlib.suppress(OSError):
            self.folder.reserve.write_bytes(os.urandom(_RESERVED))

    def clear(self) -> None:
        """Remove the files that a run needs only until its end."""
        self.folder.stop_request.unlink(missing_ok=True)
        self.folder.reserve.unlink(missing_ok=True)

    def _write_when_full(self, write: Callable[[], None]) -> None:
        """Write, and on a full disk release the reserved space and retry for a minute."""
        for remaining in range(_TRIES, -1, -1):
            try:
                write()
                return
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not remaining:
                    raise
                self.folder.reserve.unlink(missing_ok=True)
                time.sleep(0.1 if remaining == _TRIES else 2.0)


def _print(event: str, data: Mapping[str, Any]) -> None:
    """Write an event to the supervisor's own log. Of an error while cases were loaded, only the
    first line: the rest may quote held-out cases, and is in the log of the case loader."""
    if data.get("error") == CasesBroken.__name__:
        data = {**data, "message": str(data.get("message", "")).partition("\n")[0]}
    details = " ".join(f"{name}={value}" for name, value in data.items())
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {event} {details}".rstrip(), flush=True)


def _number(value: Any) -> float:
    """Return a count of seconds; 0 for anything else, so that an edited file is harmless."""
    return float(value) if isinstance(value, int | float) and value >= 0 else 0.0
