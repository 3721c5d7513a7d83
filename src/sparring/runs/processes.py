"""Identifies processes, checks whether they are alive, and ends all processes of a run.

A process is identified by its pid and its start time in ticks since boot, which does not change
when the clock is set.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from sparring.contracts.json import JsonObject
from sparring.sandbox.processes import ticks_at_start

MARK = "SPARRING_WORKER_GROUP"
_ENDING_SECONDS = 10.0
_KEEPER = "sparring.sandbox.keeper"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies one process across hosts and reboots."""

    pid: int
    start: str
    host: str
    boot: str

    def to_dict(self) -> JsonObject:
        """Return the fields as a dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ProcessIdentity | None:
        """Restore an identity; None if a field is missing or malformed."""
        try:
            return cls(
                int(values["pid"]), str(values["start"]), str(values["host"]), str(values["boot"])
            )
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def is_of_this_host(self) -> bool:
        """Whether `host` is the name of this host."""
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs on this host; false for a zombie."""
        is_known = self.start != "gone" and self.is_of_this_host and self.boot == boot_id()
        return is_known and self.start == start_of(self.pid)

    @property
    def is_pid_reused(self) -> bool:
        """Whether another process of this host now has the pid."""
        return start_of(self.pid) not in ("gone", self.start)

    def signal(self, number: int) -> None:
        """Send a signal if the process is alive."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)


def identity_of(pid: int) -> ProcessIdentity:
    """Return the identity of a process of this host."""
    return ProcessIdentity(pid, start_of(pid), socket.gethostname(), boot_id())


def start_detached(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process with its own session, which appends its output to a log."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def start_of(pid: int) -> str:
    """Return the start time of a process, in ticks since boot where /proc exists; "gone" if it is
    not running."""
    if Path("/proc/self").exists():
        return ticks_at_start(pid)
    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return "gone"


def boot_id() -> str:
    """Return an id that changes with each boot of this host."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(int(psutil.boot_time()))


def since_boot() -> float:
    """Return seconds since boot: monotonic, and comparable between processes of this host."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


# ---------------------------------------------------------------------- all processes of a run


def marked(mark: str, sessions: frozenset[int] = frozenset()) -> Iterator[psutil.Process]:
    """Yield running processes of this host, except this one, that have `mark` in their environment,
    which descendants inherit, or that belong to one of `sessions`."""
    own_pid = os.getpid()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == own_pid or not _is_running(process):
                continue
            if os.getsid(process.pid) in sessions or process.environ().get(MARK) == mark:
                yield process


def end_all(mark: str, roots: Iterable[int] = ()) -> list[str]:
    """Kill all processes of a worker group; returns the pids of those still alive after 10 s.

    They are found by the mark in their environment, by the sessions that `roots` lead, and by
    descent. Descendants are recorded before any process is killed, so that processes that a tool
    started with another environment are found as well.
    """
    sessions = frozenset(roots)
    descendants = {process for pid in sessions for process in _with_descendants(pid)}
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        candidates = {*marked(mark, sessions), *descendants}
        remaining = [process for process in candidates if _is_running(process)]
        if not remaining:
            return []
        if time.monotonic() > deadline:
            return [f"{process.pid}" for process in remaining]
        for process in remaining:
            descendants |= set(_with_descendants(process.pid))
            with contextlib.suppress(psutil.Error, OSError):
                process.send_signal(signal.SIGKILL)
        time.sleep(0.02)


def _with_descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def _is_running(process: psutil.Process) -> bool:
    """Whether a process is alive and not a sandbox keeper, which cleans up after its worker and
    then ends."""
    with contextlib.suppress(psutil.Error, OSError):
        is_alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return is_alive and _KEEPER not in process.cmdline()
    return False
