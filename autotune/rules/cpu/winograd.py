"""Winograd's algorithm as an alternative to direct convolution, where the user allows it.

    for channels (parallel):           the input's transform, in vectors along what is contiguous
    for (i, j), tiles (parallel):      matrix products, as any contraction
    for channels (parallel):           the output's transform, written in whole rows

Each transform is two blocks, which are unrolled over the places in a tile: what is left of them are
sums and products with constants. The first is computed in registers or in the first cache, where
the second one needs it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Sequence

from ....base.errors import ScheduleError
from ....schedule.block_queries import free_vars, region_buffers
from ....schedule.find import find_block
from ....schedule.minimal_filtering import ALGORITHMS, WINDOW
from ....tir.ir import Block, Buffer, Label, Var
from ..access_patterns import consumers, extents, in_order, is_injective, reduced
from ..common import fused, in_registers, lanes_for, result_or_none, widest
from ..draft import Draft, RuleChoice, Step
from ..rule import Alternative
from .elementwise import schedule_elementwise

FEWEST_CHANNELS = 8
"""With fewer of them the transforms outweigh the products that are saved."""


def winograd(original: Draft) -> Iterator[Alternative]:
    """The program with all its 3 by 3 convolutions computed by tiles of one size."""
    for tile in sorted(ALGORITHMS, reverse=True):
        draft = original
        claimed: set[Label] = set()
        before: list[Step] = []
        after: list[Step] = []
        for block in in_order(original.func):
            if not _worth(block):
                continue
            trial = draft.copy()
            sch = trial.schedule
            labels = result_or_none(sch.winograd, sch.get_block(block.label), tile)
            if labels is None:
                continue
            draft = trial
            w_rows, w_tiles, x_rows, x_tiles, _, y_rows = labels
            readers = consumers(draft.func, draft.block(block.label))
            follow = [r.label for r in readers if len(readers) == 1 and is_injective(r)]
            output = [y_rows, block.label, *follow]
            claimed.update((w_rows, w_tiles, x_rows, x_tiles, *output))
            before.append(functools.partial(_transform_output, labels=output, tile=tile))
            after += (
                functools.partial(_transform_input, labels=pair)
                for pair in ((w_rows, w_tiles), (x_rows, x_tiles))
            )
        if draft is not original:
            choice = RuleChoice.of("winograd", tile=tile)
            yield Alternative(f"winograd{tile}", choice, draft, claimed, before, after)


def _worth(block: Block) -> bool:
    sizes = extents(block)
    return math.prod(sizes[v] for v in reduced(block)) >= FEWEST_CHANNELS * WINDOW**2


def _transform_input(draft: Draft, labels: Sequence[Label]) -> None:
    """Two transforms, both unrolled around vectors along the last dimension of the second.

    The first is computed in registers for each vector, or by whole rows where the second takes
    those apart.
    """
    sch, vector_bits = draft.schedule, draft.target.vector_bits
    rows, tiles = (sch.get_block(label) for label in labels)
    block = find_block(sch.func, tiles)
    dimension, apart = _along(block)
    i, j, *around, last = sch.get_loops(tiles)
    steps, vector = sch.split(
        last, factors=[None, _lanes(block, len(block.iters) - 1, vector_bits)]
    )
    sch.reorder(*around, steps, i, j, vector)
    in_registers(sch, [i, j, vector])
    top = fused(sch, around[:2])
    sch.compute_at(rows, around[-1] if apart else steps)
    if not apart:
        sch.set_scope(rows, 0, "register")
    first = find_block(sch.func, rows)
    i, *others = sch.get_loops(rows)[-len(first.iters) :]
    last = others.pop(dimension - 1)
    if apart:
        steps, last = sch.split(last, factors=[None, _lanes(first, dimension, vector_bits)])
        sch.reorder(*others, steps, i, last)
        in_registers(sch, [i, last])
    else:
        sch.reorder(i, *others, last)
        in_registers(sch, [i, *others, last])
    draft.map_outer(top)


def _transform_output(draft: Draft, labels: Sequence[Label], tile: int) -> None:
    """Vectors along the last dimension of the tiles; what follows where they are written.

    Where the places in a tile lie between those of its neighbours, rows are put together in
    registers.
    """
    sch, vector_bits = draft.schedule, draft.target.vector_bits
    rows, out, *follow = (sch.get_block(label) for label in labels)
    first = find_block(sch.func, rows)
    for label in follow:
        follower = find_block(sch.func, label)
        if widest(follower) == follower.writes[0].buffer.dtype:
            sch.reverse_compute_inline(label)
        else:  # rows of one dtype are put together, of vectors of as many lanes
            schedule_elementwise(draft, label)
    block = find_block(sch.func, out)
    lanes = _lanes(first, len(first.iters) - 1, vector_bits)
    split_vars = _split_variables(block, region_buffers(first.writes))
    apart = block.iters[-1].var in split_vars
    last_extent = extents(block)[block.iters[-1].var]
    if apart and last_extent > lanes * tile and 0 < last_extent % (lanes * tile) < tile:
        raise ScheduleError("the rows of {0} end in a part of a tile alone", out.name)
    write = sch.cache_write(out, 0, "register") if apart else None
    outer: list[Var] = []
    places: list[Var] = []
    *loops, last = zip(block.iters, sch.get_loops(out), strict=True)
    for i, loop in loops:
        whole, place = (
            sch.split(loop, factors=[None, tile]) if i.var in split_vars else (loop, None)
        )
        outer.append(whole)
        places += [] if place is None else [place]
    steps, vector, *place_last = sch.split(last[1], factors=[None, lanes, tile][: 2 + apart])
    outer.append(steps)
    places += place_last
    sch.reorder(*outer, *places, vector)
    in_registers(sch, [*places, vector])
    top = fused(sch, outer[:2])
    sch.compute_at(rows, steps)
    in_registers(sch, sch.get_loops(rows)[-len(first.iters) :])
    if write is not None:
        sch.reverse_compute_at(write, steps)
        *others, last_loop = sch.get_loops(write)[-len(block.iters) :]
        in_registers(sch, [*others, *sch.split(last_loop, factors=[None, lanes])])
    draft.map_outer(top)


def _along(block: Block) -> tuple[int, bool]:
    """The dimension of what a transform reads that its last variable moves along.

    And whether it takes the elements of that apart, by steps of a tile.
    """
    last = block.iters[-1].var
    indices = [r.min for r in block.reads[0].ranges]
    dimension = next(d for d, e in enumerate(indices) if last in free_vars(e))
    return dimension, indices[dimension] is not last


def _split_variables(block: Block, sources: Collection[Buffer]) -> set[Var]:
    """The variables by whose remainders a block reads `sources`."""
    ranges = [r for region in block.reads if region.buffer in sources for r in region.ranges]
    return {v for r in ranges if type(r.min) is not Var for v in free_vars(r.min)}


def _lanes(block: Block, number: int, vector_bits: int) -> int:
    return lanes_for(vector_bits, widest(block), extents(block)[block.iters[number].var])
