"""What a block of threads may use: the limits of a target as conditions on decisions.

Registers of a thread are estimated from the values that it holds at once. ptxas may hold more or
fewer; what it would have to spill is not worth a measurement.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....base import dtypes
from ....target.cuda import WARP, CudaTarget, Limits
from ....tir.ir import Buffer, Dim
from ..draft import Draft

MOST_THREADS = 1024
"""Threads of a block that are tried, at most."""
INDEX_REGISTERS = 24
"""Registers of a thread for indices, addresses and what is between them."""


def device_limits(draft: Draft) -> Limits:
    return CudaTarget.of(draft.target).limits


def block_sizes(least: int = WARP, most: int = MOST_THREADS) -> list[int]:
    """Numbers of threads of a block, powers of two."""
    sizes = [least]
    while sizes[-1] * 2 <= most:
        sizes.append(sizes[-1] * 2)
    return sizes


def registers(values: Iterable[tuple[str, Dim]]) -> Dim:
    """The registers of a thread that holds so many values of each dtype."""
    total: Dim = INDEX_REGISTERS
    for dtype, count in values:
        total = total + count * registers_of(dtype)
    return total


def registers_of(dtype: str) -> int:
    """Registers of a value. What is narrower than one is computed in a whole one."""
    return max(1, dtypes.nbytes(dtype) // 4)


def limit_block(draft: Draft, threads: Dim, held: Dim, shared: Dim = 0) -> None:
    """Call rows hopeless whose blocks an SM cannot run: of `threads` that hold so many registers
    each, and with so many bytes of shared memory."""
    limits = device_limits(draft)
    draft.limit("a block has no more threads than the device runs", threads <= limits.block_threads)
    draft.limit("a block has a warp of threads", threads >= WARP)
    draft.limit("what a thread holds fits its registers", held <= limits.thread_registers)
    draft.limit(
        "the threads of a block share the registers", held * threads <= limits.block_registers
    )
    draft.limit("what a block shares fits its memory", shared <= limits.block_bytes)


def shared_bytes(buffer: Buffer, elements: Dim) -> Dim:
    return elements * dtypes.nbytes(buffer.dtype)
