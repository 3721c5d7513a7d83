"""The epoch-guarded writer through which a supervisor reads and writes its run's folder.

Before each event, state and heartbeat, the writer checks that its epoch is still current. Disk
space is reserved for events, and released to write them when the disk is full.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from typing import Any

from sparring.contracts.errors import CasesBroken
from sparring.contracts.json import JsonObject
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
        self.last_report = read_json_or_empty(folder.supervisor)  # by the previous supervisor
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
        """Seconds of supervision by this and all earlier supervisors, also before a resume."""
        return self._earlier_seconds + time.monotonic() - self._began

    def count_time_without(self) -> None:
        """Count the time between the previous supervisor's last report and this supervisor's start,
        in which the processes that this one has adopted worked on."""
        last = _number(self.last_report.get("since_boot"))
        gap = since_boot() - last - (time.monotonic() - self._began)
        self._earlier_seconds += max(0.0, gap)

    # ------------------------------------------------------------------ reading

    def look(self) -> History:
        """Read new events and return the history. Raise Superseded if one has a newer epoch."""
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
        """Append an event with the author `supervisor` and this epoch."""
        self.check()
        _print(event, data)
        self._write_when_full(
            lambda: append_event(self.folder, event, author="supervisor", epoch=self.epoch, **data)
        )

    def move(self, state: RunState, **data: Any) -> None:
        """Append a change of state, unless the run is already in this state."""
        self.check()
        if self.look().state is state:
            return
        _print(state.value, data)
        self._write_when_full(
            lambda: append_state(self.folder, state, author="supervisor", epoch=self.epoch, **data)
        )
        self.look()

    def beat_if_due(self, workers: WorkerGroup | None) -> bool:
        """Write a heartbeat if the last one is at least a second old. Return whether it wrote
        one."""
        if time.monotonic() - self._beat_at < _BEAT_SECONDS:
            return False
        self.beat(workers)
        return True

    def beat(self, workers: WorkerGroup | None) -> None:
        """Write the supervisor's heartbeat, with the state of each process of `workers`."""
        self.check()
        self._beat_at = time.monotonic()
        report: JsonObject = {
            "format": 1,
            "epoch": self.epoch,
            "since_boot": since_boot(),
            "time": time.time(),
            "state": self.history.state.value,
            "seconds": round(self.seconds, 1),
            "attempt": self.history.attempt.number,
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
        """Remove the stop request and the reserved space."""
        self.folder.stop_request.unlink(missing_ok=True)
        self.folder.reserve.unlink(missing_ok=True)

    def _write_when_full(self, write: Callable[[], None]) -> None:
        """Call `write`. If the disk is full, release the reserved space and retry for a minute."""
        for remaining in range(_TRIES, -1, -1):
            try:
                write()
                return
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not remaining:
                    raise
                self.folder.reserve.unlink(missing_ok=True)
                time.sleep(0.1 if remaining == _TRIES else 2.0)


def _print(event: str, data: JsonObject) -> None:
    """Print an event to the supervisor's log. The message of `CasesBroken` is cut to its first
    line, because the rest may quote held-out cases; the run's events hold all of it."""
    if data.get("error") == CasesBroken.__name__:
        data = {**data, "message": str(data.get("message", "")).partition("\n")[0]}
    details = " ".join(f"{name}={value}" for name, value in data.items())
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {event} {details}".rstrip(), flush=True)


def _number(value: Any) -> float:
    """Return a non-negative number as a float; 0 for any other value, as in an edited file."""
    return float(value) if isinstance(value, int | float) and value >= 0 else 0.0
