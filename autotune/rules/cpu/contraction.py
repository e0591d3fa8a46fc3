"""Multi-level tiling of reductions that reuse their inputs: matmul, convolution, column sums.

    for outer tiles (parallel):
      for tiles in cache:
        init the register tile
        for the reduction:
          for the register tile (unrolled, in vectors): accumulate
        write the register tile back, with what follows computed on the way

Operands can be packed (`packing.py`): all of it before, or what an outer tile uses right there, so
that it stays in its cache. Panels that stream through the first cache are asked for some steps
ahead.

Blocked, the reduction is in parts as well, and register tiles are added to memory:

    for outer tiles (parallel):
      for parts of the reduction:
        for tiles in cache:
          the register tile of that part
          add it to the result
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from ....base import dtypes
from ....schedule import Schedule
from ....schedule.block_queries import free_vars
from ....schedule.find import find_block
from ....target import CpuTarget
from ....tir.ir import Block, Dim, Label, Var, ceildiv, product
from ..access_patterns import (
    Input,
    extents,
    grouped,
    inputs_of,
    last_digits,
    low_digits,
    outputs_of,
    reduced,
    reuse,
    spatial,
)
from ..common import block_loops, in_registers, lanes_for, nbytes, unroll_hint, widest
from ..digits import lay_out_digits
from ..draft import Draft, Option, Step
from ..joining import flatten
from ..register_tiles import RegisterTile, fewest_registers, hold_results, sample_tile, write_back
from ..rule import Group, Variant
from .elementwise import schedule_following
from .packing import Packed, pack, packings, schedule_copy
from .vector_choices import vector_variables

MIN_REDUCTION_STEPS = 8
"""Steps of the reduction in a part of it, at least."""
PREFETCH_STEPS = 32
"""Steps of the reduction by which a packed panel is prefetched ahead of its use."""
MAX_STEPS = 8
"""Steps of the innermost loop of the reduction that are unrolled, at most."""
PREFETCH_VECTORS = 32
"""Vectors by which rows on pages of their own are prefetched ahead of their use."""
PREFETCHED_PAGES = 32
"""Pages that the prefetcher of the second cache follows at once (Intel, "Optimization Reference
Manual", 2.1.5.4): a part of the reduction has no more rows of what comes from memory unpacked."""
PAGE = 4096
MIN_ACCUMULATORS = 4
"""Fewer vectors of results wait for each other."""
MAX_UNROLLED = 128
"""Products of vectors in the body of the inner loop. A register tile of 8 by 48 takes as long
unrolled by 4 as by 8 or not at all, and each step takes as long again to compile."""


@dataclass(frozen=True)
class Tiling:
    """Along which variable to vectorise, and which inputs to pack by which variable.

    `blocked` cuts the reduction.
    """

    vector: Var
    packs: tuple[tuple[int, Var], ...]
    blocked: bool = False


def contraction_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """A variant for each way of vectorising, packing and cutting the reduction.

    What is packed along vectors may be `local`, packed tile by tile, if it is no constant. With
    `prefetch`, rows that come from memory as they are, each on another page, are asked for ahead.
    """
    main, labels = group.members[0], group.labels
    inputs = inputs_of(main)
    vectors = vector_variables(main, draft.target.vector_bits)
    cached = CpuTarget.of(draft.target).l2_bytes
    for tiling in _tilings(main, vectors):
        along = [inputs[n] for n, by in tiling.packs if by is tiling.vector]
        names = [
            "blocked" if tiling.blocked else "tiled",
            *(["across"] if tiling.vector is not vectors[0] else []),
            *(f"pack{inputs[n].buffer.name}" for n, _ in tiling.packs),
        ]
        tiled = functools.partial(tile_contraction, tiling=tiling, labels=labels)
        constant = bool(along) and along[0].buffer.constant
        if along and not constant:
            placed = functools.partial(place_copies, label=main.label, local=True)
            yield _variant(main, tiling, [*names, "local"], tiled, placed, local=True)
        if constant or not (along and tiling.blocked):
            placed = functools.partial(place_copies, label=main.label, local=False)
            yield _variant(main, tiling, names, tiled, placed, local=False)
            if tiling.blocked and (far := _pages_apart(main, tiling, cached)):
                ahead = functools.partial(_ask_for_rows, label=main.label, far=far)
                steps = tiled, placed, ahead
                yield _variant(main, tiling, [*names, "ahead"], *steps, local=False, prefetch=True)


def _variant(
    main: Block,
    tiling: Tiling,
    names: Sequence[str],
    *steps: Step,
    local: bool,
    **more: Option,
) -> Variant:
    place = {i.var: n for n, i in enumerate(main.iters)}
    return Variant.of(
        "_".join(names),
        *steps,
        vector=place[tiling.vector],
        pack=tuple((n, place[by]) for n, by in tiling.packs),
        blocked=tiling.blocked,
        local=local,
        **more,
    )


def _tilings(main: Block, vectors: list[Var]) -> Iterator[Tiling]:
    """The tilings along each of the variables in turn, those that pack least first."""
    ways = [
        [(v, packs) for packs in sorted(dict.fromkeys(packings(main, v)), key=len)] for v in vectors
    ]
    for vector, packs in filter(None, chain.from_iterable(zip_longest(*ways))):
        yield Tiling(vector, packs)
        # What is packed and read once is not kept in a cache, in parts or whole.
        again = all(reuse(main, inputs_of(main)[n]) > 1 for n, _ in packs)
        digits = last_digits(main) or low_digits(main)
        if len(packs) < 2 and again and _parts(main) and not digits:
            yield Tiling(vector, packs, blocked=True)


def _parts(main: Block) -> list[int]:
    """The lengths of parts that the outermost loop of the reduction can be cut into.

    There are none of a window, of which a register tile reads no more than the first cache has.
    """
    if all(_windows(main, v) for v in reduced(main)):
        return []
    sizes = extents(main)
    outermost = sizes[reduced(main)[0]]
    whole = product([sizes[v] for v in reduced(main)])
    return [
        n
        for n in range(2, outermost)
        if outermost % n == 0 and n * whole // outermost >= MIN_REDUCTION_STEPS
    ]


@dataclass(frozen=True)
class _Nest:
    """The block that accumulates, the loop around a part of the reduction, and those of its steps.

    Each of `steps` comes with its iterations, and takes `at_once` those of the loops inside of it.
    The register tiles of a tile in cache follow each other along vectors in the loop `across`.
    """

    accumulates: Label
    part: Var
    across: Var
    steps: list[tuple[Var, Dim]]
    at_once: list[Var]


@dataclass(frozen=True)
class _Tiled:
    """A contraction in register tiles: `packed` are the blocks that copy inputs, by variable."""

    tiling: Tiling
    tiles: RegisterTile
    packed: dict[Var, Packed]
    nest: _Nest


def tile_contraction(draft: Draft, tiling: Tiling, labels: Sequence[Label]) -> None:
    """Tile the first block and compute the one that follows it, if any; pack its inputs."""
    sch = draft.schedule
    main = sch.get_block(labels[0])
    block = find_block(sch.func, main)
    tiles = decide_tile(draft, block, tiling)
    packed = {by: pack(sch, main, n, by, tiles.width(by)) for n, by in tiling.packs}
    follow = sch.get_block(labels[1]) if len(labels) > 1 else None
    nest = (_blocked if tiling.blocked else _whole)(draft, main, block, tiles, follow)
    draft.handoff[main] = _Tiled(tiling, tiles, packed, nest)


def place_copies(draft: Draft, label: Label, *, local: bool) -> None:
    """Schedule the copies of the inputs of a tiled block, and have panels asked for ahead.

    With `local` what is packed along vectors is packed where a tile in cache uses it.
    """
    sch = draft.schedule
    tiled: _Tiled = draft.handoff[label]
    tiling, tiles, nest = tiled.tiling, tiled.tiles, tiled.nest
    for by, packed in tiled.packed.items():
        here = local and by is tiling.vector
        if here:
            sch.compute_at(packed.label, nest.part)
        panel = tiles.inner[by] if by is tiling.vector else None
        squares = not tiling.blocked
        schedule_copy(draft, packed, tiles.lanes, panel=panel, parallel=not here, squares=squares)
    for n, by in tiling.packs:
        if by is tiling.vector:
            _ask_ahead(sch, nest, n, 1 if tiles.unroll is None else tiles.unroll)


def _whole(
    draft: Draft, main: Label, block: Block, tiles: RegisterTile, follow: Label | None
) -> _Nest:
    """Register tiles of the whole reduction, which are written back."""
    sch = draft.schedule
    sizes = extents(block)
    loops = block_loops(sch, main)
    writes = hold_results(sch, main, "register")
    lay_out_digits(sch, main)
    flatten(sch, main)
    if follow is not None:
        schedule_following(draft, follow)
    units, outer, middle, tile = _cut(sch, block, loops, tiles)
    steps, at_once = unrolled(sch, [(loops[v], sizes[v]) for v in reduced(block)], tiles)
    registers = [*at_once, *tile]
    sch.reorder(*units, *outer, *middle, *(v for v, _ in steps), *registers)
    top = draft.map_outer(*outer)
    for write in writes:
        sch.reverse_compute_at(write, middle[-1])
    in_registers(sch, registers)
    for write in writes:
        write_back(sch, write, main, tiles)
    sch.decompose_reduction(main, steps[0][0])
    return _Nest(main, top, middle[-1], steps, at_once)


def _blocked(
    draft: Draft, main: Label, block: Block, tiles: RegisterTile, follow: Label | None
) -> _Nest:
    """Register tiles of parts of the reduction, which are added up in memory."""
    sch = draft.schedule
    sizes = extents(block)
    loops = block_loops(sch, main)
    outermost = reduced(block)[0]
    assert tiles.part is not None
    first, _ = sch.split(loops[outermost], factors=[None, tiles.part], perfect=True)
    outputs = outputs_of(block)
    partial = sch.rfactor(first, len(outputs[0].buffer.shape))
    for n in range(len(outputs)):
        sch.set_scope(partial, n, "register")
    flatten(sch, partial)
    loops = dict(zip([*spatial(block), outermost], sch.get_loops(main), strict=True))
    units, outer, middle, tile = _cut(sch, block, loops, tiles)
    sch.reorder(*units, *outer, loops[outermost], *middle, *tile)
    top = draft.map_outer(*outer)
    in_registers(sch, tile)
    sch.compute_at(partial, middle[-1])
    if follow is not None:
        sch.reverse_compute_at(follow, top)
        _, vector = sch.split(sch.get_loops(follow)[-1], factors=[None, tiles.lanes])
        sch.vectorize(vector)

    wide, deepest = len(spatial(block)), len(reduced(block))
    partial_loops = sch.get_loops(partial)[-(wide + 1 + deepest) :]
    inner = dict(zip(spatial(block), partial_loops, strict=False))
    reducing = zip(reduced(block), partial_loops[-deepest:], strict=True)
    depth = [(loop, tiles.part if v is outermost else sizes[v]) for v, loop in reducing]
    steps, at_once = unrolled(sch, depth, tiles)
    vectors = sch.split(inner[tiles.vector], factors=[None, tiles.lanes])
    rows = [inner[v] for v in tiles.inner if v is not tiles.vector]
    units = [loop for v, loop in inner.items() if v not in tiles.inner]
    registers = [*at_once, *rows, *vectors]
    sch.reorder(*units, partial_loops[wide], *(v for v, _ in steps), *registers)
    in_registers(sch, registers)
    sch.decompose_reduction(partial, steps[0][0])
    return _Nest(partial, loops[outermost], middle[-1], steps, at_once)


def _cut(
    sch: Schedule, block: Block, loops: dict[Var, Var], tiles: RegisterTile
) -> tuple[list[Var], list[Var], list[Var], list[Var]]:
    """The loops of a block's spatial variables: those of one iteration, and tiles on three levels.

    In cache rows are outside and vectors inside, so that what rows share comes from near. The last
    loop is the lanes of a vector.
    """
    sizes, groups = extents(block), grouped(block)
    units: list[Var] = []
    outer: list[Var] = []
    middle: list[Var] = []
    tile: list[Var] = []
    inmost: list[Var] = []
    for v in spatial(block):
        if v is tiles.vector:
            factors = [None, tiles.middle[v], tiles.inner[v], tiles.lanes]
            a, *inmost = sch.split(loops[v], factors=factors, perfect=v in groups)
            outer.append(a)
        elif v in tiles.middle:
            factors = [None, tiles.middle[v], tiles.inner[v]]
            a, b, c = sch.split(loops[v], factors=factors, perfect=v in groups)
            outer.append(a)
            middle.append(b)
            tile.append(c)
        elif v in tiles.inner:
            tile.append(loops[v])
        else:
            (outer if sizes[v] > 1 else units).append(loops[v])
    return units, outer, [*middle, inmost[0]], [*tile, *inmost[1:]]


def unrolled(
    sch: Schedule, steps: list[tuple[Var, Dim]], tiles: RegisterTile
) -> tuple[list[tuple[Var, Dim]], list[Var]]:
    """The loops of the reduction, and those of the steps which the innermost ones take at once."""
    factors = [n for n in (tiles.rows, tiles.unroll) if n is not None]
    others, inner = steps[: len(steps) - len(factors)], steps[len(steps) - len(factors) :]
    at_once: list[Var] = []
    for (loop, extent), factor in zip(inner, factors, strict=True):
        outer, part = sch.split(loop, factors=[None, factor], perfect=True)
        others = [*others, (outer, extent // factor)]
        at_once.append(part)
    return others, at_once


def _ask_ahead(sch: Schedule, nest: _Nest, index: int, unrolled: Dim) -> None:
    """Have the panel of an input brought near some steps before its turn.

    Each step asks for the lines of one: many at once would have to wait for each other. The
    innermost loop takes `unrolled` steps at once.
    """
    innermost = nest.steps[-1][0]
    step = nest.at_once[-1] if nest.at_once else innermost
    inside = 1
    for loop, extent in reversed(nest.steps):
        if not isinstance(extent, int) or extent * inside > PREFETCH_STEPS:
            later = (
                PREFETCH_STEPS // inside
                if loop is not innermost
                else ceildiv(PREFETCH_STEPS, unrolled)
            )
            hint = sch.prefetch(nest.accumulates, index, step, loop, later)
            unroll_hint(sch, hint, step)
            return
        inside *= extent


def _ask_for_rows(draft: Draft, label: Label, far: Sequence[int]) -> None:
    """Have the next columns of inputs brought near: their next rows are on other pages."""
    sch = draft.schedule
    tiled: _Tiled = draft.handoff[label]
    nest, later = tiled.nest, ceildiv(PREFETCH_VECTORS, tiled.tiles.inner[tiled.tiling.vector])
    step = nest.at_once[-1] if nest.at_once else nest.steps[-1][0]
    for index in far:
        unroll_hint(sch, sch.prefetch(nest.accumulates, index, step, nest.across, later), step)


def decide_tile(
    draft: Draft,
    block: Block,
    tiling: Tiling,
    *,
    middle: bool = True,
    fixed: Mapping[Var, Dim] | None = None,
) -> RegisterTile:
    """Decide the register tile of a contraction; tiles in cache if `middle`.

    The elements that it has of the variables `fixed` are decided already.
    """
    sch, target = draft.schedule, draft.target
    sizes = extents(block)
    vector = tiling.vector
    lanes = lanes_for(target.vector_bits, widest(block), sizes[vector])
    vectors = -(-sizes[vector] // lanes)
    tile = sample_tile(sch, block, vector, lanes, vectors, (3, 8), cached=middle, fixed=fixed or {})
    room = target.vector_registers - 1
    draft.limit("a register tile fits the registers", fewest_registers(block, vector) <= room)
    used = _registers(block, tile)
    for registers in used:
        draft.limit("the register tile fits the registers", registers <= room)
    if len(tile.inner) > 1:
        draft.limit(
            "the register tile hides the latency of fma", tile.accumulators >= MIN_ACCUMULATORS
        )
    tile = replace(tile, part=_sampled_part(draft, block, tiling))
    unrolls = [u for u in range(1, MAX_STEPS + 1) if sizes[reduced(block)[-1]] % u == 0]
    several = len(unrolls) > 1
    unroll = sch.sample_categorical(unrolls) if several else None
    rows = _sampled_rows(draft, block, tiling)
    if unroll is None and rows is None:
        return tile
    tile = replace(tile, unroll=1 if unroll is None else unroll, rows=rows)
    _limit_unrolling(draft, block, tile, used[-1], room)
    return tile


def _registers(block: Block, tile: RegisterTile) -> list[Dim]:
    """The registers that a tile takes while it reads each of the inputs that it loads vectors of.

    Those of its results stay, and the vectors that the reduction does not move along.
    """
    resident, moved = tile.accumulators, list[Dim]()
    for i in inputs_of(block):
        if tile.vector in i.used:
            vectors = product([n for v, n in tile.inner.items() if v in i.used])
            if i.used.isdisjoint(reduced(block)):
                resident = resident + vectors
            else:
                moved.append(vectors)
    return [resident + vectors for vectors in moved or [0]]


def _sampled_part(draft: Draft, block: Block, tiling: Tiling) -> Dim | None:
    """How long a part of a blocked reduction is; `None` where it is not cut."""
    parts = _parts(block) if tiling.blocked else []
    if _pages_apart(block, tiling, CpuTarget.of(draft.target).l2_bytes):
        parts = [n for n in parts if n <= PREFETCHED_PAGES] or parts[:1]
    return draft.schedule.sample_categorical(parts) if parts else None


def _sampled_rows(draft: Draft, block: Block, tiling: Tiling) -> Dim | None:
    """How many rows of a window to take at once, where the window is the whole reduction.

    Rows of the register tile share most rows of their windows, which are read once then. A large
    window has always some: else there is a load for each product, mostly across two cache lines.
    """
    window, sizes = reduced(block), extents(block)
    if tiling.blocked or len(window) != 2 or not _windows(block, window[0]):
        return None
    rows = sizes[window[0]]
    most = min(rows, MAX_UNROLLED // MIN_ACCUMULATORS)
    counts = [n for n in range(2, most + 1) if rows % n == 0]
    if not counts:
        return None
    if rows * sizes[window[1]] <= MAX_UNROLLED:
        counts = [1, counts[-1]]
    return draft.schedule.sample_categorical(counts) if len(counts) > 1 else counts[0]


def _limit_unrolling(draft: Draft, block: Block, tile: RegisterTile, used: Dim, room: int) -> None:
    """Keep the unrolled body short, and the values of its windows in `room` registers, of which
    the tile has `used` some."""
    assert tile.unroll is not None
    last = reduced(block)[-1]
    body = tile.accumulators * tile.unroll * (1 if tile.rows is None else tile.rows)
    draft.limit("the unrolled body is short", body <= MAX_UNROLLED)
    for i in _windows(block, last):
        if tile.vector in i.used:
            fits = tile.accumulators * tile.unroll <= 2 * room
        else:
            fits = (tile.unroll <= 1) | (used + _window_values(tile, i, last) <= room)
        draft.limit("a window's values fit the registers", fits)


def _window_values(tile: RegisterTile, window: Input, step: Var) -> Dim:
    """The values that the unrolled steps need of a window: LLVM keeps those that some share."""
    each = window.strides[step] or 0
    total: Dim = 1
    for v, n in tile.inner.items():
        if v in window.used:
            slides = any({v, step} <= free_vars(e) for e in window.at.indices)
            times = (window.strides[v] or 0) // each if slides and each else 0
            steps = 1 if tile.unroll is None else tile.unroll
            total *= n - 1 + ceildiv(steps, times) if times > 0 else n
    return total


def _pages_apart(block: Block, tiling: Tiling, cached: int) -> list[int]:
    """The unpacked inputs of more than `cached` bytes, of which each step of the reduction reads
    another page."""
    if len(reduced(block)) > 1 or tiling.vector in {by for _, by in tiling.packs}:
        return []
    return [
        n
        for n, i in enumerate(inputs_of(block))
        if tiling.vector in i.used
        and nbytes(i.buffer) > cached
        and abs(i.strides.get(reduced(block)[0]) or 0) * dtypes.nbytes(i.buffer.dtype) >= PAGE
    ]


def _windows(block: Block, inner: Var) -> list[Input]:
    """The inputs with an index that moves with `inner` and with a spatial variable."""
    return [
        i
        for i in inputs_of(block)
        if inner in i.used and i.strides[inner] is not None and inner not in i.plain
    ]
