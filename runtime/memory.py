"""What happens to memory between calls.

Kernels take memory for their internal buffers at each call. The C library hands larger pieces back
to the system when they are freed, and the next call pays for each of their pages again: 352 page
faults, 1 ms, at each call of an attention that itself takes 0.7 ms. So that does not happen for
pieces of up to 32 MB once a module was made in a process.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

KEPT_BYTES = 128 << 20
"""Freed memory at the end of a heap beyond which it is handed back."""
LARGEST_BYTES = 32 << 20
"""Larger pieces are handed back always; glibc allows no more."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Let the C library keep what is freed; says whether it does.

    Where the environment has settings for it (`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`,
    `GLIBC_TUNABLES`) they stay, and so does a C library that has no `mallopt` (mallopt(3)).
    """
    if any(name in os.environ for name in _SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    wanted = {_M_TRIM_THRESHOLD: KEPT_BYTES, _M_MMAP_THRESHOLD: LARGEST_BYTES}
    return all(mallopt(option, size) == 1 for option, size in wanted.items())
