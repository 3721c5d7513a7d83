"""Why a run's processes ended, in words that say what to do, and whether to try again."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparring.memory import memory_groups
from sparring.run_folder.files import read_tail
from sparring.runs.history import History

LAST_LINES = 12
_TAIL = 1 << 16
_NEARLY_FULL = 1 << 20
_NO_SPACE = ("No space left on device", "Errno 28", "Disk quota exceeded")
_NO_MEMORY = ("OutOfMemoryError", "MemoryError", "can't allocate memory", "out of memory")
# Errors of our own tree say what is wrong with the request; the same request would end the same.
_MAY_PASS = ("MachineryFailure", "ServiceFailed", "RunFailed")


@dataclass(frozen=True, slots=True)
class Cause:
    """`kind` is for programs: out_of_memory, killed, exception, hung, disk_full, refused, guard,
    service, host_lost, launcher."""

    kind: str
    message: str
    is_retried: bool = True
    error: str = "RunFailed"
    exit_code: int = 100


@dataclass(frozen=True, slots=True)
class Gone:
    """A process that ended, by itself or not."""

    name: str
    code: int | None  # None: of another parent, who has not told
    log: Path

    def in_words(self) -> str:
        if self.code is None:
            return f"{self.name} is gone"
        if self.code < 0:
            return f"{self.name} was killed by {_name_of(-self.code)}"
        return f"{self.name} ended with exit code {self.code}"


def of_failure(history: History, place: str, folder: Path) -> Cause:
    """A failure that the worker told of itself."""
    message, error = history.fact_message, history.fact_error
    if _is_full(folder) or any(word in message for word in _NO_SPACE):
        return Cause("disk_full", f"the disk is full {place}: {message}", False, error)
    if error in _NO_MEMORY or any(word in message for word in _NO_MEMORY):
        return Cause("out_of_memory", f"out of memory {place}: {message}", True, error)
    if error == "GuardStop":
        return Cause("guard", message, False, error, history.fact_code or 100)
    if _is_of_our_tree(error):
        code = history.fact_code or 100
        return Cause("refused", message, error in _MAY_PASS, error, code)
    return Cause("exception", f"{message} ({place})", True, error)


def of_an_end(gone: Gone, place: str, folder: Path, *, was_out_of_memory: bool) -> Cause:
    """A process that ended without a word of its own."""
    told = f"{gone.in_words()} {place}"
    if gone.code == -signal.SIGKILL and was_out_of_memory:
        return Cause("out_of_memory", f"{told}: the machine ran out of memory")
    if _is_full(folder):
        return Cause("disk_full", f"{told}: the disk is full", is_retried=False)
    if gone.code is None or gone.code < 0:
        return Cause("killed", told)
    lines = last_lines(gone.log)
    if any(word in lines for word in _NO_SPACE):
        return Cause("disk_full", f"{told}: the disk was full", is_retried=False)
    return Cause("exception", f"{told}; the last lines of {gone.log}:\n{lines}")


def last_lines(log: Path, count: int = LAST_LINES) -> str:
    lines = read_tail(log, _TAIL).splitlines()[-count:]
    return "\n".join(f"  {line}" for line in lines) or "  (nothing)"


def memory_kills() -> int:
    """How often this kernel has killed for memory: of all, or of the groups this process is in."""
    counted = _counter(Path("/proc/vmstat"))
    for group in memory_groups():
        for name in ("memory.oom_control", "memory.events"):
            counted += _counter(group / name)
    return counted


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


def _is_of_our_tree(error: str) -> bool:
    from sparring.contracts import errors

    known: Mapping[str, object] = vars(errors)
    return error in known


def _name_of(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
