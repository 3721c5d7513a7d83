"""Where workspaces lie on the host, what they take, and taking them away, whatever is in them."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import SparringError
from sparring.sandbox import cgroups
from sparring.sandbox.processes import end_all_in, start_of

_DEEPEST = 64
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PACKAGE = Path(__file__).resolve().parents[2]
_lock = threading.Lock()
_made: dict[int, _Place] = {}


@dataclass(frozen=True, slots=True)
class _Place:
    """This process's folder, and who will clear it up should this process be killed."""

    folder: Path
    keeper: subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class Use:
    """What a workspace takes; `is_opaque` where it could not be counted to the bottom."""

    size: int = 0
    files: int = 0
    is_opaque: bool = False


def new_workspace(number: int, owner: int | None) -> Path:
    """An empty folder; nobody else on the host can reach what is in it."""
    place = _of_this_process() / str(number)
    place.mkdir(mode=0o700)
    if owner is not None:
        os.chown(place, owner, owner)
    return place


def empty_folder() -> Path:
    """To be bound over what a sandbox is not to see."""
    place = _of_this_process() / "empty"
    place.mkdir(mode=0o555, exist_ok=True)
    return place


def measure(root: Path, most_files: int) -> Use:
    """How much a workspace takes. It is walked by descriptors: a program that swaps a folder for
    a link meanwhile leads nowhere. What cannot be looked into is opaque, and counts as full."""
    try:
        top = os.open(root, _DIRECTORY)
    except OSError:
        return Use()
    try:
        return _measured(top, most_files, 0)
    finally:
        os.close(top)


def _measured(folder: int, most_files: int, depth: int) -> Use:
    size = files = 0
    if depth > _DEEPEST:
        return Use(is_opaque=True)
    with os.scandir(folder) as entries:
        for entry in entries:
            files += 1
            if files > most_files:
                return Use(size, files)
            try:
                told = entry.stat(follow_symlinks=False)
                size += told.st_blocks * 512
                if not stat.S_ISDIR(told.st_mode):
                    continue
                below = os.open(entry.name, _DIRECTORY, dir_fd=folder)
            except FileNotFoundError:
                continue  # gone meanwhile
            except OSError:
                return Use(size, files, is_opaque=True)
            try:
                inside = _measured(below, most_files - files, depth + 1)
            finally:
                os.close(below)
            size, files = size + inside.size, files + inside.files
            if inside.is_opaque or files > most_files:
                return Use(size, files, inside.is_opaque)
    return Use(size, files)


def remove(root: Path) -> None:
    """Take a folder away, with folders in it that are closed, or deeper than a path can say.
    Nothing may run in it any more."""
    if not measure(root, 1 << 20).is_opaque:
        with contextlib.suppress(OSError, RecursionError):
            shutil.rmtree(root)
    if root.exists():
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(root)], capture_output=True, check=False)


def remove_by(pid: int, root: Path) -> None:
    """Take a folder away, but not for a process that was forked off and has a copy of our plans."""
    if os.getpid() == pid:
        remove(root)


def remove_all() -> None:
    """Everything that this process made; for its end."""
    with _lock:
        place = _made.pop(os.getpid(), None)
    if place is None:
        return
    end_all_in(place.folder)
    remove(place.folder)
    if place.keeper.stdin is not None:
        place.keeper.stdin.close()
    place.keeper.wait()


def _of_this_process() -> Path:
    with _lock:
        pid = os.getpid()
        if pid not in _made:
            base = _base()
            _sweep(base)
            cgroups.sweep()
            folder = base / f"{pid}-{start_of(pid)}"
            folder.mkdir(mode=0o700, exist_ok=True)
            _made[pid] = _Place(folder, _keeper(folder))
            atexit.register(remove_all)
        return _made[pid].folder


def _keeper(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sparring.sandbox.keeper"]
    keeper = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": os.defpath, "PYTHONPATH": str(_PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"},
        start_new_session=True,
    )
    if keeper.stdin is not None:
        keeper.stdin.write(f"{folder}\n".encode())
        keeper.stdin.flush()
    return keeper


def _base() -> Path:
    """In the folder for temporary files, where others might have put a trap of that name."""
    base = Path(tempfile.gettempdir()) / f"sparring-sandboxes-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o700)
    told = base.lstat()
    if not stat.S_ISDIR(told.st_mode) or told.st_uid != os.geteuid():
        raise SparringError(f"{base} is not a folder of this user's; remove it, or set TMPDIR")
    base.chmod(0o700)
    return base


def _sweep(base: Path) -> None:
    """What processes left whose keeper was killed as well."""
    for left in base.iterdir():
        pid, _, start = left.name.partition("-")
        if not pid.isdigit() or start_of(int(pid)) != start:
            end_all_in(left)
            remove(left)
