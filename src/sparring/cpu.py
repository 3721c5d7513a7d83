"""Configures OpenMP and glibc for a process that shares its machine with others. A leaf.

OpenMP threads spin while they wait for one another. On a busy machine, if one thread loses its
core, all others spin for a while and waste theirs. glibc keeps freed blocks of up to 32 MiB in the
heap, so tensors of changing sizes make the heap grow.
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

    Call it before importing torch: OpenMP reads its environment when it is loaded. An
    OMP_WAIT_POLICY of the user's is kept, and with any MALLOC_… variable set, glibc is left alone.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _return_freed_memory()


def release_freed_memory() -> None:
    """Return freed memory inside the heap to the system, which takes milliseconds. By itself, glibc
    returns only freed memory at the end of the heap."""
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
