"""Inspects the processes of sandboxes from outside, and kills them by workspace folder."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_MAX_SCRATCH_FILES = 20_000
_KILL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The resource use of a process and its descendants. `memory` and `unlinked`, the size of open
    files without a name, are in bytes."""

    memory: int = 0
    unlinked: int = 0
    cpu_seconds: float = 0.0
    has_too_many_files: bool = False


def usage_of_tree(pid: int, scratch_bytes: int, *, with_memory: bool) -> Usage:
    """Return the resource use of a process and its descendants. `scratch_bytes` is the size of a
    scratch folder."""
    memory = unlinked = ticks = 0
    has_too_many = False
    for member in _process_tree(pid):
        memory += _memory(member) if with_memory else 0
        unlinked += _unlinked(member)
        ticks += _ticks(member)
        has_too_many = has_too_many or _has_crowded_scratch(member, scratch_bytes)
    return Usage(memory, unlinked, ticks / _TICKS_PER_SECOND, has_too_many)


def kill_all_in(folder: Path) -> None:
    """Kill every process of the sandboxes whose workspaces are in this folder.

    A sandbox's processes have the folder in their mounts, and bubblewrap has it in its command
    line. When the first process of a sandbox dies, the kernel kills the others. Gives up after
    10 seconds.
    """
    if not folder.is_absolute():  # a partial path matches unrelated command lines
        raise ValueError(f"{folder} must be an absolute path")
    deadline = time.monotonic() + _KILL_SECONDS
    while found := list(_pids_naming(str(folder))):
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.005)


def ticks_at_start(pid: int) -> str:
    """Return a process's start time in clock ticks since boot, or `gone` if the process has ended.
    The start time distinguishes processes with the same pid."""
    try:
        fields = _stat(pid)
    except (OSError, IndexError):
        return "gone"
    return "gone" if fields[0] in "ZX" else fields[19]


def _pids_naming(folder: str) -> Iterator[int]:
    wanted = folder.encode() + b"/"
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:  # noqa: PTH208
        if pid == os.getpid():
            continue
        for file in ("cmdline", "mountinfo"):
            with contextlib.suppress(OSError, IndexError):
                if wanted in Path(f"/proc/{pid}/{file}").read_bytes() and _stat(pid)[0] not in "ZX":
                    yield pid
                    break


def _process_tree(pid: int) -> Iterator[int]:
    pending = [pid]
    while pending:
        current = pending.pop()
        yield current
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{current}/task"):  # noqa: PTH208 - names only
                with contextlib.suppress(OSError, ValueError):
                    children = Path(f"/proc/{current}/task/{thread}/children").read_text().split()
                    pending += map(int, children)


def _memory(pid: int) -> int:
    """Return the proportional set size (PSS) in bytes, which includes shared memory."""
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
                status = os.stat(entry.path)  # noqa: PTH116 - the file behind the descriptor
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                    total += status.st_blocks * 512
    return total


def _ticks(pid: int) -> int:
    """Return the CPU ticks of the process and of its children that have ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return sum(map(int, _stat(pid)[11:15]))
    return 0


def _has_crowded_scratch(pid: int, size: int) -> bool:
    """Whether a scratch folder has too many files. Empty files use memory too, and the file system
    limits only bytes. A process that is not yet in the sandbox sees the host's folders, which are
    recognised by a size other than `size`."""
    for folder in ("tmp", "dev/shm"):
        with contextlib.suppress(OSError):
            usage = os.statvfs(f"/proc/{pid}/root/{folder}")
            is_ours = usage.f_blocks * usage.f_frsize == size
            if is_ours and usage.f_files - usage.f_ffree > _MAX_SCRATCH_FILES:
                return True
    return False


def _stat(pid: int) -> list[str]:
    """Return the fields of `stat` after the process name, which may contain any character."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
