"""How a process that computes shares the machine with others: threads that wait asleep, and memory
that goes back when it is freed. A leaf.

Threads of OpenMP spin while they wait for one another. On a machine with other work the one that
is waited for has lost its core, and all of them spin until it gets one back. glibc keeps freed
blocks of up to 32 MiB for itself, so that tensors of changing sizes leave a heap that only grows.
"""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIM_BYTES, _MMAP_BYTES = 64 << 20, 1 << 20


def share_machine() -> None:
    """Call before torch is imported: OpenMP reads its environment when it is loaded. What the user
    has set stays."""
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _return_freed_memory()


def _return_freed_memory() -> None:
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # not glibc
    mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
