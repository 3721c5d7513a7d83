"""`python -m sparring.sandbox.keeper`: holds the workspaces of a worker, and cleans up at its end.

Each workspace is an in-memory file system of a fixed size in its own mount namespace. It exists as
long as a process or a descriptor refers to it. For each workspace the keeper holds two
descriptors: commands enter the namespace through one, the worker reads and writes files through
the other.

The keeper reads the worker's folder from standard input, then one JSON request per line, and
writes one JSON reply per line. When standard input ends, the worker has ended or crashed: the
keeper kills every process of the worker's sandboxes and removes every workspace.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from sparring.sandbox import cgroups
from sparring.sandbox.processes import kill_all_in
from sparring.sandbox.spawning import raise_on_failure
from sparring.sandbox.workspaces import remove

_NEW_MOUNTS, _NOSUID, _NODEV = 0x20000, 2, 4
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Serve one worker until standard input ends, then clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # signals for the worker must not end the keeper
    folder = Path(sys.stdin.readline().rstrip("\n"))
    if not folder.is_absolute():
        return  # the worker ended before it sent its folder
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    workspaces: dict[int, tuple[int, int]] = {}
    home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    _send({})
    for line in sys.stdin:
        request = json.loads(line)
        reply = {"number": request["number"]}
        try:
            _send({**reply, **_handle(request, folder, workspaces, home)})
        except OSError as error:
            _send({**reply, "error": f"{type(error).__name__}: {error}"})
    kill_all_in(folder)
    remove(folder)
    cgroups.sweep()


def _handle(
    request: dict[str, Any], folder: Path, workspaces: dict[int, tuple[int, int]], home: int
) -> dict[str, int]:
    number = int(request["workspace"])
    if request["do"] == "release":
        for descriptor in workspaces.pop(number, ()):
            os.close(descriptor)
        return {}
    raise_on_failure(_libc.unshare(_NEW_MOUNTS))
    try:
        _mount(folder / str(number), request["bytes"], request["files"], request["owner"])
        namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        inside = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        raise_on_failure(_libc.setns(home, _NEW_MOUNTS))
    workspaces[number] = namespace, inside
    return {"namespace": namespace, "inside": inside}


def _mount(folder: Path, size: int, files: int, owner: int | None) -> None:
    """Mount a file system whose source is its own path, by which `kill_all_in` finds processes."""
    ownership = "" if owner is None else f",uid={owner},gid={owner}"
    # The root folder needs an inode too.
    options = f"size={size},nr_inodes={files + 1},mode=700{ownership}"
    target = os.fsencode(folder)
    raise_on_failure(_libc.mount(target, target, b"tmpfs", _NOSUID | _NODEV, options.encode()))


def _send(reply: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the worker may have ended
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
