"""Processes of an attempt that are started again when they end: sampling servers and players.

The loss of a helper does not end an attempt: another server samples, another player plays, until
it is back under the same name and port. A helper that keeps ending before it has worked fails the
run; one that is killed from outside while it loads gets more tries.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparring.runs.causes import ExitedProcess

MAX_ENDS = 3  # in a row, before it has worked
MAX_KILLS = 10  # the same, where the last end was a kill
_PROBE_SECONDS = 2.0
_MAX_PAUSE = 60.0
PREFIXES = ("server-", "player-")


Start = Callable[[str, Sequence[str]], Any]  # name and command to a running member


@dataclass(slots=True)
class Helper:
    """One helper: how it is started, and how often it ended before it had worked."""

    name: str
    command: Sequence[str]
    port: int | None = None
    host: str = "127.0.0.1"
    heartbeat: Path | None = None
    member: Any = None
    ends: int = 0
    has_worked: bool = False
    start_at: float = 0.0
    beat_before: bytes = b""

    @property
    def has_beaten(self) -> bool:
        """Whether its heartbeat has changed since it was started."""
        return content_of(self.heartbeat) != self.beat_before


@dataclass(slots=True)
class Helpers:
    """The helpers of one attempt on this host."""

    start_process: Start
    helpers: list[Helper] = field(default_factory=list)
    lost: ExitedProcess | None = None  # ended several times in a row before it had worked
    _probed_at: float = 0.0

    @property
    def members(self) -> list[Any]:
        """The processes of all helpers that were started."""
        return [helper.member for helper in self.helpers if helper.member is not None]

    def start(self, helpers: Iterable[Helper]) -> None:
        """Start helpers, without waiting until they are ready."""
        for helper in helpers:
            self.helpers.append(helper)
            self._start(helper)

    def adopt(self, helpers: Iterable[Helper], members: Mapping[str, Any]) -> None:
        """Take over the helpers of a previous supervisor; those that are missing are started."""
        for helper in helpers:
            self.helpers.append(helper)
            helper.member = members.get(helper.name)
            helper.has_worked = helper.member is not None
            if helper.member is None:
                self._start(helper)

    def look(self) -> list[str]:
        """Start again what has ended, and return one message for each helper that had."""
        self._note_work()
        messages = []
        for helper in self.helpers:
            exited = helper.member.exited if helper.member is not None else None
            if exited is not None:
                helper.ends = 1 if helper.has_worked or helper.has_beaten else helper.ends + 1
                helper.has_worked = False
                pause = min(_MAX_PAUSE, 0.5 * 2 ** (helper.ends - 1))
                helper.start_at = time.monotonic() + pause
                helper.member.close()
                helper.member = None
                messages.append(f"{exited.describe()}; it is started again; see {exited.log}")
                if helper.ends >= (MAX_KILLS if exited.code == -signal.SIGKILL else MAX_ENDS):
                    self.lost = exited
            elif helper.member is None and time.monotonic() >= helper.start_at:
                self._start(helper)
        return messages

    def _start(self, helper: Helper) -> None:
        helper.beat_before = content_of(helper.heartbeat)
        helper.member = self.start_process(helper.name, helper.command)

    def _note_work(self) -> None:
        """A server has worked once it accepts connections, a player once its heart beats."""
        now = time.monotonic()
        if now - self._probed_at < _PROBE_SECONDS:
            return
        self._probed_at = now
        for helper in self.helpers:
            if helper.has_worked or helper.member is None or helper.member.exited:
                continue
            if helper.port is None:
                helper.has_worked = helper.has_beaten
            else:
                helper.has_worked = _accepts(helper.host, helper.port)


def content_of(file: Path | None) -> bytes:
    """Return the content of a file; empty if there is none."""
    with suppress(OSError):
        return file.read_bytes() if file is not None else b""
    return b""


def _accepts(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=0.5):
        return True
    return False
