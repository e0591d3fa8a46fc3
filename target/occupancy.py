"""How many blocks of a launch an SM runs at once."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from .cuda import WARP, Limits

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

PARTS = 4
"""Parts of an SM, each of which has a share of its warps and registers."""
REGISTER_STEP = 8
"""A thread has a multiple of so many registers."""


def occupancy(blocks: float, threads: int, sm_threads: int) -> float:
    """The share of an SM's warps that so many blocks of so many threads each are."""
    return blocks * -(-threads // WARP) / (sm_threads // WARP)


def blocks_per_sm(limits: Limits, threads: Floats, registers: Floats, shared: Floats) -> Floats:
    """The blocks of `threads` that hold so many registers each and `shared` bytes together.

    0 where none fits. The rules are those of `cuda_occupancy.h` of the CUDA toolkit.
    """
    warps = np.ceil(np.maximum(threads, 1) / WARP)
    each = np.ceil(registers / REGISTER_STEP) * REGISTER_STEP * WARP
    each = np.ceil(each / limits.register_unit) * limits.register_unit
    by_registers = np.floor(limits.sm_registers / PARTS / each) * PARTS
    allocated = np.ceil(warps / PARTS) * PARTS
    of_registers = np.floor(by_registers / np.where(warps < PARTS, warps, allocated))
    of_shared = np.floor(limits.sm_bytes / (shared + limits.reserved_bytes))
    of_warps = np.floor(limits.sm_warps / warps)
    found = np.minimum(np.minimum(of_registers, of_shared), np.minimum(of_warps, limits.sm_blocks))
    fits = (threads <= limits.block_threads) & (shared <= limits.block_bytes)
    return np.where(fits, found, 0.0)
