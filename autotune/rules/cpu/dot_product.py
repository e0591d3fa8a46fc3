"""Contractions by instructions that add up groups of products, such as those for int8.

The instruction takes `group` steps of the reduction for `lanes` results at once: the operand that
the results differ in is packed so that those lie together, the other one is read as it is. Sizes
that do not divide are padded with zeros, on the way into the packed operands.

    for outer tiles (parallel):
      for tiles in cache:
        init the register tile
        for groups of the reduction:
          for the register tile (unrolled): one instruction
        write the register tile back, with what follows computed on the way
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ....schedule import Schedule
from ....schedule.find import find_block
from ....tir.ir import Block, Dim, Label, Var
from ..access_patterns import extents, reduced, spatial
from ..common import block_loops
from ..draft import Draft
from ..register_tiles import (
    RegisterTile,
    sample_tile,
    tile_variables,
    write_back,
    written_along,
)
from ..rule import Group, Variant
from .elementwise import schedule_following
from .products import ProductPlan, pack_operands, pad, plans, schedule_packed
from .vector_choices import worth_packing


def dot_product_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """Variants that use the instruction of the target that takes the fewest vectors, if any fits.

    The input that the lanes share is read as it is where its groups lie together, or packed by rows
    of the register tile.
    """
    main = group.members[0]
    fitting = [plan for plan in plans(main, draft.target) if plan.instruction.unit.rows == 1]
    if not fitting:
        return
    size = extents(main)

    def wasteful(plan: ProductPlan) -> tuple[int, int, bool]:
        columns = plan.product.columns
        return -(-size[plan.vector] // columns), columns, plan.instruction.home is None

    plan = min(fitting, key=wasteful)
    shared, name = plan.shared, plan.instruction.name
    apply = functools.partial(schedule_dot, labels=group.labels)
    if worth_packing(main, shared) and plan.reduction in shared.plain:
        for rows in [v for v in tile_variables(main, plan.vector) if v in shared.plain][:1]:
            packed = functools.partial(apply, plan=replace(plan, rows=rows))
            label = f"{name}_pack{shared.buffer.name}"
            yield Variant.of(label, packed, instruction=name, pack=True)
    if shared.strides.get(plan.reduction) == 1:
        plain = functools.partial(apply, plan=plan)
        yield Variant.of(name, plain, instruction=name, pack=False)


def schedule_dot(draft: Draft, plan: ProductPlan, labels: Sequence[Label]) -> None:
    """Compute the first block by the instruction, and the one that follows it, if any."""
    sch, product = draft.schedule, plan.product
    main = sch.get_block(labels[0])
    along = _written_along(sch, labels)
    plan, pads, crop = pad(sch, main, plan)
    block = plan.planned
    sizes = extents(block)
    loops = block_loops(sch, main)
    row = None if along is None else block.iters[along].var
    row = row if row in {None, *tile_variables(block, plan.vector)} else None
    tiles = _decide_tile(draft, block, plan, row)

    panel = None if plan.rows is None else [tiles.inner[plan.rows], product.group]
    packed, padded = pack_operands(draft, main, plan, pads, panel)
    if crop is None:
        write = sch.cache_write(main, 0, "register")
    else:
        sch.set_scope(main, 0, "register")
        write = crop
    if len(labels) > 1:
        schedule_following(draft, sch.get_block(labels[1]))

    units: list[Var] = []
    outer: list[Var] = []
    middle: list[Var] = []
    inner: list[Var] = []
    vectors, lane = sch.split(loops[plan.vector], factors=[None, product.columns], perfect=True)
    groups, step = sch.split(loops[plan.reduction], factors=[None, product.group], perfect=True)
    loops[plan.vector] = vectors
    for v in spatial(block):
        if v in tiles.inner:
            a, b, c = sch.split(loops[v], factors=[None, tiles.middle[v], tiles.inner[v]])
            outer.append(a)
            middle.insert(0 if v is plan.vector else len(middle), b)
            inner.append(c)
        elif sizes[v] > 1:
            outer.append(loops[v])
        else:
            units.append(loops[v])
    reduction = [loops[v] for v in reduced(block)[:-1]]
    if tiles.unroll is not None:
        groups, unrolled = sch.split(groups, factors=[None, tiles.unroll], perfect=True)
        inner.insert(0, unrolled)
    reduction.append(groups)
    sch.reorder(*units, *outer, *middle, *reduction, *inner, lane, step)
    draft.map_outer(*outer)
    sch.reverse_compute_at(write, middle[-1])
    for loop in inner:
        sch.unroll(loop)
    write_back(sch, write, main, tiles, row)
    init = sch.decompose_reduction(main, reduction[0])
    sch.vectorize(sch.get_loops(init)[-1])
    sch.tensorize(lane, plan.instruction.name)
    schedule_packed(draft, packed, plan, padded)


def _written_along(sch: Schedule, labels: Sequence[Label]) -> int | None:
    """The number of the first block's variable along which lies together what the next one writes,
    if there is one."""
    if len(labels) == 1:
        return None
    main, follow = (find_block(sch.func, label) for label in labels)
    along = written_along(main, follow)
    return next((n for n, i in enumerate(main.iters) if i.var is along), None)


def _decide_tile(draft: Draft, block: Block, plan: ProductPlan, row: Var | None) -> RegisterTile:
    """Decide the rows and vectors of the register tile, tiles in cache, unrolling.

    Elements that are written along a `row` are vectors of it then, or halves.
    """
    sch, sizes, lanes = draft.schedule, extents(block), plan.product.columns
    fixed = dict[Var, Dim]()
    if row is not None:
        counts = {n for n in (lanes // 2, lanes, sizes[row]) if n <= min(lanes, sizes[row])}
        fixed[row] = sch.sample_categorical(sorted(counts))
    vectors = sizes[plan.vector] // lanes
    tile = sample_tile(sch, block, plan.vector, lanes, vectors, (2, 12), fixed=fixed)
    sums = tile.accumulators
    room = plan.instruction.unit.registers_of(draft.target) - 1
    draft.limit("the register tile fits the registers", sums + tile.inner[plan.vector] <= room)
    if len(tile.inner) > 1:
        draft.limit("the register tile hides the latency of the instruction", sums >= 4)
    groups = sizes[plan.reduction] // plan.product.group
    unrolls = [u for u in (1, 2, 4) if groups % u == 0]
    if len(unrolls) == 1:
        return tile
    unroll = sch.sample_categorical(unrolls)
    draft.limit("the unrolled body fits the code cache", sums * unroll <= 128)
    return replace(tile, unroll=unroll)
