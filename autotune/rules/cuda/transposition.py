"""Transposition through shared memory.

    for b in thread("blockIdx.x"):
        for t in thread("threadIdx.x", 256):        # along the input's rows
            shared[..] = A[..]
        for t in thread("threadIdx.x", 256):        # along the output's rows
            B[..] = shared[..]

Rows of the tile are padded, so that its columns lie in different banks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....base import dtypes
from ....schedule import Schedule
from ....tir.ir import Dim, Label, Var
from ..access_patterns import extents, input_along, inputs_of, runs_across
from ..common import block_loops, fused, powers, sampled, widest
from ..draft import Draft
from ..vectors import native_lanes
from .limits import block_sizes, limit_block, registers

BANK = 4
"""Bytes of a bank."""
BANKS = 32


def schedule_transposing(draft: Draft, label: Label) -> None:
    """Bring tiles of the input that lies across to shared memory row by row."""
    sch = draft.schedule
    block = draft.block(label)
    across = runs_across(block)
    assert across is not None
    along, other = across
    sizes, index = extents(block), input_along(block, across)
    dtype = inputs_of(block)[index].buffer.dtype
    size = dtypes.nbytes(dtype)
    word = max(1, BANK // size)
    lanes = sampled(sch, powers(native_lanes(draft.target.vector_bits, widest(block))))
    wide = lanes * sampled(sch, _tiles(sizes[along], native_lanes(draft.target.vector_bits, dtype)))
    tall = word * sampled(sch, _tiles(sizes[other], word))
    threads = sch.sample_categorical(block_sizes(64, 512))
    row = BANKS * BANK // size
    held = registers([(dtype, wide * tall // threads)])
    draft.limit("a tile has work for each thread", threads * lanes <= wide * tall)
    limit_block(draft, threads, held, wide * (tall + row) * size)

    copy = sch.cache_read(label, index, "shared")
    loops = block_loops(sch, label)
    a, inner_a, lane = sch.split(loops[along], factors=[None, wide // lanes, lanes])
    o, inner_o = sch.split(loops[other], factors=[None, tall])
    rest = [loop for v, loop in loops.items() if v is not along and v is not other]
    sch.reorder(*rest, o, a, inner_o, inner_a, lane)
    sch.compute_at(copy, a)
    sch.bind(fused(sch, [*rest, o, a]), "blockIdx.x")
    sch.storage_align(copy, 0, -2, row, word)
    in_threads(sch, [inner_o, inner_a], threads)
    sch.vectorize(lane)
    *around, contiguous = sch.get_loops(copy)[1:]
    contiguous, lane = sch.split(contiguous, factors=[None, word])
    in_threads(sch, [*around, contiguous], threads)
    sch.vectorize(lane)


def in_threads(sch: Schedule, loops: Sequence[Var], threads: Dim) -> None:
    """Spread the iterations of nested loops over the threads of a block."""
    _, thread = sch.split(fused(sch, loops), factors=[None, threads])
    sch.bind(thread, "threadIdx.x")


def _tiles(extent: int, lanes: int) -> list[int]:
    """The vectors of tiles that an extent fills."""
    return [n for n in (8, 16, 32, 64, 128) if n * lanes <= extent] or [max(1, extent // lanes)]
