"""Multi-level tiling of reductions that reuse their inputs: matmul, convolution, column sums.

    for outer tiles (parallel):
      for tiles in cache:
        init the register tile
        for the reduction:
          for the register tile (unrolled, in vectors): accumulate
        write the register tile back, with what follows computed on the way

Operands can be packed into the order in which the register tiles read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import ScheduleError
from ...schedule import Schedule
from ...schedule.find import find_block
from ...target import Target
from ...tir.ir import Block, Dim, Label, Var, product
from ..sketch import Draft, Rule
from ..structure import (
    Input,
    extents,
    inputs_of,
    output_of,
    reduced,
    spatial,
    vector_choices,
    worth_packing,
)
from .common import lanes_for, tile_weights, widest
from .elementwise import schedule_elementwise

MAX_TILE = 16
MAX_VECTORS = 6
MAX_MIDDLE = 64
MAX_UNROLLED = 128
"""Products of vectors in the body of the inner loop. A register tile of 8 by 48 takes as long
unrolled by 4 as by 8 or not at all, and each step takes as long again to compile."""


@dataclass(frozen=True)
class Plan:
    """Along which variable to vectorise, and which inputs to pack by which variable."""

    vector: Var
    packs: tuple[tuple[int, Var], ...]


def contraction_variants(
    members: list[Block], positions: list[int], target: Target
) -> Iterator[tuple[str, Rule]]:
    """A variant for each way of vectorising and packing."""
    main = members[0]
    for n, vector in enumerate(vector_choices(main)[:2]):
        for packs in dict.fromkeys(_packings(main, vector)):
            names = [inputs_of(main)[i].buffer.name for i, _ in packs]
            name = "tiled" + (f"_v{n}" if n else "") + "".join(f"_pack{x}" for x in names)
            yield name, _rule(Plan(vector, packs), members, positions, target)


def _packings(main: Block, vector: Var) -> Iterator[tuple[tuple[int, Var], ...]]:
    """Which inputs to pack: all that must be, and each sensible set of those that may be."""
    tiles = tile_variables(main, vector)
    must: list[tuple[int, Var]] = []
    along: list[tuple[int, Var]] = []
    across: list[tuple[int, Var]] = []
    for n, i in enumerate(inputs_of(main)):
        worth = worth_packing(main, i)
        if vector in i.used:
            if i.strides[vector] != 1:
                must.append((n, vector))
            elif vector in i.plain and worth:
                along.append((n, vector))
        elif worth:
            across += [(n, t) for t in tiles if t in i.plain][:1]
    yield (*must, *along)
    if along and across:
        yield (*must, *along, *across)
    if along or across:
        yield tuple(must)
    if across and not along:
        yield (*must, *across)


def tile_variables(main: Block, vector: Var) -> list[Var]:
    """The variables, beside the vector's, over which a register tile reuses what it loads."""
    sizes = extents(main)
    inner = set(reduced(main))
    found = []
    for v in reversed(spatial(main)):
        if v is vector or sizes[v] < 2:
            continue
        loaded = [i for i in inputs_of(main) if vector in i.used]
        slides = any(v in i.used and v not in i.plain and i.used & inner for i in inputs_of(main))
        if any(v not in i.used for i in loaded) or slides:
            found.append(v)
    return found[:2] if found else []


def _rule(plan: Plan, members: list[Block], positions: list[int], target: Target) -> Rule:
    def apply(draft: Draft) -> None:
        schedule_contraction(draft, plan, members, positions, target)

    return apply


def schedule_contraction(
    draft: Draft, plan: Plan, members: list[Block], positions: list[int], target: Target
) -> None:
    """Apply the rule to the block at `positions[0]` and to the one that follows it, if any."""
    sch = draft.schedule
    main = sch.get_block(positions[0])
    block = find_block(sch.func, main)
    sizes = extents(block)
    loops = dict(zip([i.var for i in block.iters], sch.get_loops(main), strict=True))
    inputs = inputs_of(block)
    vector = plan.vector
    lanes = lanes_for(target, widest(block), sizes[vector])
    tiles = _Tiles(draft, block, vector, lanes, target)

    packed = [_pack(sch, main, inputs[n], n, by, tiles) for n, by in plan.packs]
    write = sch.cache_write(main, 0, "register")
    if len(members) > 1:
        follow = sch.get_block(positions[1])
        try:
            sch.reverse_compute_inline(follow)
        except ScheduleError:
            schedule_elementwise(draft, follow, target)

    units: list[Var] = []
    outer: list[Var] = []
    middle: list[Var] = []
    inner: list[Var] = []
    registers: list[Var] = []
    for v in spatial(block):
        if v is vector:
            a, b, c, d = sch.split(loops[v], factors=[None, tiles.middle[v], tiles.inner[v], lanes])
            outer.append(a)
            middle.insert(0, b)
            registers += [c, d]
        elif v in tiles.inner:
            a, b, c = sch.split(loops[v], factors=[None, tiles.middle[v], tiles.inner[v]])
            outer.append(a)
            middle.append(b)
            inner.append(c)
        elif sizes[v] > 1:
            outer.append(loops[v])
        else:
            units.append(loops[v])
    reduction = [loops[v] for v in reduced(block)]
    if tiles.unroll is not None:
        last, unrolled = sch.split(reduction[-1], factors=[None, tiles.unroll], perfect=True)
        reduction[-1] = last
        inner.insert(0, unrolled)
    sch.reorder(*units, *outer, *middle, *reduction, *inner, *registers)
    top = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    sch.parallel(top)
    sch.reverse_compute_at(write, middle[-1])
    sch.vectorize(registers[1])
    for loop in (*inner, registers[0]):
        sch.unroll(loop)
    write_back(sch, write, block, vector, lanes)
    sch.decompose_reduction(main, reduction[0])
    for label in packed:
        _schedule_copy(sch, label, lanes, target)


