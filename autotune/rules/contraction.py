"""Multi-level tiling of reductions that reuse their inputs: matmul, convolution, column sums.

    for outer tiles (parallel):
      for tiles in cache:
        init the register tile
        for the reduction:
          for the register tile (unrolled, in vectors): accumulate
        write the register tile back, with what follows computed on the way

Operands can be packed into the order in which the register tiles read them: all of it before, or
what an outer tile uses right there, so that it stays in its cache. Panels that stream through the
first cache are asked for some steps ahead.

Blocked, the reduction is in parts as well, and register tiles are added to memory:

    for outer tiles (parallel):
      for parts of the reduction:
        for tiles in cache:
          the register tile of that part
          add it to the result
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from ...schedule import Schedule
from ...schedule.find import find_block
from ...target import Target
from ...tir.ir import Block, Dim, Label, Var, ceildiv, product
from ..sketch import Draft, Rule
from ..structure import (
    Input,
    extents,
    inputs_of,
    reduced,
    spatial,
    vector_choices,
    worth_packing,
)
from .common import fused, lanes_for, unroll_hint, widest
from .elementwise import schedule_following
from .squares import turn_in_squares
from .tiles import sample_tiles, tile_variables, write_back

SHORTEST = 8
"""Steps of the reduction in a part of it, at least."""
AHEAD = 8
"""Steps of the reduction by which a packed panel is asked for ahead of its use."""
MAX_UNROLLED = 128
"""Products of vectors in the body of the inner loop. A register tile of 8 by 48 takes as long
unrolled by 4 as by 8 or not at all, and each step takes as long again to compile."""


@dataclass(frozen=True)
class Plan:
    """Along which variable to vectorise, and which inputs to pack by which variable.

    `local` packs what differs between vectors tile by tile; `blocked` cuts the reduction.
    """

    vector: Var
    packs: tuple[tuple[int, Var], ...]
    local: bool = False
    blocked: bool = False


def contraction_variants(
    members: list[Block], positions: list[int], target: Target
) -> Iterator[tuple[str, Rule]]:
    """A variant for each way of vectorising, packing and cutting the reduction."""
    for plan in _plans(members[0]):
        names = [inputs_of(members[0])[i].buffer.name for i, _ in plan.packs]
        parts = [
            "blocked" if plan.blocked else "tiled",
            *(["across"] if plan.vector is not vector_choices(members[0])[0] else []),
            *(f"pack{x}" for x in names),
            *(["local"] if plan.local else []),
        ]
        rule = partial(schedule_contraction, plan=plan, positions=positions, target=target)
        yield "_".join(parts), rule


def _plans(main: Block) -> Iterator[Plan]:
    inputs = inputs_of(main)
    for vector in vector_choices(main)[:2]:
        for packs in dict.fromkeys(_packings(main, vector)):
            along = [inputs[n] for n, by in packs if by is vector]
            if along and not along[0].buffer.constant:
                yield Plan(vector, packs, local=True)
            yield Plan(vector, packs)
            if len(packs) < 2 and _parts(main):
                yield Plan(vector, packs, blocked=True, local=bool(along))


def _parts(main: Block) -> list[int]:
    """The lengths of parts that the outermost loop of the reduction can be cut into."""
    sizes = extents(main)
    deep = sizes[reduced(main)[0]]
    whole = product([sizes[v] for v in reduced(main)])
    return [n for n in range(2, deep) if deep % n == 0 and n * whole // deep >= SHORTEST]


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


def schedule_contraction(draft: Draft, plan: Plan, positions: list[int], target: Target) -> None:
    """Apply the rule to the block at `positions[0]` and to the one that follows it, if any."""
    sch = draft.schedule
    main = sch.get_block(positions[0])
    block = find_block(sch.func, main)
    inputs = inputs_of(block)
    tiles = _Tiles(draft, block, plan, target)
    packed = {by: _pack(sch, main, inputs[n], n, by, tiles) for n, by in plan.packs}
    follow = sch.get_block(positions[1]) if len(positions) > 1 else None
    nest = (_blocked if plan.blocked else _whole)(draft, main, block, tiles, follow)
    for by, label in packed.items():
        local = plan.local and by is plan.vector
        if local:
            sch.compute_at(label, nest.part)
        turn = by is plan.vector and not plan.blocked
        _schedule_copy(draft, label, tiles, turn=turn, parallel=not local)
    for n, by in plan.packs:
        if by is plan.vector:
            _ask_ahead(sch, nest, n)


@dataclass(frozen=True)
class _Nest:
    """The block that accumulates, the loop around a part of the reduction, and that of its steps.

    Each of `steps` comes with its iterations, and the last of them takes `unrolled` steps at once.
    """

    accumulates: Label
    part: Var
    steps: list[tuple[Var, Dim]]
    unrolled: Dim


def _whole(draft: Draft, main: Label, block: Block, tiles: _Tiles, follow: Label | None) -> _Nest:
    """Register tiles of the whole reduction, which are written back."""
    sch = draft.schedule
    sizes = extents(block)
    loops = dict(zip([i.var for i in block.iters], sch.get_loops(main), strict=True))
    write = sch.cache_write(main, 0, "register")
    if follow is not None:
        schedule_following(draft, follow, tiles.target)
    units, outer, middle, tile = _cut(sch, block, loops, tiles)
    steps, unrolled = _unrolled(sch, [(loops[v], sizes[v]) for v in reduced(block)], tiles)
    registers = [*unrolled, *tile]
    sch.reorder(*units, *outer, *middle, *(v for v, _ in steps), *registers)
    top = _in_parallel(sch, outer)
    sch.reverse_compute_at(write, middle[-1])
    _in_registers(sch, registers)
    write_back(sch, write, block, tiles.vector, tiles.lanes)
    sch.decompose_reduction(main, steps[0][0])
    return _Nest(main, top, steps, 1 if tiles.unroll is None else tiles.unroll)


def _blocked(draft: Draft, main: Label, block: Block, tiles: _Tiles, follow: Label | None) -> _Nest:
    """Register tiles of parts of the reduction, which are added up in memory."""
    sch = draft.schedule
    sizes = extents(block)
    loops = dict(zip([i.var for i in block.iters], sch.get_loops(main), strict=True))
    deep = reduced(block)[0]
    assert tiles.part is not None
    first, _ = sch.split(loops[deep], factors=[None, tiles.part], perfect=True)
    partial = sch.rfactor(first, len(spatial(block)))
    sch.set_scope(partial, 0, "register")
    loops = dict(zip([*spatial(block), deep], sch.get_loops(main), strict=True))
    units, outer, middle, tile = _cut(sch, block, loops, tiles)
    sch.reorder(*units, *outer, loops[deep], *middle, *tile)
    top = _in_parallel(sch, outer)
    _in_registers(sch, tile)
    sch.compute_at(partial, middle[-1])
    if follow is not None:
        sch.reverse_compute_at(follow, top)
        _in_vectors(sch, follow, tiles.lanes)

    wide, deepest = len(spatial(block)), len(reduced(block))
    own = sch.get_loops(partial)[-(wide + 1 + deepest) :]
    inner = dict(zip(spatial(block), own, strict=False))
    reducing = zip(reduced(block), own[-deepest:], strict=True)
    depth = [(loop, tiles.part if v is deep else sizes[v]) for v, loop in reducing]
    steps, unrolled = _unrolled(sch, depth, tiles)
    vectors = sch.split(inner[tiles.vector], factors=[None, tiles.lanes])
    rows = [inner[v] for v in tiles.inner if v is not tiles.vector]
    units = [loop for v, loop in inner.items() if v not in tiles.inner]
    registers = [*unrolled, *rows, *vectors]
    sch.reorder(*units, own[wide], *(v for v, _ in steps), *registers)
    _in_registers(sch, registers)
    sch.decompose_reduction(partial, steps[0][0])
    return _Nest(partial, loops[deep], steps, 1 if tiles.unroll is None else tiles.unroll)


def _cut(
    sch: Schedule, block: Block, loops: dict[Var, Var], tiles: _Tiles
) -> tuple[list[Var], list[Var], list[Var], list[Var]]:
    """The loops of a block's spatial variables: those of one iteration, and tiles on three levels.

    In cache rows are outside and vectors inside, so that what rows share comes from near. The last
    loop is the lanes of a vector.
    """
    sizes = extents(block)
    units: list[Var] = []
    outer: list[Var] = []
    middle: list[Var] = []
    tile: list[Var] = []
    inmost: list[Var] = []
    for v in spatial(block):
        if v is tiles.vector:
            factors = [None, tiles.middle[v], tiles.inner[v], tiles.lanes]
            a, *inmost = sch.split(loops[v], factors=factors)
            outer.append(a)
        elif v in tiles.inner:
            a, b, c = sch.split(loops[v], factors=[None, tiles.middle[v], tiles.inner[v]])
            outer.append(a)
            middle.append(b)
            tile.append(c)
        else:
            (outer if sizes[v] > 1 else units).append(loops[v])
    return units, outer, [*middle, inmost[0]], [*tile, *inmost[1:]]


def _unrolled(
    sch: Schedule, steps: list[tuple[Var, Dim]], tiles: _Tiles
) -> tuple[list[tuple[Var, Dim]], list[Var]]:
    """The loops of the reduction, and that of the steps which the innermost one takes at once."""
    if tiles.unroll is None:
        return steps, []
    *others, (last, extent) = steps
    last, unrolled = sch.split(last, factors=[None, tiles.unroll], perfect=True)
    return [*others, (last, extent // tiles.unroll)], [unrolled]


def _in_parallel(sch: Schedule, outer: list[Var]) -> Var:
    top = fused(sch, outer)
    sch.parallel(top)
    return top


def _in_registers(sch: Schedule, loops: list[Var]) -> None:
    """Unroll loops around the lanes of a vector, the last of them."""
    sch.vectorize(loops[-1])
    for loop in loops[:-1]:
        sch.unroll(loop)


def _in_vectors(sch: Schedule, label: Label, lanes: int) -> None:
    """Vectorise the innermost loop of a block."""
    _, vector = sch.split(sch.get_loops(label)[-1], factors=[None, lanes])
    sch.vectorize(vector)


def _ask_ahead(sch: Schedule, nest: _Nest, index: int) -> None:
    """Have the panel of an input brought near some steps before its turn."""
    innermost = nest.steps[-1][0]
    inside = 1
    for loop, extent in reversed(nest.steps):
        if not isinstance(extent, int) or extent * inside > AHEAD:
            later = AHEAD // inside if loop is not innermost else ceildiv(AHEAD, nest.unrolled)
            hint = sch.prefetch(nest.accumulates, index, innermost, loop, later)
            unroll_hint(sch, hint, innermost)
            return
        inside *= extent


class _Tiles:
    """The decisions of a register tile: vectors, rows, tiles in cache, unrolling."""

    def __init__(self, draft: Draft, block: Block, plan: Plan, target: Target) -> None:
        sch = draft.schedule
        sizes = extents(block)
        vector = self.vector = plan.vector
        lanes = self.lanes = lanes_for(target, widest(block), sizes[vector])
        self.target = target
        vectors = -(-sizes[vector] // lanes)
        self.inner, self.middle = sample_tiles(sch, block, vector, vectors, (3, 8))
        accumulators = product(list(self.inner.values()))
        room = target.vector_registers - 1
        for i in inputs_of(block):
            if vector in i.used:
                held = product([n for v, n in self.inner.items() if v in i.used])
                draft.limit("the register tile fits the registers", accumulators + held <= room)
        if len(self.inner) > 1:
            draft.limit("the register tile hides the latency of fma", accumulators >= 4)
        parts = _parts(block) if plan.blocked else []
        self.part = sch.sample_categorical(parts) if parts else None
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


def _schedule_copy(
    draft: Draft, label: Label, tiles: _Tiles, *, turn: bool, parallel: bool
) -> None:
    """Run a packing copy in vectors along what is contiguous in its source, perhaps in parallel.

    `turn` is for panels of whole vectors: where they lie across their source, squares are turned.
    """
    sch, lanes = draft.schedule, tiles.lanes
    block = find_block(sch.func, label)
    strides = inputs_of(block)[0].strides
    loops = sch.get_loops(label)[-len(block.iters) :]
    along = [n for n, i in enumerate(block.iters) if strides.get(i.var) == 1]
    place = along[-1] if along else len(loops) - 1
    extent = block.iters[place].extent
    outer = [v for n, v in enumerate(loops) if n != place]
    if not along or (isinstance(extent, int) and extent < lanes):
        outer = list(loops)
    elif turn and place < len(loops) - 1 and _in_squares(extent, lanes, tiles.target):
        last, other = block.iters[-1].var, block.iters[place].var
        cut = (1, tiles.inner[tiles.vector])
        outer = turn_in_squares(sch, label, 0, last, other, cut, lanes)
    else:
        steps, vector = sch.split(loops[place], factors=[None, lanes])
        if place < len(loops) - 1:
            sch.reorder(*outer[:place], steps, *outer[place:], vector)
        sch.vectorize(vector)
    if not parallel:
        return
    few = not _plenty(sch, block.iters[0].extent, tiles.target)
    nested = few and place > 1 and len(outer) > 1
    sch.parallel(sch.fuse(*outer[:2]) if nested else outer[0])


def _in_squares(extent: Dim, lanes: int, target: Target) -> bool:
    """Whether vectors along a dimension of that extent make whole squares in registers."""
    whole = isinstance(extent, int) and extent % lanes == 0
    return whole and 1 < lanes < target.vector_registers


def _plenty(sch: Schedule, extent: Dim, target: Target) -> bool:
    """Whether a loop has work for all threads whatever the decisions are."""
    wanted = 4 * target.threads
    if isinstance(extent, int):
        return extent >= wanted
    assert sch.space is not None
    return sch.space.decide(extent >= wanted) is True
