"""Transposition by squares of vectors, which are turned in registers."""

from __future__ import annotations

from ....base.errors import ScheduleError
from ....schedule import Schedule
from ....schedule.block_queries import free_vars
from ....schedule.find import find_block, find_loop
from ....tir.ir import Block, Buffer, Dim, Label, Var
from ..access_patterns import inputs_of
from ..common import block_loops, in_registers


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
