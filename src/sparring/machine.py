"""The machine that a process shares with others: its cores, and the memory that is left. A leaf.

OpenMP threads spin while they wait for one another. On a busy machine, if one thread loses its
core, all others spin for long and waste theirs; threads that sleep at once take time to wake. So
they spin for about as long as PyTorch needs between two operations, and then sleep.

glibc keeps freed blocks of up to 32 MiB in the heap, so tensors of changing sizes make the heap
grow.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

_SPINS = "5000"  # for GNU's OpenMP, which PyTorch has on Linux; others read the policy alone
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIM_BYTES, _MMAP_BYTES = 64 << 20, 1 << 20


def share_machine() -> None:
    """Make waiting OpenMP threads sleep soon and glibc return freed memory.

    Call it before importing torch: OpenMP reads its environment when it is loaded. An
    OMP_WAIT_POLICY of the user's is kept, and with any MALLOC_… variable set, glibc is left alone.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    _return_freed_memory()


def release_freed_memory() -> None:
    """Return freed memory inside the heap to the system, which takes milliseconds. By itself, glibc
    returns only freed memory at the end of the heap."""
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _return_freed_memory() -> None:
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # not glibc
    mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


_ROOT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # cgroup v1 reports "no limit" as a huge number


def free_memory(proc: Path = Path("/proc"), root: Path = _ROOT) -> int:
    """Return the bytes that this process can still allocate: the minimum over the machine and all
    control groups of this process. Page cache that the kernel can drop counts as free."""
    return min([_free_on_machine(proc), *_free_in_groups(proc, root)])


def memory_groups(proc: Path = Path("/proc"), root: Path = _ROOT) -> list[Path]:
    """Return the folders of this process's memory control groups, innermost first."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    groups: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        group = top / path.lstrip("/")
        while group != top:
            groups.append(group)
            group = group.parent
        groups.append(top)
    return groups


def _free_on_machine(proc: Path) -> int:
    for line in _lines(proc / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return _UNLIMITED


def _free_in_groups(proc: Path, root: Path) -> list[int]:
    free = []
    for group in memory_groups(proc, root):
        for limit_file, used_file, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = _number(group / limit_file), _number(group / used_file)
            if limit is None or used is None or limit >= _UNLIMITED:
                continue
            droppable = _stat(group / "memory.stat", cache)
            free.append(max(0, limit - max(0, used - droppable)))
    return free


def _stat(path: Path, name: str) -> int:
    for line in _lines(path):
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)[:1]).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
