"""A supervisor's desk: what it reads in the run's folder and writes there, while it is its turn.

Before every word it makes sure that nobody has taken its place. A word gets written also where
the disk is full: room was set aside for that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from sparring.run_folder import RunFolder
from sparring.run_folder.events import tell, tell_state
from sparring.run_folder.files import read_told, write_json
from sparring.runs.claims import newest_epoch
from sparring.runs.gang import Gang
from sparring.runs.history import History, Read, read_history
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import identity_of, since_boot

_BEAT_SECONDS = 1.0
_RESERVED = 256 * 1024
_TRIES = 30


class Superseded(Exception):
    """Another supervisor has taken this one's place."""


class Desk:
    """One epoch's hold on one run."""

    def __init__(self, folder: RunFolder, epoch: int) -> None:
        self.folder = folder
        self.epoch = epoch
        self.before = read_told(folder.supervisor)  # what the one before this one told last
        self._seconds_before = _number(self.before.get("seconds"))
        self._read = Read()
        self._began = time.monotonic()
        self._beat_at = float("-inf")

    @property
    def history(self) -> History:
        return self._read.history

    @property
    def seconds(self) -> float:
        """How long the run has been worked on, earlier supervisors and lives included."""
        return self._seconds_before + time.monotonic() - self._began

    # ------------------------------------------------------------------ reading

    def look(self) -> History:
        """The history as it is now."""
        self._read = read_history(self.folder, self._read)
        if self.history.epoch > self.epoch:
            raise Superseded
        return self.history

    def check(self) -> None:
        """Whether this is still ours to say; a run that was deleted is nobody's."""
        if newest_epoch(self.folder) != self.epoch or not self.folder.spec.exists():
            raise Superseded

    # ------------------------------------------------------------------ writing

    def tell(self, event: str, **data: Any) -> None:
        self.check()
        _print(event, data)
        self._surely(
            lambda: tell(self.folder, event, author="supervisor", epoch=self.epoch, **data)
        )

    def move(self, state: RunState, **data: Any) -> None:
        """To another state; nothing where the run is in it already."""
        self.check()
        if self.look().state is state:
            return
        _print(state.value, data)
        self._surely(
            lambda: tell_state(self.folder, state, author="supervisor", epoch=self.epoch, **data)
        )
        self.look()

    def beat_now_and_then(self, gang: Gang | None) -> bool:
        """Whether it was time for a beat."""
        if time.monotonic() - self._beat_at < _BEAT_SECONDS:
            return False
        self.beat(gang)
        return True

    def beat(self, gang: Gang | None) -> None:
        self.check()
        self._beat_at = time.monotonic()
        told: dict[str, Any] = {
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
        with contextlib.suppress(OSError):  # a full disk is for others to fail by
            write_json(
                self.folder.supervisor, told | (gang.to_dict() if gang else {}), durable=False
            )

    def set_room_aside(self) -> None:
        with contextlib.suppress(OSError):
            self.folder.reserve.write_bytes(os.urandom(_RESERVED))

    def clear(self) -> None:
        """When the run has ended."""
        self.folder.stop_request.unlink(missing_ok=True)
        self.folder.reserve.unlink(missing_ok=True)

    def _surely(self, write: Callable[[], None]) -> None:
        for remaining in range(_TRIES, -1, -1):
            try:
                write()
                return
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not remaining:
                    raise
                self.folder.reserve.unlink(missing_ok=True)
                time.sleep(0.1 if remaining == _TRIES else 2.0)


def _print(what: str, data: Mapping[str, Any]) -> None:
    """Into the supervisor's own log, for whoever wants to know what it did."""
    details = " ".join(f"{name}={value}" for name, value in data.items())
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {what} {details}".rstrip(), flush=True)


def _number(told: Any) -> float:
    """A file that somebody has written into must not keep the run from being looked after."""
    return float(told) if isinstance(told, int | float) and told >= 0 else 0.0
