"""Processes as seen from outside: who they are, whether they live, ending all of a run's.

A process is known by its number and by when it started, counted from the boot of its host: a
clock that is stepped does not change who it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

MARK = "SPARRING_GANG"
_ENDING_SECONDS = 10.0
_KEEPER = "sparring.sandbox.keeper"


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one boot of one host."""

    pid: int
    start: str
    host: str
    boot: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Identity | None:
        try:
            return cls(
                int(values["pid"]), str(values["start"]), str(values["host"]), str(values["boot"])
            )
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def is_of_this_host(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """On this host, and not a zombie that only waits to be noticed."""
        is_known = self.start != "gone" and self.is_of_this_host and self.boot == boot_id()
        return is_known and self.start == start_of(self.pid)

    def signal(self, number: int) -> None:
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)


def identity_of(pid: int) -> Identity:
    return Identity(pid, start_of(pid), socket.gethostname(), boot_id())


def start_of(pid: int) -> str:
    """When a process began, in ticks since boot; "gone" where there is none that lives."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return "gone" if Path("/proc/self").exists() else _start_elsewhere(pid)
    except OSError:
        return "gone"
    return "gone" if fields[0] in "ZX" else fields[19]


def _start_elsewhere(pid: int) -> str:
    """Where there is no /proc."""
    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return "gone"


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(int(psutil.boot_time()))


def since_boot() -> float:
    """Seconds that no step of a clock changes, the same for every process of this host."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


# ---------------------------------------------------------------------- all of a run's


def marked(mark: str, sessions: frozenset[int] = frozenset()) -> Iterator[psutil.Process]:
    """Living processes of this host that were started with this mark, and all they started; or
    that belong to one of these sessions, whatever their environment has become."""
    mine = os.getpid()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == mine or not _lives(process):
                continue
            if os.getsid(process.pid) in sessions or process.environ().get(MARK) == mark:
                yield process


def end_all(mark: str, roots: Iterable[int] = ()) -> list[str]:
    """End every process of a gang, whoever its parent is by now; returns what would not go.

    By the mark in their environment, by the sessions that `roots` lead, and by descent, looked at
    before anything is ended: what a tool has started with another environment goes as well.
    """
    sessions = frozenset(roots)
    below = {process for pid in sessions for process in _with_all_below(pid)}
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        left = [each for each in {*marked(mark, sessions), *below} if _lives(each)]
        if not left:
            return []
        if time.monotonic() > deadline:
            return [f"{each.pid}" for each in left]
        for process in left:
            below |= set(_with_all_below(process.pid))
            with contextlib.suppress(psutil.Error, OSError):
                process.send_signal(signal.SIGKILL)
        time.sleep(0.02)


def _with_all_below(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def _lives(process: psutil.Process) -> bool:
    """The keeper of sandboxes does not count: it clears up behind its worker, and then ends."""
    with contextlib.suppress(psutil.Error, OSError):
        is_there = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return is_there and _KEEPER not in process.cmdline()
    return False
