"""Packing of the operands of a contraction into the order in which its register tiles read them.

An operand is cut into panels of `t` elements along a variable of the register tile. A panel holds,
for each step of the reduction, the elements that one tile takes of it, one after the other:

    for i, j, k: C[i, j] += A[i, k] * B[k, j]

      ->  for p, k, s: B_packed[p, k, s] = B[k, p * t + s]
          for i, j, k: C[i, j] += A[i, k] * B_packed[j // t, k, j % t]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....schedule import Schedule
from ....schedule.find import find_block, find_loop
from ....schedule.index_map import IndexMap
from ....target import CpuTarget
from ....tir.ir import Block, Const, Dim, Label, Var
from ....tir.visit import walk
from ..access_patterns import inputs_of, reduced
from ..common import nbytes, result_or_none, unroll_hint
from ..draft import Draft
from ..register_tiles import tile_variables
from .elementwise import transpose_in_registers
from .vector_choices import worth_packing

ROWS_AHEAD = 8
"""Rows of its source that a copy of parts of rows asks for ahead."""


class Packed(NamedTuple):
    """The block that packs an input.

    What it reads may be one of `views`, which are never made, the last one first: elements as they
    are computed of the input, and these by joined dimensions.
    """

    label: Label
    views: tuple[Label, ...] = ()


def packings(main: Block, vector: Var) -> Iterator[tuple[tuple[int, Var], ...]]:
    """Which inputs to pack: all that must be, and each sensible set of those that may be.

    A constant that vectors lie along must be. That costs no call anything, and its rows come one
    after the other, where those of a wide matrix lie on a page each.
    """
    tiles = tile_variables(main, vector)
    must: list[tuple[int, Var]] = []
    along: list[tuple[int, Var]] = []
    across: list[tuple[int, Var]] = []
    for n, i in enumerate(inputs_of(main)):
        worth = worth_packing(main, i)
        if vector in i.used:
            if vector in i.plain and worth:
                may = i.strides[vector] == 1 and not i.buffer.constant
                (along if may else must).append((n, vector))
        elif worth:
            across += [(n, t) for t in tiles if t in i.plain][:1]
    yield (*must, *along)
    if along and across:
        yield (*must, *along, *across)
    if along or across:
        yield tuple(must)
    if across and not along:
        yield (*must, *across)


def pack(sch: Schedule, main: Label, index: int, by: Var, tile: Dim) -> Packed:
    """Pack an input into panels of `tile` elements along `by`; returns the block that copies.

    Panels are numbered outside of the first dimension that the reduction runs along, so that each
    lies in one piece. `schedule_copy` schedules the block that copies.
    """
    # What the contraction computes of the input alone: a cast, an activation.
    computed = result_or_none(sch.compute_ahead, main, index)
    views = [] if computed is None else [computed]
    block = find_block(sch.func, main)
    source = inputs_of(block)[index]
    if len(source.at.shape) != len(source.buffer.shape):
        # The notation of layouts is about dimensions, and squares are boxes of them.
        places = tuple(e for e in source.at.indices if type(e) is not Const)
        by_joined = IndexMap(tuple(i.var for i in block.iters), places)
        views.append(sch.reindex_cache_read(main, index, "global", by_joined))
        source = inputs_of(find_block(sch.func, main))[index]
    rank = len(source.buffer.shape)
    place = source.plain[by]
    plain = {d: v for v, d in source.plain.items()}
    inner = set(reduced(block))
    front = next((d for d in range(rank) if plain.get(d) is None or plain[d] in inner), rank)
    order = [d for d in range(rank) if d != place]
    order.insert(min(front, place), place)
    layout = "".join(chr(ord("A") + d) for d in order) + chr(ord("a") + place)
    return Packed(sch.pack(main, index, layout, [tile]), tuple(views))


def schedule_copy(
    draft: Draft,
    packed: Packed,
    lanes: int,
    *,
    panel: Dim | None,
    parallel: bool,
    squares: bool = True,
) -> None:
    """Run a packing copy in vectors along what is contiguous in its source, perhaps in parallel.

    `panel` has the vectors of a panel where it is made of whole ones: those are unrolled where they
    are contiguous in their source, and where they lie across it, squares are turned (if `squares`).
    A copy that is not parallel takes parts of rows. If these come from memory, those of the next
    rows are asked for ahead: a row's part ends before the processor's prefetchers know it.
    """
    sch, target, label = draft.schedule, CpuTarget.of(draft.target), packed.label
    block = find_block(sch.func, label)
    source, strides = inputs_of(block)[0].buffer, inputs_of(block)[0].strides
    loops = sch.get_loops(label)[-len(block.iters) :]
    along = [n for n, i in enumerate(block.iters) if strides.get(i.var) == 1]
    place = along[-1] if along else len(loops) - 1
    extent = block.iters[place].extent
    outer, as_read = [v for n, v in enumerate(loops) if n != place], False
    if not along or (isinstance(extent, int) and extent < lanes):
        outer = list(loops)
    elif (
        panel is not None
        and squares
        and place < len(loops) - 1
        and _in_squares(extent, lanes, target.vector_registers)
    ):
        last, other = block.iters[-1].var, block.iters[place].var
        outer = transpose_in_registers(sch, label, 0, last, other, (1, panel), lanes)
    else:
        steps, vector = sch.split(loops[place], factors=[None, lanes])
        if place < len(loops) - 1:
            sch.reorder(*outer[:place], steps, *outer[place:], vector)
        else:
            as_read = True
            outer = [loops[n] for n in _as_read(block)]
            sch.reorder(*outer, steps, vector)
            if panel is not None:
                sch.unroll(steps)
        sch.vectorize(vector)
    if parallel:
        few = not _plenty(sch, find_loop(sch.func, outer[0]).extent, target.threads)
        draft.map_outer(*outer[: 2 if few and place > 1 else 1])
    for view in reversed(packed.views):
        sch.compute_inline(view)
    if as_read and not parallel and len(outer) > 1 and nbytes(source) > target.l2_bytes:
        unroll_hint(sch, sch.prefetch(label, 0, outer[-1], outer[-2], ROWS_AHEAD), outer[-1])


def _as_read(block: Block) -> list[int]:
    """The iteration variables of a copy but the last, in the order of the dimensions they read.

    Rows are then read from one end to the other, which memory is fastest at: a panel of each row
    before the next row, not a row of each panel.
    """
    indices = inputs_of(block)[0].at.indices
    first = [
        next((d for d, e in enumerate(indices) if i.var in set(walk(e))), 0)
        for i in block.iters[:-1]
    ]
    return sorted(range(len(first)), key=lambda n: first[n])


def _in_squares(extent: Dim, lanes: int, registers: int) -> bool:
    """Whether vectors along a dimension of that extent make whole squares in registers."""
    whole = isinstance(extent, int) and extent % lanes == 0
    return whole and 1 < lanes < registers


def _plenty(sch: Schedule, extent: Dim, threads: int) -> bool:
    """Whether a loop has work for all threads whatever the decisions are."""
    wanted = 4 * threads
    if isinstance(extent, int):
        return extent >= wanted
    assert sch.space is not None
    return sch.space.decide(extent >= wanted) is True
