"""Creates workspaces on the host, measures their disk use, and removes them."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import InfrastructureError, SparringError
from sparring.sandbox import cgroups
from sparring.sandbox.command import SandboxLimits
from sparring.sandbox.keeper_client import Keeper
from sparring.sandbox.processes import kill_all_in, ticks_at_start

_MAX_DEPTH = 64
_WEEK = 7 * 24 * 3600.0
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_lock = threading.Lock()
_process_folders: dict[int, _ProcessFolder] = {}


@dataclass(frozen=True, slots=True)
class _ProcessFolder:
    """The folder of one process, and the keeper that removes it when the process ends."""

    folder: Path
    keeper: Keeper


@dataclass(frozen=True, slots=True)
class WorkspaceFiles:
    """The files of one sandbox.

    bubblewrap finds the files at `folder`, after it enters the mount namespace through the
    descriptor `namespace` or the command prefix `enter`. This process reads and writes them at
    `root`. `is_bounded` means that the kernel enforces the size.
    """

    number: int
    folder: Path
    root: Path
    keeper: Keeper
    made_by: int
    is_bounded: bool = False
    namespace: int | None = None
    enter: tuple[str, ...] = ()

    def is_full(self, limits: SandboxLimits, more: int = 0) -> bool:
        """Whether `more` further bytes do not fit. A bounded workspace is measured by its file
        system, others by a walk over their files. An unreadable workspace counts as full."""
        if not self.is_bounded:
            use = disk_use(self.root, limits.files)
            is_over = use.files > limits.files or use.size + more > limits.disk_bytes
            return use.is_opaque or is_over
        try:
            usage = os.statvfs(self.root)
        except PermissionError:  # a program removed the permissions, so nobody can write
            return True
        except OSError as error:
            raise InfrastructureError(f"the workspace is gone: {error}") from error
        return usage.f_ffree == 0 or usage.f_bfree * usage.f_frsize < more

    def remove(self) -> None:
        """Delete the workspace; does nothing in a forked child, which inherits the finalizer."""
        if os.getpid() != self.made_by:
            return
        if self.namespace is not None:
            os.close(self.namespace)
        if self.is_bounded:
            self.keeper.release(self.number)
        remove(self.folder)


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The disk use of a workspace in bytes; `is_opaque` if a part could not be read."""

    size: int = 0
    files: int = 0
    is_opaque: bool = False


def new_workspace(
    number: int, owner: int | None, limits: SandboxLimits, *, is_bounded: bool = True
) -> WorkspaceFiles:
    """Create an empty workspace, owned by the user id `owner`, that no other user can reach. With
    `is_bounded`, and if the keeper supports it, the workspace has its own file system, so that the
    kernel enforces its size."""
    process_folder = _own_folder()
    folder, keeper = process_folder.folder / str(number), process_folder.keeper
    folder.mkdir(mode=0o700)
    if not (is_bounded and keeper.has_bounded_workspaces):
        if owner is not None:
            os.chown(folder, owner, owner)
        return WorkspaceFiles(number, folder, folder, keeper, os.getpid())
    try:
        held = keeper.hold(number, limits, owner)
        root = held.folder / str(number)
        if keeper.has_user_namespace:
            enter = tuple(keeper.enter_command(held.namespace))
            return WorkspaceFiles(
                number, folder, root, keeper, os.getpid(), is_bounded=True, enter=enter
            )
        namespace = os.open(held.namespace, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, InfrastructureError) as error:
        keeper.release(number)
        remove(folder)
        raise InfrastructureError(f"cannot create a workspace for a sandbox: {error}") from error
    return WorkspaceFiles(
        number, folder, root, keeper, os.getpid(), is_bounded=True, namespace=namespace
    )


def workspaces_are_bounded() -> bool:
    """Whether the kernel enforces the size of workspaces on this machine."""
    return _own_folder().keeper.has_bounded_workspaces


def empty_folder() -> Path:
    """Return an empty folder to mount over folders that a sandbox must not see."""
    folder = _own_folder().folder / "empty"
    folder.mkdir(mode=0o555, exist_ok=True)
    return folder


