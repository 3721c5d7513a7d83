"""Control groups, where this process may make some: a hard limit on a whole sandbox.

Version 2 as most systems have it, where the subtree is delegated to us or we are root, and
version 1 as older ones do.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sparring.sandbox.limits import SandboxLimits

_MOUNT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("memory", "pids", "cpu")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Group:
    """One sandbox's groups: one folder in version 2, one for each controller in version 1."""

    folders: tuple[Path, ...]
    version: int

    def procs(self) -> list[str]:
        """Files that a process joins by writing its id."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def hit_memory(self) -> bool:
        """Whether it ran into its memory limit."""
        folder = self.folders[0]
        with contextlib.suppress(OSError, ValueError):
            if self.version == 1:
                return int((folder / "memory.failcnt").read_text()) > 0
            events = dict(
                line.split() for line in (folder / "memory.events").read_text().splitlines()
            )
            return int(events.get("oom_kill", 0)) > 0
        return False

    def hit_processes(self) -> bool:
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError):
                told = (folder / "pids.events").read_text().split()
                return int(told[1]) > 0
        return False

    def remove(self, seconds: float = 5.0) -> None:
        """Once nothing runs in it; a process that is just dying holds it for a moment."""
        deadline = time.monotonic() + seconds
        for folder in self.folders:
            while True:
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        break
                    self._end(folder)
                    time.sleep(0.002)

    def _end(self, folder: Path) -> None:
        with contextlib.suppress(OSError, ValueError):
            for pid in (folder / "cgroup.procs").read_text().split():
                os.kill(int(pid), 9)


def kind() -> str:
    """In words, what limits a sandbox as a whole; empty where nothing can."""
    parents = _parents()
    if not parents:
        return ""
    return f"cgroups version {1 if len(parents) > 1 else 2}"


def make(limits: SandboxLimits) -> Group | None:
    """A group with these limits, or None where none can be made."""
    parents = _parents()
    if not parents:
        return None
    name = f"sparring-{os.getpid()}-{next(_numbers)}"
    version = 1 if len(parents) > 1 else 2
    group = Group(tuple(parent / name for parent in parents), version)
    try:
        for folder in group.folders:
            folder.mkdir()
        for place, value in _settings(group, limits):
            place.write_text(value)
    except OSError:
        group.remove(0)
        return None
    return group


def sweep() -> None:
    """Take away groups of processes that died before they could."""
    for parent in _parents():
        for left in parent.glob("sparring-*-*"):
            with contextlib.suppress(ValueError, IndexError):
                if not Path("/proc", str(int(left.name.split("-")[1]))).exists():
                    Group((left,), 1).remove(0.1)


def _settings(group: Group, limits: SandboxLimits) -> Iterator[tuple[Path, str]]:
    # Room for bubblewrap, setpriv and prlimit themselves.
    processes = str(limits.processes + 3)
    memory = str(limits.memory_bytes)
    if group.version == 2:
        (folder,) = group.folders
        yield folder / "memory.max", memory
        yield folder / "pids.max", processes
        for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            if (folder / name).exists():
                yield folder / name, value
        return
    memory_folder, pids_folder = group.folders[:2]
    yield memory_folder / "memory.limit_in_bytes", memory
    swap = memory_folder / "memory.memsw.limit_in_bytes"
    if swap.exists():
        yield swap, memory
    yield pids_folder / "pids.max", processes


@functools.cache
def _parents() -> tuple[Path, ...]:
    """Where groups of ours go, if we may make any that limit memory and processes."""
    if not os.access(_MOUNT, os.R_OK):
        return ()
    found: tuple[Path, ...]
    unified = _MOUNT / "cgroup.controllers"
    if unified.exists():
        own = _own_unified()
        found = (own,) if own is not None else ()
    else:
        found = tuple(_MOUNT / name for name in _CONTROLLERS[:2])
    if not found or not all(os.access(each, os.W_OK) for each in found):
        return ()
    return found


def _own_unified() -> Path | None:
    """A folder under which the controllers are enabled, and which we may write to.

    A group with processes cannot hand controllers on to its children, so it is the nearest one
    above ours that already does.
    """
    try:
        line = next(
            line for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")
        )  # fmt: skip
    except (OSError, StopIteration):
        return None
    here = _MOUNT / line.removeprefix("0::").strip().lstrip("/")
    for folder in (here, *here.parents):
        if not folder.is_relative_to(_MOUNT):
            return None
        with contextlib.suppress(OSError):
            enabled = (folder / "cgroup.subtree_control").read_text().split()
            if {"memory", "pids"} <= set(enabled) and os.access(folder, os.W_OK):
                return folder
    return None
