"""Spatial blocks: an element or a few vectors a thread, or tiles where an access runs across.

    for b in thread("blockIdx.x"), n in unrolled(4):
        for t in thread("threadIdx.x", 256), v in vectorized(4):
            B[((b * 4 + n) * 256 + t) * 4 + v] = ..

Vectors of 16 bytes next to each other in threads are whole sectors of memory, and several of them
in a thread are on their way at once.

Transposition through shared memory.

    for b in thread("blockIdx.x"):
        for t in thread("threadIdx.x", 256):        # along the input's rows
            shared[..] = A[..]
        for t in thread("threadIdx.x", 256):        # along the output's rows
            B[..] = shared[..]

Rows of the tile are padded, so that its columns lie in different banks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

from ....base import dtypes
from ....schedule import Schedule
from ....schedule.block_queries import has_reduction
from ....tir.ir import Block, Dim, Label, Var
from ..access_patterns import (
    consumers,
    extents,
    has_guard,
    input_along,
    inputs_of,
    is_flat,
    runs_across,
)
from ..common import block_loops, fused, native_lanes, powers, sampled, widest
from ..draft import Draft
from ..row_reads import cheap_stages
from ..rule import Group, Variant
from .limits import block_sizes, limit_block, registers

MOST_VECTORS = 8
"""Vectors of a thread, at most."""
SHORT_ROW = 64
"""Rows of fewer elements share blocks."""


def elementwise_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """All elements in one loop, or the elements of rows; tiles where an input is transposed.

    What pads an input of reductions is computed where these read it, first of all.
    """
    (block,) = group.members

    def variant(form: str, schedule: Callable[[Draft, Label], None]) -> Variant:
        def step(draft: Draft) -> None:
            schedule(draft, draft.schedule.get_block(block.label))

        return Variant.of(form, step, form=form)

    readers = consumers(draft.func, block)
    if readers and has_guard(block) and all(map(has_reduction, readers)):
        yield variant("inlined", _inline)
    if runs_across(block) is not None:
        yield variant("transposing", schedule_transposing)
    yield variant("flat", schedule_flat)
    sizes = extents(block)
    if len(block.iters) > 1 and not is_flat(block) and sizes[block.iters[-1].var] >= SHORT_ROW:
        yield variant("by_row", schedule_by_row)


def pipeline_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """Stages that read windows of each other: each on its own, or inside the elements that read
    them."""
    del draft
    labels = [b.label for b in group.members]
    cheap = cheap_stages(group.members)

    def apart(draft: Draft, inlined: Sequence[Label]) -> None:
        for label in inlined:
            draft.schedule.compute_inline(draft.schedule.get_block(label))
        for label in labels:
            if label not in inlined:
                schedule_flat(draft, draft.schedule.get_block(label))

    for form, inlined in (("apart", cheap), ("inside", labels[:-1])):
        yield Variant.of(form, functools.partial(apart, inlined=inlined), form=form)


def _inline(draft: Draft, label: Label) -> None:
    draft.schedule.compute_inline(label)


def schedule_flat(draft: Draft, label: Label) -> None:
    """Spread all elements of a block over threads."""
    block, loops = draft.block(label), draft.schedule.get_loops(label)
    if loops:
        sizes = extents(block)
        extent = math.prod(sizes[i.var] for i in block.iters)
        _spread(draft, block, [], fused(draft.schedule, loops), extent)


def schedule_by_row(draft: Draft, label: Label) -> None:
    """Spread the elements of each row over threads: what a row shares is loaded once by each."""
    block = draft.block(label)
    *rows, along = draft.schedule.get_loops(label)
    _spread(draft, block, rows, along, extents(block)[block.iters[-1].var])


def _spread(draft: Draft, block: Block, around: Sequence[Var], loop: Var, extent: int) -> None:
    """Cut a loop into what blocks, vectors and threads take; the loops `around` number blocks."""
    sch = draft.schedule
    lanes = sampled(sch, powers(min(native_lanes(draft.target.vector_bits, widest(block)), extent)))
    threads = sampled(sch, block_sizes())
    vectors = sampled(sch, powers(min(MOST_VECTORS, extent)))
    values = [(i.buffer.dtype, vectors * lanes) for i in inputs_of(block)]
    limit_block(draft, threads, registers([*values, (widest(block), vectors * lanes)]))
    elements = vectors * lanes
    draft.limit(
        "the last block has work for each thread",
        (elements <= 1) | (threads * elements < 2 * extent),
    )
    blocks, several, thread, lane = sch.split(loop, factors=[None, vectors, threads, lanes])
    sch.unroll(several)
    sch.vectorize(lane)
    sch.bind(fused(sch, [*around, blocks]), "blockIdx.x")
    sch.bind(thread, "threadIdx.x")


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
