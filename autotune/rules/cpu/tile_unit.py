"""Contractions by a unit for matrices, whose instructions multiply tiles of several rows.

Both operands are read a tile at a time. The operand along the columns of the result is packed, so
that the groups of steps of a tile lie together. The rows of the other operand are read in place, or
packed to be next to each other. Sizes that do not divide are padded with zeros.

    for outer tiles (parallel):
      for tiles in cache:
        zero the tiles in registers
        for steps of the reduction, those of a tile at once:
          for the tiles in registers (unrolled): one instruction
        store the tiles, and compute from that what follows
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ....schedule import Schedule
from ....schedule.find import find_block
from ....tir.ir import Block, Buffer, Dim, Label, Var
from ..access_patterns import (
    extents,
    input_along,
    inputs_of,
    output_of,
    reduced,
    runs_across,
    spatial,
)
from ..common import block_loops, in_registers, lanes_for, powers, succeeds, widest
from ..draft import Draft
from ..register_tiles import MAX_MIDDLE, RegisterTile, tile_variables
from ..rule import Group, Variant
from .elementwise import schedule_elementwise, schedule_following, transpose_in_registers
from .products import ProductPlan, pack_operands, pad, plans, schedule_packed
from .vector_choices import worth_packing

MAX_PADDED = 8.0
"""At most how many times as many products padding may make. Where it makes 4.6 times as many, an
int8 product of 40x40x20, a call with the unit takes half the time of one with vectors."""


def tile_unit_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """Variants that use the unit of the target for matrices, if it has one and padding is little.

    Rows are read as they are where their steps lie together, or packed.
    """
    main = group.members[0]
    apply = functools.partial(schedule_tile_unit, labels=group.labels)
    units = [plan for plan in plans(main, draft.target) if plan.instruction.unit.rows > 1]
    for plan in filter(None, (_with_rows(main, plan) for plan in units)):
        name, shared = plan.instruction.name, plan.shared
        if shared.strides.get(plan.reduction) == 1:
            plain = functools.partial(apply, plan=plan, packs=False)
            yield Variant.of(name, plain, instruction=name, pack=False)
        if {plan.rows, plan.reduction} <= shared.plain.keys() and worth_packing(main, shared):
            packed = functools.partial(apply, plan=plan, packs=True)
            label = f"{name}_pack{shared.buffer.name}"
            yield Variant.of(label, packed, instruction=name, pack=True)


def _with_rows(main: Block, plan: ProductPlan) -> ProductPlan | None:
    """The plan with the variable whose values are the rows of tiles, where padding is little."""
    sizes, out = extents(main), output_of(main)
    assert out is not None
    for v in tile_variables(main, plan.vector):
        if v in plan.packed.used or v not in plan.shared.used or v not in out.plain:
            continue
        candidate, padded = replace(plan, rows=v), 1.0
        for along, size in candidate.sizes.items():
            padded *= -(-sizes[along] // size) * size / sizes[along]
        if padded <= MAX_PADDED:
            return candidate
    return None


def schedule_tile_unit(
    draft: Draft, plan: ProductPlan, labels: Sequence[Label], *, packs: bool
) -> None:
    """Compute the first block by the unit, and the one that follows it, if any.

    The operand that has the rows is packed if `packs`.
    """
    sch = draft.schedule
    main = sch.get_block(labels[0])
    plan, pads, crop = pad(sch, main, plan)
    block = plan.planned
    tiles = _decide_tile(draft, block, plan)
    panel = [plan.product.rows, plan.product.steps] if packs else None
    packed, padded = pack_operands(draft, main, plan, pads, panel)
    write = sch.cache_write(main, 0, "register")
    last = _last(draft, crop, [sch.get_block(label) for label in labels[1:]])
    stored = find_block(sch.func, write).writes[0].buffer
    square = plan.product.rows == plan.product.columns
    across = _copied_across(sch, last, stored) if last is not None and square else None

    instruction, sizes = plan.instruction, plan.sizes
    loops = block_loops(sch, main)
    units: list[Var] = []
    outer: list[Var] = []
    middle: list[Var] = []
    inner: list[Var] = []
    tile: dict[Var, Var] = {}
    for v in spatial(block):
        if v in tiles.inner:
            count, tile[v] = sch.split(loops[v], factors=[None, sizes[v]], perfect=True)
            a, b, c = sch.split(count, factors=[None, tiles.middle[v], tiles.inner[v]])
            outer.append(a)
            middle.insert(0 if v is plan.vector else len(middle), b)
            inner.append(c)
        elif extents(block)[v] > 1:
            outer.append(loops[v])
        else:
            units.append(loops[v])
    in_tile = [plan.product.depth, plan.product.group]
    steps, *of_tile = sch.split(loops[plan.reduction], factors=[None, *in_tile])
    reduction = [*(loops[v] for v in reduced(block)[:-1]), steps]
    rows, columns = tile[_rows(plan)], tile[plan.vector]
    sch.reorder(*units, *outer, *middle, *reduction, *inner, rows, columns, *of_tile)
    draft.map_outer(*outer)
    sch.reverse_compute_at(write, middle[-1])
    if last is not None:
        _follow(draft, plan, last, across, middle[-1])
    for loop in inner:
        sch.unroll(loop)
    copied = _as_tiles(sch, write, main, plan)
    if instruction.write:
        sch.tensorize(copied, instruction.write)
    init = sch.decompose_reduction(main, reduction[0])
    if instruction.init:
        sch.tensorize(sch.get_loops(init)[-2], instruction.init)
    sch.tensorize(rows, instruction.name)
    schedule_packed(draft, packed, plan, padded)


def _rows(plan: ProductPlan) -> Var:
    assert plan.rows is not None
    return plan.rows


def _last(draft: Draft, crop: Label | None, following: list[Label]) -> Label | None:
    """The block that reads what tiles were stored to: what follows the contraction, the crop
    computed with it."""
    if crop is None or not following:
        return following[0] if following else crop
    schedule_following(draft, following[0])
    return crop


@dataclass(frozen=True)
class _Across:
    """How a block reads tiles across what it writes: input, variables along both, its copy."""

    index: int
    along: Var
    other: Var
    copy: Label


def _copied_across(sch: Schedule, last: Label, tiles: Buffer) -> _Across | None:
    """Have a block copy tiles to registers if what it writes lies across them."""
    block = find_block(sch.func, last)
    across = runs_across(block)
    index = None if across is None else input_along(block, across)
    if across is None or index is None or inputs_of(block)[index].buffer is not tiles:
        return None
    return _Across(index, *across, sch.cache_read(last, index, "register"))


def _follow(
    draft: Draft, plan: ProductPlan, last: Label, across: _Across | None, loop: Var
) -> None:
    """Compute a block from tiles while those are in cache, or by itself where that cannot be."""
    sch, wide = draft.schedule, plan.product.columns
    if across is not None:
        sch.reverse_compute_at(across.copy, loop)
        sch.reverse_compute_at(last, loop)
        along, other = across.along, across.other
        transpose_in_registers(sch, last, across.index, along, other, (1, 1), wide, across.copy)
        return
    if not succeeds(sch.reverse_compute_at, last, loop):
        schedule_elementwise(draft, last)
        return
    lanes = lanes_for(draft.target.vector_bits, widest(find_block(sch.func, last)), wide)
    in_registers(sch, sch.split(sch.get_loops(last)[-1], factors=[None, lanes]))


def _as_tiles(sch: Schedule, write: Label, main: Label, plan: ProductPlan) -> Var:
    """Unroll the copy of the tiles to memory; the loop that is around one of them."""
    out = output_of(find_block(sch.func, main))
    assert out is not None
    copy = find_block(sch.func, write)
    (held,) = [i for i in inputs_of(copy) if i.buffer is out.buffer]
    at = [held.plain[i.var] for i in copy.iters if i.var in held.plain]
    loops = sch.get_loops(write)[-len(copy.iters) :]
    by_place = dict(zip(at, loops, strict=True))
    cut = [
        sch.split(by_place.pop(out.plain[v]), factors=[None, plan.sizes[v]], perfect=True)
        for v in (_rows(plan), plan.vector)
    ]
    tiles = [count for count, _ in cut]
    rows, columns = (lane for _, lane in cut)
    sch.reorder(*by_place.values(), *tiles, rows, columns)
    for loop in tiles:
        sch.unroll(loop)
    return rows


def _decide_tile(draft: Draft, block: Block, plan: ProductPlan) -> RegisterTile:
    """Decide how many of the unit's tiles are in registers, and how many of those in cache."""
    sch, sizes = draft.schedule, extents(block)
    inner: dict[Var, Dim] = {}
    middle: dict[Var, Dim] = {}
    for v in (plan.vector, _rows(plan)):
        count = sizes[v] // plan.sizes[v]
        inner[v] = sch.sample_categorical([n for n in (1, 2, 3) if n <= count])
        middle[v] = sch.sample_categorical(powers(min(MAX_MIDDLE // plan.sizes[v], count)))
    across, down = inner.values()
    draft.limit(
        "the tiles and their operands fit the registers",
        across * down + across + down <= plan.instruction.unit.registers_of(draft.target),
    )
    return RegisterTile(plan.vector, plan.product.columns, inner, middle)
