"""Keeping the memory of arrays that are freed, for programs that make new ones for each call.

The C library hands larger pieces back to the system when they are freed, and whoever is given such
memory again pays for each of its pages: an output of 4 MB that is made anew for each call costs
1,024 page faults. `keep_freed_memory` changes that for the whole process, so it is never called by
this package itself: kernels need no memory but their workspaces, which are kept anyway
(`workspace.py`).
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
    """Let the C library keep what is freed, for all of this process. Returns whether it does.

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
