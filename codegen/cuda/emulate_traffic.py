"""Counts of what the statements of a program ask of the hardware.

Global memory moves in sectors of 32 bytes. A request is an access by the threads of a warp that are
at it together; it moves each sector once that one of them touches. Arrays start at a multiple of
32 bytes.

Shared memory has 32 banks of 4 bytes. A wavefront takes a word of 4 bytes from each bank, for any
number of threads. An access of up to 4 bytes takes as many wavefronts for a warp as there are
different words in one bank. One of 8 bytes is done for each half of a warp by itself, and one of 16
bytes for each quarter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...target.cuda import BANK_BYTES, BANKS, SECTOR_BYTES
from ...tir.ir import WARP
from .emulate_batch import Active, Array


@dataclass
class Counts:
    """What a statement did in all launches of it, by all threads.

    `executions` are by threads. `operations` are `Binary`, `Call` and `Cast`, by threads, for each
    dtype of operands, or of results of casts. Requests are by warps, and so are `shuffles`.
    `barriers` are by blocks, or by warps for those of a warp.
    """

    executions: int = 0
    operations: dict[str, int] = field(default_factory=dict)
    global_requests: int = 0
    sectors_read: int = 0
    sectors_written: int = 0
    shared_requests: int = 0
    wavefronts: int = 0
    shuffles: int = 0
    barriers: int = 0

    def operate(self, operations: Mapping[str, int], threads: int) -> None:
        """Add operations that each of `threads` does."""
        for dtype, count in operations.items():
            self.operations[dtype] = self.operations.get(dtype, 0) + count * threads


def sectors(active: Active, elements: Array, element_bytes: int) -> int:
    """The sectors of a request of each warp for these elements of an array.

    There is an element for each active thread, or one for all; for a move the first one, as it does
    not cross the border of a sector.
    """
    if elements.shape[0] == 1:
        return active.groups(WARP)
    rows = active.rows(elements // (SECTOR_BYTES // element_bytes), WARP)
    return _distinct(rows)


def wavefronts(active: Active, addresses: Array, access_bytes: int) -> int:
    """The wavefronts of accesses to shared memory at these addresses, one for each thread.

    Blocks are at multiples of `BANKS * BANK_BYTES`.
    """
    words = addresses // BANK_BYTES
    size = WARP
    if access_bytes > BANK_BYTES:
        parts = access_bytes // BANK_BYTES
        size = WARP // parts
        words = words[:, None] + np.arange(parts)
    rows = np.sort(active.rows(words, size), axis=1)
    new = rows >= 0
    new[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    banks = rows % BANKS + np.arange(len(rows))[:, None] * BANKS
    used = np.bincount(banks[new], minlength=len(rows) * BANKS)
    return int(used.reshape(-1, BANKS).max(axis=1).sum())


def _distinct(rows: Array) -> int:
    """The different numbers that are not negative in each row, added up."""
    rows = np.sort(rows, axis=1)
    new = int(np.count_nonzero(rows[:, 1:] != rows[:, :-1]))
    return new + int(np.count_nonzero(rows[:, 0] >= 0))
