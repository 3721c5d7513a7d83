"""Configures a computing process to share its machine. A leaf.

OpenMP threads spin while they wait for one another. On a busy machine the thread that the others
wait for may have lost its core, and all of them spin until it gets one back. glibc does not return
freed blocks of up to 32 MiB, so tensors of changing sizes make the heap grow.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIM_BYTES, _MMAP_BYTES = 64 << 20, 1 << 20


def share_machine() -> None:
    """Make OpenMP threads sleep while they wait and glibc return freed memory.

    Call it before importing torch: OpenMP reads its environment when it is loaded. Variables that
    the user has set are left alone.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _return_freed_memory()


def release_freed_memory() -> None:
    """Return what has been freed inside the heap to the system, which takes milliseconds. glibc
    does that by itself only at the heap's end."""
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _return_freed_memory() -> None:
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # not glibc
    mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
