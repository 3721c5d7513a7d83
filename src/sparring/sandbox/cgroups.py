"""Limits the memory of a whole sandbox with a control group, where one can be created.

Supports version 2, as root or in a delegated subtree, and version 1 on older systems. An rlimit
bounds the number of processes: the kernel counts them per user, and each sandbox has its own user
or user namespace.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import InfrastructureError
from sparring.sandbox.command import SandboxLimits
from sparring.sandbox.processes import ticks_at_start

_MOUNT = Path("/sys/fs/cgroup")
_counter = itertools.count()


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The control group of one call."""

    folder: Path
    version: int

    @contextmanager
    def spawning(self) -> Iterator[None]:
        """Start processes of the current thread in the group, inside the context (version 1).

        In version 1 a thread can enter and leave the group almost for free. Moving another
        process synchronises all processors, which takes 5 ms or more. Version 2 only supports
        moving processes; see `take`.
        """
        if self.version == 2:
            yield
            return
        (self.folder / "tasks").write_text("0")
        try:
            yield
        finally:
            (_home() / "tasks").write_text("0")

    def take(self, pid: int) -> None:
        """Move a process that has no children yet into the group (version 2)."""
        if self.version == 2:
            (self.folder / "cgroup.procs").write_text(str(pid))

    def has_run_out_of_memory(self) -> bool:
        """Whether the kernel killed a process of the group for lack of memory."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        with contextlib.suppress(OSError, ValueError):
            lines = (self.folder / name).read_text().splitlines()
            return int(dict(line.split() for line in lines).get("oom_kill", 0)) > 0
        return False

    def remove(self, seconds: float = 5.0) -> None:
        """Delete the empty group; retries for `seconds`, as a dying process still occupies it."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.002)


@dataclass(frozen=True, slots=True)
class _Place:
    """The folder in which groups are created."""

    folder: Path
    version: int


def describe_limits() -> str:
    """Return the version of control groups as text; empty if no group can be created."""
    place = _place()
    return f"cgroups version {place.version}" if place else ""


def make(limits: SandboxLimits) -> ControlGroup | None:
    """Create a group with the memory limit; return None if this machine does not allow it."""
    place = _place()
    if place is None:
        return None
    folder = place.folder / f"sparring-{_process_name(os.getpid())}-{next(_counter)}"
    group = ControlGroup(folder, place.version)
    memory = str(limits.memory_bytes)
    try:
        folder.mkdir()
        if place.version == 2:
            (folder / "memory.max").write_text(memory)
            _write_if_supported(folder / "memory.swap.max", "0")
            _write_if_supported(folder / "memory.oom.group", "1")
        else:
            (folder / "memory.limit_in_bytes").write_text(memory)
            if _counts_swap():
                (folder / "memory.memsw.limit_in_bytes").write_text(memory)
    except OSError as error:
        group.remove(0)
        raise InfrastructureError(
            f"cannot create a control group in {place.folder}: {error}"
        ) from error
    return group


def sweep() -> None:
    """Delete groups left behind by processes that have died."""
    place = _place()
    if place is None:
        return
    for folder in place.folder.glob("sparring-*-*-*"):
        pid, start = folder.name.split("-")[1:3]
        if pid.isdigit() and ticks_at_start(int(pid)) != start:
            ControlGroup(folder, place.version).remove(0.1)


@functools.cache
def _home() -> Path:
    """Return the folder of this process's memory group (version 1)."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _MOUNT / "memory" / path.lstrip("/")
    return _MOUNT / "memory"


@functools.cache
def _process_name(pid: int) -> str:
    return f"{pid}-{ticks_at_start(pid)}"


@functools.cache
def _counts_swap() -> bool:
    return (_home() / "memory.memsw.limit_in_bytes").exists()


def _write_if_supported(file: Path, value: str) -> None:
    """Write to a control file that not every kernel has."""
    with contextlib.suppress(OSError):
        file.write_text(value)


@functools.cache
def _place() -> _Place | None:
    if (_MOUNT / "cgroup.controllers").exists():
        own = _delegated_folder()
        return _Place(own, 2) if own is not None else None
    home = _home()  # the limits of this group also apply to its children
    return _Place(home, 1) if os.access(home / "tasks", os.W_OK) else None


def _delegated_folder() -> Path | None:
    """Return the nearest writable ancestor group that delegates the memory controller.

    A group with processes cannot delegate a controller to its children, so the group of this
    process usually does not qualify.
    """
    try:
        line = next(
            line for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")
        )  # fmt: skip
    except (OSError, StopIteration):
        return None
    own = _MOUNT / line.removeprefix("0::").strip().lstrip("/")
    for folder in (own, *own.parents):
        if not folder.is_relative_to(_MOUNT):
            return None
        with contextlib.suppress(OSError):
            enabled = (folder / "cgroup.subtree_control").read_text().split()
            if "memory" in enabled and os.access(folder, os.W_OK):
                return folder
    return None
