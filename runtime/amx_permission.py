"""Ask Linux for permission to use the AMX tile registers in this process."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

_ARCH_PRCTL = 158
_REQUEST = 0x1023
_TILE_DATA = 18
"""Linux, Documentation/arch/x86/xstate.rst: ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA."""


@cache
def request_tiles() -> bool:
    """Ask for tile registers for all threads of this process; returns whether they are granted.

    Without permission, the first instruction that uses one ends the process.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
