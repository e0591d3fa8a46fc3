"""Find the instructions that compute a contraction; pad and pack its operands for them.

An instruction takes the steps of the reduction in groups. The operand along its columns is packed
so that groups lie together. The other operand, which has the rows, is read in place or packed by
rows. Sizes that do not divide are padded with zeros, on the way into the packed operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ....schedule import Schedule
from ....schedule.block_queries import has_reduction
from ....schedule.find import find_block
from ....schedule.reduction_blocks import match_reduction
from ....target import Target
from ....tir.instruction import Instruction, Product
from ....tir.instruction_set import products_of
from ....tir.ir import Binary, Block, Buffer, Cast, Dim, Expr, Label, Load, Op, Var
from ..access_patterns import Input, extents, inputs_of, low_digits, output_of, reduced
from ..draft import Draft
from .elementwise import schedule_elementwise
from .vector_choices import vector_choices


@dataclass(frozen=True)
class ProductPlan:
    """Which instruction computes a block, along which variables, and which inputs are packed.

    The variables and inputs are those of `planned`: the columns are along `vector`, the steps along
    `reduction`. `packed` is the input that the columns differ in, `shared` the other one. `rows` is
    the variable along which `shared` has rows, where a rule says so.
    """

    planned: Block
    instruction: Instruction
    product: Product
    vector: Var
    reduction: Var
    index: int
    packed: Input
    shared: Input
    rows: Var | None = None

    def on(self, block: Block) -> ProductPlan:
        """The plan on `block`, which iterates as `planned` does."""
        pairs = zip(self.planned.iters, block.iters, strict=True)
        variables, inputs = {i.var: other.var for i, other in pairs}, inputs_of(block)
        return replace(
            self,
            planned=block,
            vector=variables[self.vector],
            reduction=variables[self.reduction],
            packed=inputs[self.index],
            shared=inputs[1 - self.index],
            rows=None if self.rows is None else variables[self.rows],
        )

    @property
    def sizes(self) -> dict[Var, int]:
        """How much of each variable one instruction takes."""
        sizes = {self.vector: self.product.columns, self.reduction: self.product.steps}
        return sizes if self.rows is None else {self.rows: self.product.rows, **sizes}


def plans(main: Block, target: Target) -> Iterator[ProductPlan]:
    """How each instruction of the target computes a block, if it can."""
    matched_sum = match_reduction(main, "sum")
    factors = None if matched_sum is None else _factors(matched_sum.value)
    # Of a single product there are no steps to take in groups, and of digits no tile is whole.
    if matched_sum is None or factors is None or not has_reduction(main) or low_digits(main):
        return
    for instruction, product, _ in products_of(target):
        accumulates = matched_sum.buffer.dtype == product.acc
        plan = _plan(main, instruction, product, factors) if accumulates else None
        if plan is not None:
            yield plan


def _plan(
    main: Block, instruction: Instruction, product: Product, factors: tuple[Buffer, Buffer]
) -> ProductPlan | None:
    """How an instruction computes a sum of products of these `factors`."""
    inputs, out = inputs_of(main), output_of(main)
    if len(inputs) != 2 or out is None:
        return None
    steps = reduced(main)[-1]
    for vector in vector_choices(main):
        along = [n for n, i in enumerate(inputs) if vector in i.used]
        if len(along) != 1 or out.strides.get(vector) != 1:
            continue
        packed, shared = inputs[along[0]], inputs[1 - along[0]]
        if (
            (shared.buffer.dtype, packed.buffer.dtype) == (product.x, product.y)
            and {shared.buffer, packed.buffer} == set(factors)
            and {vector, steps} <= packed.plain.keys()
        ):
            return ProductPlan(main, instruction, product, vector, steps, along[0], packed, shared)
    return None


def _factors(value: Expr) -> tuple[Buffer, Buffer] | None:
    """The buffers of a product of two elements, each cast to the dtype of the sum."""
    if type(value) is not Binary or value.op is not Op.MUL:
        return None
    loads = [p.value for p in (value.a, value.b) if type(p) is Cast]
    buffers = [p.buffer for p in loads if type(p) is Load]
    return (buffers[0], buffers[1]) if len(buffers) == 2 else None


def pad(
    sch: Schedule, main: Label, plan: ProductPlan
) -> tuple[ProductPlan, list[Label], Label | None]:
    """Pad what does not divide.

    Returns the plan on the padded block, the copies of the operands, and the one that crops the
    result, if any.
    """
    plan = plan.on(find_block(sch.func, main))
    sizes = extents(plan.planned)
    labels = list(sch.pad_einsum(main, [plan.sizes.get(v, 1) for v in sizes]))
    crops = any(sizes[v] % n for v, n in plan.sizes.items() if v is not plan.reduction)
    plan = plan.on(find_block(sch.func, main))
    return (plan, labels[:-1], labels[-1]) if crops else (plan, labels, None)


def pack_operands(
    draft: Draft, main: Label, plan: ProductPlan, pads: list[Label], panel: Sequence[Dim] | None
) -> tuple[Label, Label | None]:
    """Pack the operand that the columns differ in, and the other one in panels of rows and steps.

    Without a `panel` that is read as it is. Returns the first copy, and the block that pads what it
    reads.
    """
    sch, product = draft.schedule, plan.product
    order = _layout(plan.packed, plan.vector, plan.reduction)
    packed = sch.pack(main, plan.index, order, [product.columns, product.group])
    copy = None
    if panel is not None and plan.rows is not None:
        order = _layout(plan.shared, plan.rows, plan.reduction)
        copy = sch.pack(main, 1 - plan.index, order, panel)
    padded = _place_pads(draft, pads, main, packed)
    if copy is not None:
        schedule_groups(draft, copy)
    return packed, padded


def _place_pads(draft: Draft, pads: list[Label], main: Label, packed: Label) -> Label | None:
    """Pad what the contraction reads as it is before it, and the rest where it is packed.

    Returns the block that pads what `packed` reads, which is left to the caller.
    """
    sch, packed_pad = draft.schedule, None
    for pad in pads:
        readers = sch.get_consumers(pad)
        if readers == (packed,):
            packed_pad = pad
        elif readers == (main,):
            schedule_elementwise(draft, pad)
        else:
            sch.compute_inline(pad)
    return packed_pad


def schedule_packed(draft: Draft, packed: Label, plan: ProductPlan, pad: Label | None) -> None:
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


def _layout(source: Input, by: Var, reduction: Var) -> str:
    """The packed order: other dimensions, panels, groups of steps, then what a panel holds of one
    group: for each of its elements `by` the steps."""
    place, steps = (chr(ord("A") + source.plain[v]) for v in (by, reduction))
    others = [chr(ord("A") + d) for d in range(len(source.buffer.shape))]
    front = "".join(c for c in others if c not in (place, steps))
    return front + place + steps + place.lower() + steps.lower()
