"""Where workspaces lie on the host, and taking them away, whatever is in them."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import SparringError
from sparring.sandbox import cgroups

_DEEPEST = 64
_lock = threading.Lock()
_made: dict[int, Path] = {}


@dataclass(frozen=True, slots=True)
class Use:
    """What a workspace takes; `too_deep` where it could not be counted to the bottom."""

    size: int
    files: int
    too_deep: bool = False


def new_workspace(number: int, owner: int | None) -> Path:
    """An empty folder that only its sandbox's user can enter."""
    place = _of_this_process() / str(number)
    place.mkdir(mode=0o700)
    if owner is not None:
        os.chown(place, owner, owner)
    return place


def measure(root: Path, most_files: int) -> Use:
    """How much a workspace takes; counting ends where there is too much to count."""
    size = files = 0
    waiting = [(str(root), 0)]
    while waiting:
        folder, depth = waiting.pop()
        if depth > _DEEPEST:
            return Use(size, files, too_deep=True)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    files += 1
                    if files > most_files:
                        return Use(size, files)
                    with contextlib.suppress(OSError):
                        told = entry.stat(follow_symlinks=False)
                        size += told.st_blocks * 512
                        if stat.S_ISDIR(told.st_mode):
                            waiting.append((entry.path, depth + 1))
        except OSError:
            continue  # closed to us, or gone
    return Use(size, files)


def remove(root: Path) -> None:
    """Take a folder away, with folders in it that are closed, or deeper than a path can say."""
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(root)
    if root.exists():
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(root)], capture_output=True, check=False)


def remove_all() -> None:
    """Everything that this process made; for its end."""
    with _lock:
        place = _made.pop(os.getpid(), None)
    if place is not None:
        remove(place)


def _of_this_process() -> Path:
    with _lock:
        pid = os.getpid()
        if pid not in _made:
            base = _base()
            _sweep(base)
            cgroups.sweep()
            place = base / f"{pid}-{_start_of(pid)}"
            place.mkdir(mode=0o711, exist_ok=True)
            _made[pid] = place
            atexit.register(remove_all)
        return _made[pid]


def _base() -> Path:
    """In the folder for temporary files, where others might have put a trap of that name."""
    base = Path(tempfile.gettempdir()) / f"sparring-sandboxes-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o711)
    told = base.lstat()
    if not stat.S_ISDIR(told.st_mode) or told.st_uid != os.geteuid():
        raise SparringError(f"{base} is not a folder of this user's; remove it, or set TMPDIR")
    return base


def _sweep(base: Path) -> None:
    """What processes left that were killed."""
    for left in base.iterdir():
        pid, _, start = left.name.partition("-")
        if not pid.isdigit() or _start_of(int(pid)) != start:
            remove(left)


def _start_of(pid: int) -> str:
    """When a process began, which tells it from a later one of the same number."""
    try:
        told = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return "gone"
    return told.rpartition(")")[2].split()[19]
