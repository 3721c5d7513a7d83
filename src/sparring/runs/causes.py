"""Explains why a run's processes ended, and decides whether a restart can help."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import CasesBroken
from sparring.machine import memory_groups
from sparring.run_folder.files import read_tail
from sparring.runs.history import RankResult

LAST_LINES = 12
_TAIL, _BYTES_PER_LINE = 1 << 16, 256
_NEARLY_FULL = 1 << 20
_NO_SPACE = ("No space left on device", "Errno 28", "Disk quota exceeded")
_NO_MEMORY = ("OutOfMemoryError", "MemoryError", "can't allocate memory", "out of memory")
# Sparring's errors that a restart may clear. The others are due to the request and would recur.
_MAY_PASS = ("InfrastructureError", "ServiceFailed", "RunFailed")
# Those that somebody can clear without a new run.
_MENDED_OUTSIDE = ("EndpointError", "LauncherFailed", "NotEnoughSpace")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt ended. `kind` is machine-readable: out_of_memory, killed, exception, hung,
    disk_full, refused, guard, service, host_lost, launcher, or ended (a stop timed out)."""

    kind: str
    message: str
    is_retried: bool = True
    error: str = "RunFailed"
    exit_code: int = 100


@dataclass(frozen=True, slots=True)
class ExitedProcess:
    """A process that has ended, with its exit code and its log."""

    name: str
    code: int | None  # -N: killed by signal N; None: unknown, because another process started it
    log: Path

    def describe(self) -> str:
        """Return text such as `rank-1 was killed by signal 9 (SIGKILL)`."""
        if self.code is None:
            return f"{self.name} ended with an unknown exit code"
        if self.code < 0:
            return f"{self.name} was killed by {_signal_name(-self.code)}"
        return f"{self.name} ended with exit code {self.code}"


def cause_of_failure(result: RankResult, place: str, folder: Path) -> Cause:
    """Return the cause of a failure that a rank reported in the run's events."""
    message, error, code = result.message, result.error, result.exit_code or 100
    if error == CasesBroken.__name__:  # its message may quote anything
        return Cause("refused", message, False, error, code)
    if _is_full(folder) or any(text in message for text in _NO_SPACE):
        return Cause("disk_full", f"the disk is full {place}: {message}", False, error)
    if error in _NO_MEMORY or any(text in message for text in _NO_MEMORY):
        return Cause("out_of_memory", f"out of memory {place}: {message}", True, error)
    if error == "GuardStop":
        return Cause("guard", message, False, error, code)
    if _is_our_error(error):
        return Cause("refused", message, error in _MAY_PASS, error, code)
    return Cause("exception", f"{message} ({place})", True, error)


def can_never_run(error: str) -> bool:
    """Return whether a run that ended with this error would end with it again when resumed."""
    return _is_our_error(error) and error not in (*_MAY_PASS, *_MENDED_OUTSIDE)


def cause_of_exit(
    exited: ExitedProcess, place: str, folder: Path, *, was_out_of_memory: bool
) -> Cause:
    """Return the cause of an exit for which no failure was reported."""
    message = f"{exited.describe()} {place}".rstrip()
    if exited.code == -signal.SIGKILL and was_out_of_memory:
        return Cause("out_of_memory", f"{message}: the machine ran out of memory")
    if _is_full(folder):
        return Cause("disk_full", f"{message}: the disk is full", is_retried=False)
    if exited.code is None or exited.code < 0:
        return Cause("killed", message)
    lines = last_lines(exited.log)
    if any(text in lines for text in _NO_SPACE):
        return Cause("disk_full", f"{message}: the disk was full", is_retried=False)
    return Cause("exception", f"{message}; the last lines of {exited.log}:\n{lines}")


def last_lines(log: Path, count: int = LAST_LINES) -> str:
    """Return the last lines of a log, indented for a message."""
    lines = read_tail(log, max(_TAIL, count * _BYTES_PER_LINE)).splitlines()[-count:]
    return "\n".join(f"  {line}" for line in lines) or "  (nothing)"


def memory_kills() -> int:
    """Return the sum of the kernel's out-of-memory counters of this machine and of this process's
    control groups. They may count a kill more than once, so only an increase is meaningful."""
    kills = _counter(Path("/proc/vmstat"))
    for group in memory_groups():
        for name in ("memory.oom_control", "memory.events"):
            kills += _counter(group / name)
    return kills


def _counter(path: Path) -> int:
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        return 0
    return 0


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _NEARLY_FULL
    except OSError:
        return False


def _is_our_error(error: str) -> bool:
    from sparring.contracts import errors

    names: Mapping[str, object] = vars(errors)
    return error in names


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
