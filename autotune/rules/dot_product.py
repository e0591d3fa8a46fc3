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
from dataclasses import dataclass, replace

from ...codegen.cpu.llvm_dot import instruction
from ...schedule import Schedule
from ...schedule.find import find_block
from ...schedule.reductions import match_reduction
from ...tir.ir import Binary, Block, Buffer, Cast, Expr, Label, Load, Op, Var
from .access_patterns import (
    Input,
    extents,
    inputs_of,
    low_digits,
    matched,
    output_of,
    reduced,
    spatial,
    vector_choices,
    worth_packing,
)
from .draft import Draft, RuleChoice
from .elementwise import schedule_elementwise, schedule_following
from .rule import Group, GroupKind, Variant
from .tiles import RegisterTile, sample_tile, tile_variables, write_back

RULE = "dot_product"


@dataclass(frozen=True)
class Dot:
    """An instruction: dtypes of the sum, of the shared and of the packed factor; its size."""

    intrin: str
    dtypes: tuple[str, str, str]
    lanes: int
    group: int


_INT8 = ("int32", "uint8", "int8")
_BFLOAT16 = ("float32", "bfloat16", "bfloat16")
DOTS = (
    Dot("dot_16x4_vnni", _INT8, 16, 4),
    Dot("dot_8x4_vnni", _INT8, 8, 4),
    Dot("dot_16x2_bf16", _BFLOAT16, 16, 2),
    Dot("dot_8x2_bf16", _BFLOAT16, 8, 2),
)
"""The widest first."""


@dataclass(frozen=True)
class Plan:
    """Which instruction to use, along which variables, and which inputs to pack for it.

    The variables and inputs are those of `planned`. `shared` is the input that all lanes share, and
    `rows` the variable by whose tiles it is packed.
    """

    planned: Block
    dot: Dot
    vector: Var
    deep: Var
    index: int
    packed: Input
    shared: Input
    rows: Var | None = None

    def on(self, block: Block) -> Plan:
        """The plan on `block`, which iterates as `planned` does."""
        its, inputs = matched(self.planned, block), inputs_of(block)
        return replace(
            self,
            planned=block,
            vector=its[self.vector],
            deep=its[self.deep],
            packed=inputs[self.index],
            shared=inputs[1 - self.index],
            rows=None if self.rows is None else its[self.rows],
        )


