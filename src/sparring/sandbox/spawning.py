"""Starts programs in another mount namespace; this process must be root.

A dedicated thread enters the namespace, starts the program and returns to its own namespace; other
threads are not affected. The thread lives as long as the process, because `--die-with-parent`
kills a program when the thread that started it ends.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")
_NEW_MOUNTS, _NEW_WORKING_FOLDER = 0x20000, 0x200  # CLONE_NEWNS, CLONE_FS
_libc = ctypes.CDLL(None, use_errno=True)
_lock = threading.Lock()
_spawners: dict[int, _Spawner] = {}


def spawn_in(namespace: int, work: Callable[[], Result]) -> Result:
    """Run `work` on a thread in the mount namespace that the file descriptor `namespace` refers to;
    return its result."""
    with _lock:
        pid = os.getpid()  # a forked child does not inherit threads
        if pid not in _spawners:
            _spawners.clear()
            _spawners[pid] = _Spawner()
        spawner = _spawners[pid]
    return spawner.run(namespace, work)


class _Spawner:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sandbox-spawner")
        self._home = self._thread.submit(_unshare_working_folder).result()

    def run(self, namespace: int, work: Callable[[], Result]) -> Result:
        return self._thread.submit(self._run_in, namespace, work).result()

    def _run_in(self, namespace: int, work: Callable[[], Result]) -> Result:
        raise_on_failure(_libc.setns(namespace, _NEW_MOUNTS))
        try:
            return work()
        finally:
            raise_on_failure(_libc.setns(self._home, _NEW_MOUNTS))


def _unshare_working_folder() -> int:
    """Give the thread its own working folder, as `setns` requires; return a descriptor of its
    mount namespace."""
    raise_on_failure(_libc.unshare(_NEW_WORKING_FOLDER))
    return os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def raise_on_failure(result: int) -> None:
    """Raise OSError with the current errno if a C library call returned nonzero."""
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
