"""What requests of warps cost: sectors of global memory, wavefronts of shared memory.

The rules are those of `codegen/cuda/emulate_memory.py`, for the threads of one block of many
candidates at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....target.cuda import BANK_BYTES, BANKS, SECTOR_BYTES, WARP

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Threads:
    """The threads of blocks, one block after the other.

    For each thread the number of its block and that of its warp among all, its lane, and its place
    along x, y and z. For each warp its block. Of each block the share of its warps that are here.
    """

    block: Ints
    warp: Ints
    lane: Ints
    x: Ints
    y: Ints
    z: Ints
    block_of_warp: Ints
    blocks: int
    share_of_warps: Floats

    @staticmethod
    def of(x: Ints, y: Ints, z: Ints, most_warps: int | None = None) -> Threads:
        """The threads of blocks of these extents, of the first warps of each block."""
        threads = x * y * z
        all_warps = -(-threads // WARP)
        if most_warps is not None:
            threads = np.minimum(threads, most_warps * WARP)
        warps = -(-threads // WARP)
        count = len(threads)
        block = np.repeat(np.arange(count), threads)
        number = np.arange(len(block)) - np.repeat(np.cumsum(threads) - threads, threads)
        warp = np.repeat(np.cumsum(warps) - warps, threads) + number // WARP
        rest, place_x = np.divmod(number, x[block])
        place_z, place_y = np.divmod(rest, y[block])
        return Threads(
            block,
            warp,
            number % WARP,
            place_x,
            place_y,
            place_z,
            np.repeat(np.arange(count), warps),
            count,
            warps / all_warps,
        )

    def where(self, chosen: Mask) -> Threads:
        """Those of them that are chosen."""
        return Threads(
            self.block[chosen],
            self.warp[chosen],
            self.lane[chosen],
            self.x[chosen],
            self.y[chosen],
            self.z[chosen],
            self.block_of_warp,
            self.blocks,
            self.share_of_warps,
        )

    def count(self) -> Ints:
        """The threads of each block."""
        return np.bincount(self.block, minlength=self.blocks)

    def requests(self) -> Ints:
        """The warps of each block that have one of these threads."""
        used = np.zeros(len(self.block_of_warp), dtype=np.bool_)
        used[self.warp] = True
        return np.bincount(self.block_of_warp[used], minlength=self.blocks)

    def sectors(self, elements: Ints, element_bytes: int) -> Ints:
        """The sectors of a request of each warp for these elements, by blocks."""
        distinct = _distinct(self.warp, elements // (SECTOR_BYTES // element_bytes))
        return np.bincount(self.block_of_warp[distinct[0]], minlength=self.blocks)

    def wavefronts(self, elements: Ints, element_bytes: int, access_bytes: Ints) -> Ints:
        """The wavefronts of accesses to shared memory, each of so many bytes, by blocks."""
        total = np.zeros(self.blocks, dtype=np.int64)
        words = elements * element_bytes // BANK_BYTES
        parts = np.maximum(access_bytes // BANK_BYTES, 1)
        for n in np.unique(parts).tolist():
            chosen = parts == n
            group = (self.warp[chosen] * WARP + self.lane[chosen]) // (WARP // n)
            every = words[chosen][:, None] + np.arange(n)
            groups = np.broadcast_to(group[:, None], every.shape)
            where, word = _distinct(groups.ravel(), every.ravel())
            first = int(where[0]) if len(where) else 0
            size = (int(where[-1]) - first + 1) * BANKS if len(where) else 0
            used = np.bincount((where - first) * BANKS + word % BANKS, minlength=size)
            fronts = used.reshape(-1, BANKS).max(axis=1)
            warps = (np.arange(len(fronts)) + first) // n
            total += np.bincount(
                self.block_of_warp[warps], weights=fronts, minlength=self.blocks
            ).astype(np.int64)
        return total


def _distinct(groups: Ints, numbers: Ints) -> tuple[Ints, Ints]:
    """The different numbers of each group, with their groups, in order of these."""
    if len(numbers) == 0:
        return groups, numbers
    low = int(numbers.min())
    size = int(numbers.max()) - low + 1
    keys = groups * size + (numbers - low)
    if int(groups.max() + 1) * size < 1 << 31:  # half as wide is sorted in half the time
        keys = keys.astype(np.int32)
    keys.sort()
    new = np.empty(len(keys), dtype=np.bool_)
    new[0] = True
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    group, number = np.divmod(keys[new].astype(np.int64), size)
    return group, number + low