def disk_use(root: Path, max_files: int) -> DiskUse:
    """Return the disk use of a workspace; stop after `max_files` files. The walk opens each folder
    by descriptor, so that a program cannot redirect it by replacing a folder with a link."""
    try:
        top = os.open(root, _DIRECTORY_FLAGS)
    except FileNotFoundError:
        return DiskUse()
    except OSError:
        return DiskUse(is_opaque=True)
    try:
        return _disk_use_below(top, max_files, 0)
    finally:
        os.close(top)


def _disk_use_below(descriptor: int, max_files: int, depth: int) -> DiskUse:
    size = files = 0
    if depth > _MAX_DEPTH:
        return DiskUse(is_opaque=True)
    with os.scandir(descriptor) as entries:
        for entry in entries:
            files += 1
            if files > max_files:
                return DiskUse(size, files)
            try:
                status = entry.stat(follow_symlinks=False)
                size += status.st_blocks * 512
                if not stat.S_ISDIR(status.st_mode):
                    continue
                subfolder = os.open(entry.name, _DIRECTORY_FLAGS, dir_fd=descriptor)
            except FileNotFoundError:
                continue  # deleted during the walk
            except OSError:
                return DiskUse(size, files, is_opaque=True)
            try:
                inside = _disk_use_below(subfolder, max_files - files, depth + 1)
            finally:
                os.close(subfolder)
            size, files = size + inside.size, files + inside.files
            if inside.is_opaque or files > max_files:
                return DiskUse(size, files, inside.is_opaque)
    return DiskUse(size, files)


def remove(root: Path) -> None:
    """Delete a folder, even if subfolders are unreadable or nested too deeply for a path.

    The caller ensures that no process uses the folder.
    """
    if not disk_use(root, 1 << 20).is_opaque:
        with contextlib.suppress(OSError, RecursionError):
            shutil.rmtree(root)
    if root.exists():
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(root)], capture_output=True, check=False)


def remove_all() -> None:
    """Remove all workspaces of this process; runs at exit."""
    with _lock:
        process_folder = _process_folders.pop(os.getpid(), None)
    if process_folder is None:
        return
    process_folder.keeper.end()
    if process_folder.folder.exists():
        kill_all_in(process_folder.folder)
        remove(process_folder.folder)


def _own_folder() -> _ProcessFolder:
    with _lock:
        pid = os.getpid()
        if pid not in _process_folders or _process_folders[pid].keeper.is_gone:
            base = _base_folder()
            _remove_leftovers(base)
            cgroups.sweep()
            folder = base / f"{pid}-{ticks_at_start(pid)}-{_host()}"
            folder.mkdir(mode=0o700, exist_ok=True)
            _process_folders[pid] = _ProcessFolder(folder, Keeper(folder))
            atexit.register(remove_all)
        return _process_folders[pid]


def _after_fork() -> None:
    """Close the pipes to the parent's keeper in a forked child."""
    for process_folder in _process_folders.values():
        process_folder.keeper.leave()
    _process_folders.clear()


os.register_at_fork(after_in_child=_after_fork)


def _base_folder() -> Path:
    """Return the folder for the workspaces of all processes of this user. Raises SparringError if
    another user has created it: the temporary folder is shared."""
    base = Path(tempfile.gettempdir()) / f"sparring-sandboxes-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o700)
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise SparringError(f"{base} is not a folder owned by this user; remove it, or set TMPDIR")
    base.chmod(0o700)
    return base


def _remove_leftovers(base: Path) -> None:
    """Remove the folders of dead processes whose keeper was killed before it could clean up. Those
    of other hosts and containers, which may share the temporary folder, have a week."""
    for folder in base.iterdir():
        pid, start, host = (*folder.name.split("-", 2), "", "")[:3]
        if host in ("", _host()):
            is_over = not pid.isdigit() or ticks_at_start(int(pid)) != start
        else:
            is_over = _age(folder) > _WEEK
        if is_over:
            kill_all_in(folder)
            remove(folder)


def _age(folder: Path) -> float:
    with contextlib.suppress(OSError):  # its host may have just removed it
        return time.time() - folder.stat().st_mtime
    return 0.0


def _host() -> str:
    """Return a name for this host or container, in which the ids of processes are known."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        name += str(Path("/proc/self/ns/pid").stat().st_ino)
    return hashlib.sha256(name.encode()).hexdigest()[:8]
