"""Chooses the place of an index: the database at `SPARRING_DATABASE_URL`, or an SQLite file.

SQLite needs a local disk. A file outside the folder of runs is in a folder that only this user can
access, because operations trust its content. Hosts that share a folder of runs can share its index
through PostgreSQL.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
from hashlib import sha256
from pathlib import Path

from sparring.contracts.errors import InvalidInput
from sparring.secrets import read_key

DATABASE_URL = "SPARRING_DATABASE_URL"
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "fuse.sshfs", "9p")


def database_of(runs: Path) -> Path | str:
    """Return the path of the SQLite file, or the database URL with the schema's name as fragment.

    The URL comes from `SPARRING_DATABASE_URL` or from the file that `SPARRING_DATABASE_URL_FILE`
    names. It may contain a password.
    """
    url = read_key(DATABASE_URL)
    if url is None:
        return place_of(runs)
    return f"{url.get_secret_value()}#sparring_{_identity_of(runs)}"


def place_of(runs: Path) -> Path:
    """Return a path inside the folder of runs. If that folder is on a network file system or not
    writable, return a path in a private local folder."""
    beside = runs / ".sparring"
    is_writable = os.access(beside if beside.is_dir() else runs, os.W_OK)
    if _file_system_of(runs) not in _NETWORK and (is_writable or not runs.is_dir()):
        return runs / ".sparring" / "index.sqlite"
    name = sha256(str(runs.resolve()).encode()).hexdigest()[:16]
    return _private_folder() / f"index-{name}.sqlite"


def _identity_of(runs: Path) -> str:
    """Return a digest that identifies a folder of runs: the same on all hosts that mount it at the
    same path, and another for a copy or for a folder at that path on another disk."""
    mark = runs / ".sparring" / "index_id"
    with contextlib.suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        written = mark.with_name(f"index_id.{secrets.token_hex(8)}")
        if not mark.exists():
            written.write_text(secrets.token_hex(16))
            with contextlib.suppress(FileExistsError):
                mark.hardlink_to(written)  # only the first of several hosts succeeds
            written.unlink()
    try:
        token = mark.read_text()
    except OSError:
        token = ""  # the folder is not writable: only its path identifies it
    return sha256(f"{token}\n{runs.resolve()}".encode()).hexdigest()[:16]


def _private_folder() -> Path:
    """Return a local folder that only this user can access."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if _file_system_of(home) in _NETWORK:
        home = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = home / f"sparring-indexes-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_ours or status.st_mode & 0o077:
        raise InvalidInput(
            f"{folder} is open to other users; remove it, or set XDG_CACHE_HOME to another folder"
        )
    return folder


def _file_system_of(path: Path) -> str:
    """Return the file system type of a path, as in /proc/mounts; empty if it is unknown."""
    here, kind, length = str(path.resolve()), "", -1
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, found, *_ = line.split(" ")
            is_above = here == mount or here.startswith(mount.rstrip("/") + "/")
            if is_above and len(mount) > length:
                kind, length = found, len(mount)
    return kind
