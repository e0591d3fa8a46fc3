"""Spatial blocks: parallel outside, vectors inside, and tiles where an access runs across."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ....base import dtypes
from ....base.errors import ScheduleError
from ....schedule import Schedule
from ....schedule.block_queries import free_vars, has_reduction, readers_of, region_buffers
from ....schedule.find import find_block, find_loop, path_to
from ....target import CpuTarget, Target
from ....tir.ir import Block, Buffer, Dim, For, ForKind, Func, Label, Var, ceildiv
from ..access_patterns import (
    extents,
    few_columns,
    grouped,
    input_along,
    inputs_of,
    is_flat,
    output_of,
    runs_across,
    spatial,
)
from ..common import (
    block_loops,
    in_registers,
    lanes_for,
    native_lanes,
    nbytes,
    powers,
    succeeds,
    unroll_counts,
    unroll_hint,
    widest,
)
from ..draft import Draft
from ..register_tiles import RegisterTile, write_back
from ..rule import Group, Variant

MAX_UNROLL = 8
PREFETCH_STEPS = 32
"""How many vectors ahead inputs are asked for that come from memory."""


def elementwise_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """One loop for all elements, or rows of vectors, or tiles where an input is transposed.

    Vectors lie along rows, not along few columns, of which less than half a vector is no choice.
    A result that does not fit the second level of cache can be written past all of them. What one
    reduction alone reads, each part of it in one iteration of outer loops, can be computed there.
    """
    block = group.members[-1]

    def variant(form: str, schedule: Callable[[Draft, Label], None]) -> Variant:
        def step(draft: Draft) -> None:
            schedule(draft, draft.schedule.get_block(block.label))

        return Variant.of(form, step, form=form)

    across = runs_across(block) is not None
    if across:
        if _square(block, draft.target) > 1:
            yield variant("squares", schedule_squares)
        yield variant("tiles", schedule_transposing)
    few = None if is_flat(block) else few_columns(block)
    if few is not None:
        yield variant("columns", _schedule_columns)
    native = native_lanes(draft.target.vector_bits, widest(block))
    if few is None or 2 * extents(block)[few[1]] >= native:
        yield variant("rows", schedule_elementwise)
        if not across and _leaves(draft.func, block, CpuTarget.of(draft.target).l2_bytes):
            yield variant("streamed", _schedule_streamed)
    if not across and _is_for_one(draft.func, block):
        yield variant("inside", schedule_inside)


def schedule_elementwise(draft: Draft, label: Label) -> None:
    """Fuse what is contiguous, run the outer part in parallel and the inner in vectors.

    What does not fit the last level of cache is asked for ahead.
    """
    sch, cpu = draft.schedule, CpuTarget.of(draft.target)
    block = find_block(sch.func, label)
    sizes = extents(block)
    variables = [i.var for i in block.iters]
    loops = list(sch.get_loops(label))[-len(variables) :]
    if not loops:
        return
    last_extent = sizes[variables[-1]]
    if len(loops) > 1 and is_flat(block):
        last_extent = math.prod(sizes[v] for v in variables)
        loops = [sch.fuse(*loops)]
    lanes = lanes_for(cpu.vector_bits, widest(block), last_extent)
    if lanes == 1:
        draft.map_outer(*loops)
        return
    counts = [u for u in (1, 2, 4, MAX_UNROLL) if (u - 1) * lanes < last_extent]
    unroll = sch.sample_categorical(unroll_counts([block], counts))
    outer, *registers = sch.split(loops[-1], factors=[None, unroll, lanes])
    in_registers(sch, registers)
    if sum(map(nbytes, {r.buffer for r in (*block.reads, *block.writes)})) > cpu.l3_bytes:
        _ask_ahead(sch, label, outer, ceildiv(PREFETCH_STEPS, unroll), cpu.l2_bytes)
    around = [*loops[:-1], outer] if len(loops) == 1 else loops[:-1]
    draft.map_outer(*around)


def _schedule_streamed(draft: Draft, label: Label) -> None:
    schedule_elementwise(draft, label)
    for number in range(len(draft.block(label).writes)):
        draft.schedule.stream(draft.schedule.get_block(label), number)


def _schedule_columns(draft: Draft, label: Label) -> None:
    """Compute a vector of each column in registers, and write them as one run of rows."""
    sch = draft.schedule
    block = find_block(sch.func, label)
    along = few_columns(block)
    assert along is not None
    rows, columns = along
    sizes, loops = extents(block), block_loops(sch, label)
    lanes = lanes_for(draft.target.vector_bits, widest(block), sizes[rows])
    count = sch.sample_categorical([u for u in (1, 2, 4) if (u - 1) * lanes < sizes[rows]])
    write = sch.cache_write(label, 0, "register")
    outer, vectors, lane = sch.split(loops[rows], factors=[None, count, lanes])
    others = [loop for v, loop in loops.items() if v not in {rows, columns}]
    registers = [loops[columns], vectors, lane]
    sch.reorder(*others, outer, *registers)
    in_registers(sch, registers)
    sch.reverse_compute_at(write, outer)
    tile = RegisterTile(rows, lanes, {rows: count, columns: sizes[columns]}, {})
    write_back(sch, write, label, tile)
    draft.map_outer(*(others or [outer]))


def _ask_ahead(sch: Schedule, label: Label, loop: Var, later: Dim, cached: int) -> None:
    """Have the rows of inputs of more than `cached` bytes brought near, some iterations of `loop`
    before their turn."""
    block = find_block(sch.func, label)
    last = block.iters[-1].var
    for index, source in enumerate(inputs_of(block)):
        if source.strides.get(last) == 1 and nbytes(source.buffer) > cached:
            unroll_hint(sch, sch.prefetch(label, index, loop, offset=later), loop)


def schedule_inside(draft: Draft, label: Label) -> None:
    """Compute a block in the parallel loop around all that reads it, or by itself without one.

    Its rows begin at multiples of a vector: no vector of them lies in two lines of the cache.
    """
    sch = draft.schedule
    reader, *_ = sch.get_consumers(label)
    around = [s for s in path_to(sch.func, reader) if type(s) is For]
    top = next((s.var for s in around if s.kind is ForKind.PARALLEL), None)
    if top is None or not succeeds(sch.compute_at, label, top):
        schedule_elementwise(draft, label)
        return
    *_, last = sch.get_loops(label)
    block = find_block(sch.func, label)
    extent = extents(block)[block.iters[-1].var]
    lanes = lanes_for(draft.target.vector_bits, widest(block), extent)
    vectors = ceildiv(extent, lanes)
    at_once = ceildiv(vectors, ceildiv(vectors, MAX_UNROLL))
    in_registers(sch, sch.split(last, factors=[None, at_once, lanes])[1:])
    if len(block.writes[0].buffer.shape) > 1:
        sch.storage_align(label, 0, -2, lanes, 0)


def schedule_following(draft: Draft, label: Label) -> None:
    """Compute a block where what it reads is written back, or by itself where that cannot be."""
    if not succeeds(draft.schedule.reverse_compute_inline, label):
        schedule_elementwise(draft, label)


def schedule_transposing(draft: Draft, label: Label) -> None:
    """Tile the variable that runs along the output and the one that runs along an input."""
    sch = draft.schedule
    block = find_block(sch.func, label)
    sizes = extents(block)
    across = runs_across(block)
    assert across is not None
    along, other = across
    loops = block_loops(sch, label)
    lanes = lanes_for(draft.target.vector_bits, widest(block), sizes[along])
    counts = [u for u in (1, 2, 4) if u * lanes <= sizes[along]]
    rows = [u for u in (1, 4, 8, 16, 32, 64) if u <= sizes[other]]
    count = sch.sample_categorical(counts or [1])
    tall = sch.sample_categorical(rows)
    a, b, c = sch.split(loops[along], factors=[None, count, lanes])
    d, e = sch.split(loops[other], factors=[None, tall])
    rest = [loop for v, loop in loops.items() if v is not along and v is not other]
    sch.reorder(*rest, d, a, e, b, c)
    in_registers(sch, [b, c])
    draft.map_outer(*rest, d)


def schedule_squares(draft: Draft, label: Label) -> None:
    """Turn squares of an input in registers."""
    sch = draft.schedule
    block = find_block(sch.func, label)
    across = runs_across(block)
    assert across is not None
    along, other = across
    sizes = extents(block)
    lanes = _square(block, draft.target)
    cut = [sch.sample_categorical(powers(min(64, sizes[v] // lanes))) for v in (other, along)]
    index = input_along(block, across)
    outer = transpose_in_registers(sch, label, index, along, other, (cut[0], cut[1]), lanes)
    draft.map_outer(*outer)


def _square(block: Block, target: Target) -> int:
    """The lanes of squares that fit the registers and the block; 1 where there are none."""
    across = runs_across(block)
    assert across is not None
    sizes = extents(block)
    shortest = min(sizes[v] for v in across)
    lanes = lanes_for(target.vector_bits, widest(block), shortest)
    lanes = lanes if lanes <= shortest else lanes // 2
    while lanes >= target.vector_registers:
        lanes //= 2
    known = {i.buffer.dtype for i in inputs_of(block)}
    one_width = all(dtypes.nbytes(d) == dtypes.nbytes(widest(block)) for d in known)
    return lanes if one_width else 1


def _leaves(func: Func, block: Block, cached: int) -> bool:
    """Whether a block writes results of more than `cached` bytes each that nothing here reads."""
    return all(
        b not in func.allocs and not readers_of(func, {b}) and nbytes(b) > cached
        for b in region_buffers(block.writes)
    )


def _is_for_one(func: Func, block: Block) -> bool:
    """Whether a block fills a buffer for one reduction, which reads another part of it at each of
    its spatial places, but for what windows and the results of a group share."""
    out = output_of(block)
    if out is None or out.buffer not in func.allocs or not block.iters:
        return False
    buffer = out.buffer
    readers = readers_of(func, {buffer})
    if len(readers) != 1 or not has_reduction(readers[0]):
        return False
    reads = [i for i in inputs_of(readers[0]) if i.buffer is buffer]
    sizes, shared = extents(readers[0]), grouped(readers[0])
    if not reads:  # its init alone does
        return False
    return all(v in reads[0].used or v in shared or sizes[v] == 1 for v in spatial(readers[0]))


# Transposition by squares of vectors, which are turned in registers.


def transpose_in_registers(
    sch: Schedule,
    label: Label,
    index: int,
    along: Var,
    other: Var,
    cut: tuple[Dim, Dim],
    lanes: int,
    square: Label | None = None,
) -> list[Var]:
    """Read input `index` in squares, contiguous along `other`, and write them along `along`.

    for others: for other / (n * lanes), along / (m * lanes):
      for n, for m:
        lanes vectors of the input (in registers)
        lanes vectors of their columns

    `cut` is (n, m), `along` and `other` are iteration variables of the block. `square` copies the
    input to registers if a block does already. Returns the loops of `label` that are around that
    over `along`.
    """
    block = find_block(sch.func, label)
    source = inputs_of(block)[index]
    loops = block_loops(sch, label)
    if square is None:
        square = sch.cache_read(label, index, "register")
    rows, n, row = sch.split(loops[other], factors=[None, cut[0], lanes])
    vectors, m, lane = sch.split(loops[along], factors=[None, cut[1], lanes])
    rest = [loop for v, loop in loops.items() if v is not along and v is not other]
    sch.reorder(*rest, rows, vectors, n, m, row, lane)
    sch.compute_at(square, m)
    in_registers(sch, [row, lane])
    loop_of = block_loops(sch, square)
    indices = [r.min for r in find_block(sch.func, square).writes[0].ranges]
    held = [loop_of.get(e) if type(e) is Var else None for e in indices]
    across, contiguous = (held[_dimension(block, source.buffer, v)] for v in (along, other))
    if across is None or contiguous is None:
        raise ScheduleError("the copy of {0} does not run along its dimensions", source.buffer.name)
    fixed = [v for v in loop_of.values() if v is not across and v is not contiguous]
    sch.reorder(*fixed, across, contiguous)
    in_registers(sch, [across, contiguous])
    for v in fixed:  # what is across runs on through several dimensions
        if find_loop(sch.func, v).extent != 1:
            sch.unroll(v)
    return [*rest, rows]


def _dimension(block: Block, buffer: Buffer, var: Var) -> int:
    """The dimension of `buffer` whose index depends on `var` where the block reads it."""
    region = next(r for r in block.reads if r.buffer is buffer)
    return next(d for d, r in enumerate(region.ranges) if var in free_vars(r.min))
