"""Control groups, where this process may make some: a hard limit on a whole sandbox's memory.

Version 2 as most systems have it, where the subtree is delegated to us or we are root, and
version 1 as older ones do. Processes are limited otherwise: each sandbox has a user, or a user
namespace, of its own, for which the kernel counts them.
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

from sparring.contracts.errors import MachineryFailure
from sparring.sandbox.limits import SandboxLimits
from sparring.sandbox.processes import start_of

_MOUNT = Path("/sys/fs/cgroup")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Group:
    """One call's group."""

    folder: Path
    version: int

    @contextmanager
    def spawning(self) -> Iterator[None]:
        """What this thread starts meanwhile is born in the group.

        In version 1 a thread may go there and back for next to nothing. Moving another process
        waits for all processors to take note, 5 ms and more, each time; version 2 has no other
        way from here, see `take`.
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
        """Let a process join that has started nothing yet, where it was not born in the group."""
        if self.version == 2:
            (self.folder / "cgroup.procs").write_text(str(pid))

    def hit_memory(self) -> bool:
        """Whether something in it was ended for want of memory."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        with contextlib.suppress(OSError, ValueError):
            told = (self.folder / name).read_text().splitlines()
            return int(dict(line.split() for line in told).get("oom_kill", 0)) > 0
        return False

    def remove(self, seconds: float = 5.0) -> None:
        """Once nothing runs in it; a process that is just dying holds it for a moment."""
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
    """Where groups of ours go."""

    folder: Path
    version: int


def kind() -> str:
    """In words, what limits a sandbox as a whole; empty where nothing can."""
    place = _place()
    return f"cgroups version {place.version}" if place else ""


def make(limits: SandboxLimits) -> Group | None:
    """A group with these limits, or None where none can be made."""
    place = _place()
    if place is None:
        return None
    folder = place.folder / f"sparring-{_own_name(os.getpid())}-{next(_numbers)}"
    group = Group(folder, place.version)
    memory = str(limits.memory_bytes)
    try:
        folder.mkdir()
        if place.version == 2:
            (folder / "memory.max").write_text(memory)
            _try_to_write(folder / "memory.swap.max", "0")
            _try_to_write(folder / "memory.oom.group", "1")
        else:
            (folder / "memory.limit_in_bytes").write_text(memory)
            if _counts_swap():
                (folder / "memory.memsw.limit_in_bytes").write_text(memory)
    except OSError as error:
        group.remove(0)
        raise MachineryFailure(
            f"no control group can be made in {place.folder}: {error}"
        ) from error
    return group


def sweep() -> None:
    """Take away groups of processes that died before they could."""
    place = _place()
    if place is None:
        return
    for left in place.folder.glob("sparring-*-*-*"):
        pid, start = left.name.split("-")[1:3]
        if pid.isdigit() and start_of(int(pid)) != start:
            Group(left, place.version).remove(0.1)


@functools.cache
def _home() -> Path:
    """Where this process was before, in version 1."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _MOUNT / "memory" / path.lstrip("/")
    return _MOUNT / "memory"


@functools.cache
def _own_name(pid: int) -> str:
    return f"{pid}-{start_of(pid)}"


@functools.cache
def _counts_swap() -> bool:
    return (_home() / "memory.memsw.limit_in_bytes").exists()


def _try_to_write(file: Path, value: str) -> None:
    """What not every kernel has."""
    with contextlib.suppress(OSError):
        file.write_text(value)


@functools.cache
def _place() -> _Place | None:
    if (_MOUNT / "cgroup.controllers").exists():
        own = _own_unified()
        return _Place(own, 2) if own is not None else None
    home = _home()  # below our own, so that what limits us limits our sandboxes
    return _Place(home, 1) if os.access(home / "tasks", os.W_OK) else None


def _own_unified() -> Path | None:
    """A folder under which memory can be limited, and which we may write to.

    A group with processes cannot hand a controller on to its children, so it is the nearest one
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
            if "memory" in enabled and os.access(folder, os.W_OK):
                return folder
    return None