class _Tiles:
    """The decisions of a register tile: vectors, rows, tiles in cache, unrolling."""

    def __init__(self, draft: Draft, block: Block, vector: Var, lanes: int, target: Target) -> None:
        sch = draft.schedule
        sizes = extents(block)
        self.lanes = lanes
        self.middle: dict[Var, Dim] = {}
        self.inner: dict[Var, Dim] = {}
        tiles = tile_variables(block, vector)
        vectors = -(-sizes[vector] // lanes)
        counts = [n for n in range(1, MAX_VECTORS + 1) if n <= vectors]
        self.inner[vector] = sch.sample_categorical(counts, tile_weights(counts, vectors, 3))
        self.middle[vector] = middle_tile(sch, vectors)
        for n, v in enumerate(tiles):
            most = min(MAX_TILE if n == 0 else 4, sizes[v])
            rows = list(range(1, most + 1))
            self.inner[v] = sch.sample_categorical(rows, tile_weights(rows, sizes[v], 8))
            self.middle[v] = middle_tile(sch, sizes[v])
        accumulators = product(list(self.inner.values()))
        room = target.vector_registers - 1
        draft.limit(
            "the register tile fits the registers", accumulators + self.inner[vector] <= room
        )
        if tiles:
            draft.limit("the register tile hides the latency of fma", accumulators >= 4)
        deep = sizes[reduced(block)[-1]]
        unrolls = [u for u in (1, 2, 3, 4, 8) if deep % u == 0]
        self.unroll = sch.sample_categorical(unrolls) if len(unrolls) > 1 else None
        if self.unroll is not None:
            draft.limit("the unrolled body is short", accumulators * self.unroll <= MAX_UNROLLED)
            if _slides(block, reduced(block)[-1]):
                # What the window shares between steps is held in registers as well.
                draft.limit(
                    "a window's values fit the registers", accumulators * self.unroll <= 2 * room
                )


def _slides(block: Block, inner: Var) -> bool:
    """Whether an index of an input moves with `inner` and with a spatial variable."""
    return any(
        inner in i.used and i.strides[inner] is not None and inner not in i.plain
        for i in inputs_of(block)
    )


def middle_tile(sch: Schedule, extent: int) -> Dim:
    values = [1]
    while values[-1] * 2 <= min(MAX_MIDDLE, extent):
        values.append(values[-1] * 2)
    return sch.sample_categorical(values)


def _pack(sch: Schedule, main: Label, source: Input, index: int, by: Var, tiles: _Tiles) -> Label:
    """Pack an input by a variable's register tile."""
    rank = len(source.buffer.shape)
    factor = tiles.inner[by]
    if next(iter(tiles.inner)) is by:
        factor = factor * tiles.lanes
    place = source.plain[by]
    plain = {d: v for v, d in source.plain.items()}
    block = find_block(sch.func, main)
    inner = set(reduced(block))
    front = next((d for d in range(rank) if plain.get(d) is None or plain[d] in inner), rank)
    order = [d for d in range(rank) if d != place]
    order.insert(min(front, place), place)
    layout = "".join(chr(ord("A") + d) for d in order) + chr(ord("a") + place)
    return sch.pack(main, index, layout, [factor])


def _schedule_copy(sch: Schedule, label: Label, lanes: int, target: Target) -> None:
    """Run a packing copy in parallel, in vectors along what is contiguous in its source."""
    block = find_block(sch.func, label)
    strides = inputs_of(block)[0].strides
    loops = sch.get_loops(label)
    along = [n for n, i in enumerate(block.iters) if strides.get(i.var) == 1]
    place = along[-1] if along else len(loops) - 1
    extent = block.iters[place].extent
    outer = [v for n, v in enumerate(loops) if n != place]
    if along and not (isinstance(extent, int) and extent < lanes):
        steps, vector = sch.split(loops[place], factors=[None, lanes])
        if place < len(loops) - 1:
            sch.reorder(*outer[:place], steps, *outer[place:], vector)
        sch.vectorize(vector)
    else:
        outer = list(loops)
    few = not _plenty(sch, block.iters[0].extent, target)
    nested = few and place > 1 and len(outer) > 1
    sch.parallel(sch.fuse(*outer[:2]) if nested else outer[0])


def _plenty(sch: Schedule, extent: Dim, target: Target) -> bool:
    """Whether a loop has work for all threads whatever the decisions are."""
    wanted = 4 * target.threads
    if isinstance(extent, int):
        return extent >= wanted
    assert sch.space is not None
    return sch.space.decide(extent >= wanted) is True


def write_back(sch: Schedule, write: Label, block: Block, vector: Var, lanes: int) -> None:
    """Unroll and vectorise the copy of the register tile to memory."""
    out = output_of(block)
    assert out is not None
    loops = sch.get_loops(write)[-len(out.buffer.shape) :]
    place = out.plain[vector]
    count, inner = sch.split(loops[place], factors=[None, lanes])
    rest = [v for d, v in enumerate(loops) if d != place]
    sch.reorder(*rest, count, inner)
    sch.vectorize(inner)
    for loop in (*rest, count):
        sch.unroll(loop)
