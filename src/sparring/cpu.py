"""Configures OpenMP and glibc for a process that shares its machine with others. A leaf.

OpenMP threads spin while they wait for one another. On a busy machine, if one thread loses its
core, all others spin for long and waste theirs; threads that sleep at once take time to wake. So
they spin for about as long as PyTorch needs between two operations, and then sleep.

glibc keeps freed blocks of up to 32 MiB in the heap, so tensors of changing sizes make the heap
grow.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

_SPINS = "5000"  # for GNU's OpenMP, which PyTorch has on Linux; others read the policy alone
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIM_BYTES, _MMAP_BYTES = 64 << 20, 1 << 20


def share_machine() -> None:
    """Make waiting OpenMP threads sleep soon and glibc return freed memory.

    Call it before importing torch: OpenMP reads its environment when it is loaded. An
    OMP_WAIT_POLICY of the user's is kept, and with any MALLOC_… variable set, glibc is left alone.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
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
