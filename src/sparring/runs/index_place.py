"""Where the index of a folder of runs lies: SQLite wants a disk of this host, and what an index
says is acted upon, so nobody else may write it."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from hashlib import sha256
from pathlib import Path

from sparring.contracts.errors import InvalidInput

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "fuse.sshfs", "9p")


def place_of(runs: Path) -> Path:
    """Beside the runs; where those are on a network, in a private folder of this host."""
    if _file_system_of(runs) not in _NETWORK:
        return runs / ".sparring" / "index.sqlite"
    name = sha256(str(runs.resolve()).encode()).hexdigest()[:16]
    return _private_folder() / f"index-{name}.sqlite"


def _private_folder() -> Path:
    """Of this user, and closed to all others."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if _file_system_of(home) in _NETWORK:
        home = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = home / f"sparring-indexes-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or found.st_mode & 0o077:
        raise InvalidInput(f"{folder} is open to others; remove it, or set XDG_CACHE_HOME")
    return folder


def _file_system_of(path: Path) -> str:
    """The kind of file system a folder is on; empty where the system does not tell."""
    here, kind, length = str(path.resolve()), "", -1
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, found, *_ = line.split(" ")
            is_above = here == mount or here.startswith(mount.rstrip("/") + "/")
            if is_above and len(mount) > length:
                kind, length = found, len(mount)
    return kind
