"""Looking at processes from outside: what those of a sandbox use, and ending them by its folder."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_SCRATCH_FILES = 20_000
_ENDING_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Spent:
    """What a process and all below it use at this moment, in bytes and seconds."""

    memory: int = 0
    unlinked: int = 0
    cpu_seconds: float = 0.0
    has_too_many_files: bool = False


def spent_below(pid: int, scratch_bytes: int, *, with_memory: bool) -> Spent:
    """Files that nobody can see any more, open still or never named, count as well."""
    memory = unlinked = ticks = 0
    too_many = False
    for each in _with_all_below(pid):
        memory += _memory(each) if with_memory else 0
        unlinked += _unlinked(each)
        ticks += _ticks(each)
        too_many = too_many or _scratch_is_crowded(each, scratch_bytes)
    return Spent(memory, unlinked, ticks / _TICKS, too_many)


def end_all_in(folder: Path) -> None:
    """End every process of sandboxes whose workspaces lie in this folder, whoever started them.

    A sandbox's processes have the folder in their mounts, and bubblewrap's own in their command;
    the first process of a sandbox takes all others with it.
    """
    if not folder.is_absolute():  # a part of a path is in many a command
        raise ValueError(f"{folder} must be a whole path")
    deadline = time.monotonic() + _ENDING_SECONDS
    while found := list(_that_name(str(folder))):
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.005)


def start_of(pid: int) -> str:
    """When a process began, which tells it from a later one of the same number."""
    try:
        return _stat(pid)[19]
    except (OSError, IndexError):
        return "gone"


def _that_name(folder: str) -> Iterator[int]:
    wanted = folder.encode() + b"/"
    for pid in _all():
        if pid == os.getpid():
            continue
        for file in ("cmdline", "mountinfo"):
            with contextlib.suppress(OSError, IndexError):
                if wanted in Path(f"/proc/{pid}/{file}").read_bytes() and _stat(pid)[0] not in "ZX":
                    yield pid
                    break


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names only


def _with_all_below(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        yield current
        with contextlib.suppress(OSError, ValueError):
            below = Path(f"/proc/{current}/task/{current}/children").read_text().split()
            waiting += map(int, below)


def _memory(pid: int) -> int:
    """Its share of all memory that it has mapped, shared memory too."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _unlinked(pid: int) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                told = os.stat(entry.path)  # noqa: PTH116 - of what it is open on
                if stat.S_ISREG(told.st_mode) and told.st_nlink == 0:
                    total += told.st_blocks * 512
    return total


def _ticks(pid: int) -> int:
    """Its own and those of its children that have ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return sum(map(int, _stat(pid)[11:15]))
    return 0


def _scratch_is_crowded(pid: int, size: int) -> bool:
    """Files in memory cost memory even when they are empty, and only their bytes are limited.
    Before a process is inside, its folders of these names are the host's, and of another size."""
    for place in ("tmp", "dev/shm"):
        with contextlib.suppress(OSError):
            told = os.statvfs(f"/proc/{pid}/root/{place}")
            is_ours = told.f_blocks * told.f_frsize == size
            if is_ours and told.f_files - told.f_ffree > _SCRATCH_FILES:
                return True
    return False


def _stat(pid: int) -> list[str]:
    """The fields behind the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
