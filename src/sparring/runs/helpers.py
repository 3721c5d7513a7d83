"""Sampling servers and players: the processes of an attempt that are restarted when they end.

A lost helper does not end the attempt: it is restarted with the same name and port, and until then
the other helpers do its work, or its requests wait. If a helper repeatedly ends before it has
worked, the attempt fails; on a joined host, only the joined process ends. The limit is higher if
the last end was a SIGKILL.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparring.contracts.json import JsonObject
from sparring.runs.causes import ExitedProcess

MAX_ENDS = 3  # consecutive ends without work in between
MAX_KILLS = 10  # the limit if the last end was a SIGKILL
_PROBE_SECONDS = 2.0
_MAX_PAUSE = 60.0
PREFIXES = ("server-", "player-")


Start = Callable[[str, Sequence[str]], Any]  # (name, command) -> Member


@dataclass(slots=True)
class Helper:
    """One helper: its command, its process, and its number of consecutive ends."""

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
        """Whether its heartbeat file has changed since its last start."""
        return content_of(self.heartbeat) != self.beat_before


@dataclass(slots=True)
class Helpers:
    """The helpers of one attempt on this host."""

    start_process: Start
    helpers: list[Helper] = field(default_factory=list)
    lost: ExitedProcess | None = None  # ended too often without working
    _probed_at: float = 0.0

    @property
    def members(self) -> list[Any]:
        """The processes of all helpers that are not waiting for a restart."""
        return [helper.member for helper in self.helpers if helper.member is not None]

    def start(self, helpers: Iterable[Helper]) -> None:
        """Start helpers, without waiting until they are ready."""
        for helper in helpers:
            self.helpers.append(helper)
            self._start(helper)

    def adopt(self, helpers: Iterable[Helper], members: JsonObject) -> None:
        """Take over the processes of a previous supervisor's helpers; start the missing ones."""
        for helper in helpers:
            self.helpers.append(helper)
            helper.member = members.get(helper.name)
            helper.has_worked = helper.member is not None
            if helper.member is None:
                self._start(helper)

    def look(self) -> list[str]:
        """Restart ended helpers after a pause. Return one message per helper that has ended."""
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
                next_step = "it is started again"
                if helper.ends >= (MAX_KILLS if exited.code == -signal.SIGKILL else MAX_ENDS):
                    self.lost = exited
                    next_step = f"it ended {helper.ends} times in a row without work"
                messages.append(f"{exited.describe()}; {next_step}; see {exited.log}")
            elif helper.member is None and time.monotonic() >= helper.start_at:
                self._start(helper)
        return messages

    def _start(self, helper: Helper) -> None:
        helper.beat_before = content_of(helper.heartbeat)
        helper.member = self.start_process(helper.name, helper.command)

    def _note_work(self) -> None:
        """A server has worked once it accepts connections, a player once its heartbeat changes."""
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
    """Return the content of a file; empty if `file` is None or cannot be read."""
    with suppress(OSError):
        return file.read_bytes() if file is not None else b""
    return b""


def _accepts(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=0.5):
        return True
    return False