def dot_product_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """Variants that use the instruction of the target that takes the fewest vectors, if any fits.

    The input that the lanes share is read as it is where its groups lie together, or packed by rows
    of the register tile.
    """
    if group.kind is not GroupKind.CONTRACTION:
        return
    main = group.members[0]
    known = [d for d in DOTS if instruction(draft.target, d.dtypes, d.lanes, d.group) is not None]
    plans = [plan for plan in (find_plan(main, dot) for dot in known) if plan is not None]
    if not plans:
        return
    size = extents(main)
    plan = min(plans, key=lambda p: (-(-size[p.vector] // p.dot.lanes), p.dot.lanes))
    shared, name = plan.shared, plan.dot.intrin
    apply = functools.partial(schedule_dot, labels=group.labels)
    if worth_packing(main, shared) and plan.deep in shared.plain:
        for rows in [v for v in tile_variables(main, plan.vector) if v in shared.plain][:1]:
            packed = functools.partial(apply, plan=replace(plan, rows=rows))
            choice = RuleChoice.of(RULE, instruction=name, pack=True)
            yield Variant(choice, f"{name}_pack{shared.buffer.name}", (packed,))
    if shared.strides.get(plan.deep) == 1:
        choice = RuleChoice.of(RULE, instruction=name, pack=False)
        yield Variant(choice, name, (functools.partial(apply, plan=plan),))


def find_plan(main: Block, dot: Dot) -> Plan | None:
    """How a block is computed by an instruction, if it is a sum of products of its dtypes."""
    found = match_reduction(main)
    if low_digits(main):
        return None  # tiles of instructions have none of them whole
    if found is None or found.combiner.name != "sum" or found.buffer.dtype != dot.dtypes[0]:
        return None
    factors = _factors(found.value)
    inputs = inputs_of(main)
    if factors is None or len(inputs) != 2:
        return None
    deep = reduced(main)[-1]
    out = output_of(main)
    for vector in vector_choices(main):
        along = [n for n, i in enumerate(inputs) if vector in i.used]
        if len(along) != 1 or out is None or out.strides.get(vector) != 1:
            continue
        packed, shared = inputs[along[0]], inputs[1 - along[0]]
        if (
            (shared.buffer.dtype, packed.buffer.dtype) == dot.dtypes[1:]
            and {shared.buffer, packed.buffer} == set(factors)
            and {vector, deep} <= packed.plain.keys()
        ):
            return Plan(main, dot, vector, deep, along[0], packed, shared)
    return None


def _factors(value: Expr) -> tuple[Buffer, Buffer] | None:
    """The buffers of a product of two elements, each cast to the dtype of the sum."""
    if type(value) is not Binary or value.op is not Op.MUL:
        return None
    loads = [p.value for p in (value.a, value.b) if type(p) is Cast]
    buffers = [p.buffer for p in loads if type(p) is Load]
    return (buffers[0], buffers[1]) if len(buffers) == 2 else None


def schedule_dot(draft: Draft, plan: Plan, labels: Sequence[Label]) -> None:
    """Compute the first block by the instruction, and the one that follows it, if any."""
    sch, dot = draft.schedule, plan.dot
    main = draft.handle(labels[0])
    pads, crop = _pad(sch, main, plan.on(find_block(sch.func, main)))
    block = find_block(sch.func, main)
    sizes = extents(block)
    plan = plan.on(block)
    loops = dict(zip([i.var for i in block.iters], sch.get_loops(main), strict=True))
    tiles = _decide_tile(draft, block, plan)

    packed = sch.pack(main, plan.index, layout(plan.packed, plan.vector, plan.deep),
                      [dot.lanes, dot.group])  # fmt: skip
    copy = None
    if plan.rows is not None:
        order = layout(plan.shared, plan.rows, plan.deep)
        copy = sch.pack(main, 1 - plan.index, order, [tiles.inner[plan.rows], dot.group])
    rows = place_pads(draft, pads, main, packed)
    if copy is not None:
        schedule_groups(draft, copy)
    write = _in_registers(sch, main, crop)
    if len(labels) > 1:
        schedule_following(draft, draft.handle(labels[1]))

    units: list[Var] = []
    outer: list[Var] = []
    middle: list[Var] = []
    inner: list[Var] = []
    vectors, lane = sch.split(loops[plan.vector], factors=[None, dot.lanes], perfect=True)
    groups, step = sch.split(loops[plan.deep], factors=[None, dot.group], perfect=True)
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
    write_back(sch, write, main, tiles)
    init = sch.decompose_reduction(main, reduction[0])
    sch.vectorize(sch.get_loops(init)[-1])
    sch.tensorize(lane, dot.intrin)
    schedule_packed(draft, packed, plan, rows)


def _pad(sch: Schedule, main: Label, plan: Plan) -> tuple[list[Label], Label | None]:
    """Pad what does not divide. The copies of the operands, and the one that crops the result."""
    block = find_block(sch.func, main)
    by = {plan.vector: plan.dot.lanes, plan.deep: plan.dot.group}
    wanted = [by.get(i.var, 1) for i in block.iters]
    labels = list(sch.pad_einsum(main, wanted))
    crops = extents(block)[plan.vector] % plan.dot.lanes > 0
    return (labels[:-1], labels[-1]) if crops else (labels, None)


def _in_registers(sch: Schedule, main: Label, crop: Label | None) -> Label:
    """Keep the sums in registers. The block that copies them to memory."""
    if crop is None:
        return sch.cache_write(main, 0, "register")
    sch.set_scope(main, 0, "register")
    return crop


def place_pads(draft: Draft, pads: list[Label], main: Label, packed: Label) -> Label | None:
    """Pad what the contraction reads as it is before it, and the rest where it is packed.

    Returns the block that pads what `packed` reads, which is left to the caller.
    """
    sch, found = draft.schedule, None
    for pad in pads:
        readers = sch.get_consumers(pad)
        if readers == (packed,):
            found = pad
        elif readers == (main,):
            schedule_elementwise(draft, pad)
        else:
            sch.compute_inline(pad)
    return found


def schedule_packed(draft: Draft, packed: Label, plan: Plan, pad: Label | None) -> None:
    """Run the copy that packs what lanes differ in, of rows that `pad` makes if there is one.

    What is packed ahead of the calls is packed in one step, whose layout can be told.
    """
    sch = draft.schedule
    ahead = pad is not None and inputs_of(find_block(sch.func, pad))[0].buffer.constant
    if plan.packed.strides.get(plan.vector) == 1 and not ahead:
        interleave_groups(draft, packed, pad)
        return
    if pad is not None:
        sch.compute_inline(pad)
    schedule_groups(draft, packed)


def schedule_groups(draft: Draft, label: Label) -> None:
    """Run a packing copy in parallel, a group at a time; scattered vectors are no faster."""
    sch = draft.schedule
    first, *_, last = sch.get_loops(label)
    block = find_block(sch.func, label)
    if inputs_of(block)[0].strides.get(block.iters[-1].var) == 1:
        sch.vectorize(last)
    else:
        sch.unroll(last)
    draft.map_outer(first)


def interleave_groups(draft: Draft, label: Label, pad: Label | None) -> None:
    """Run a packing copy in parallel: the rows of a group as vectors, lane after lane.

    `pad` is the block that makes the rows, if one does. They are read from end to end, and what is
    written of each panel is a whole line.
    """
    sch = draft.schedule
    *outer, panel, group, lane, step = sch.get_loops(label)
    sch.reorder(group, panel)
    if pad is None:
        rows = sch.cache_read(label, 0, "register")
    else:
        rows = pad
        sch.set_scope(rows, 0, "register")
    sch.compute_at(rows, panel)
    row, vector = sch.get_loops(rows)[-2:]
    sch.unroll(row)
    sch.vectorize(vector)
    sch.vectorize(sch.fuse(lane, step))
    draft.map_outer(outer[0] if outer else group)


def layout(source: Input, by: Var, deep_by: Var) -> str:
    """The packed order: other dimensions, panels, groups of steps, then what a panel holds of one
    group: for each of its elements `by` the steps."""
    place, deep = (chr(ord("A") + source.plain[v]) for v in (by, deep_by))
    others = [chr(ord("A") + d) for d in range(len(source.buffer.shape))]
    front = "".join(c for c in others if c not in (place, deep))
    return front + place + deep + place.lower() + deep.lower()


def _decide_tile(draft: Draft, block: Block, plan: Plan) -> RegisterTile:
    """Decide the rows and vectors of the register tile, tiles in cache, unrolling."""
    sch, sizes = draft.schedule, extents(block)
    vectors = sizes[plan.vector] // plan.dot.lanes
    tile = sample_tile(sch, block, plan.vector, plan.dot.lanes, vectors, (2, 12))
    sums = tile.accumulators
    room = draft.target.vector_registers - 1
    draft.limit("the register tile fits the registers", sums + tile.inner[plan.vector] <= room)
    if len(tile.inner) > 1:
        draft.limit("the register tile hides the latency of the instruction", sums >= 4)
    groups = sizes[plan.deep] // plan.dot.group
    unrolls = [u for u in (1, 2, 4) if groups % u == 0]
    if len(unrolls) == 1:
        return tile
    unroll = sch.sample_categorical(unrolls)
    draft.limit("the unrolled body fits the code cache", sums * unroll <= 128)
    return replace(tile, unroll=unroll)
