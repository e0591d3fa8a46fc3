"""Questions of the sketch rules: how blocks use their inputs, and which block follows which."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...schedule.block_queries import buffers_in_order, free_vars, has_reduction, region_buffers
from ...schedule.facts import fact
from ...tir.cpu_instructions import MAX_SHUFFLE_STRIDE
from ...tir.digits import Joined, joined, two_digits
from ...tir.ir import (
    FLOAT_FUNCTIONS,
    ROUNDINGS,
    Binary,
    Block,
    Buffer,
    Call,
    Dim,
    Expr,
    Func,
    IterKind,
    Load,
    Op,
    Region,
    Select,
    Var,
)
from ...tir.piecewise import is_switch, linear
from ...tir.structure import key_of
from ...tir.updates import match_updates
from ...tir.visit import walk
from .common import elements
from .dataflow import dataflow

WINDOW_TERMS = 64
"""Windows of more elements are not written out."""
EXPENSIVE = frozenset(FLOAT_FUNCTIONS) - ROUNDINGS
"""The functions that cost tens of instructions an element."""


@dataclass(frozen=True)
class Input:
    """How a block reads one of its input buffers.

    `at` is the place of its first access, by joined dimensions. `used` are the iteration variables
    in its indices. `plain` maps those that are an index by themselves to their joined dimension.
    `strides` has the step in elements that one iteration makes, `None` where it is not constant, or
    not the same in all places that the block reads. If it is, they are `alike`.
    """

    buffer: Buffer
    at: Joined
    used: frozenset[Var]
    plain: dict[Var, int]
    strides: dict[Var, int | None]
    alike: bool


def inputs_of(block: Block) -> list[Input]:
    """The inputs of a block in the order in which they are first read, by which steps number them.

    Its own outputs are left out, and what its init alone reads, which comes last.
    """
    return list(fact((inputs_of, block), lambda: _inputs_of(block)))


def _inputs_of(block: Block) -> list[Input]:
    body = {n.buffer for n in walk(block.body) if type(n) is Load}
    return _by_buffer(block, [r for r in _read(block) if r.buffer in body], extents(block))


def _by_buffer(block: Block, regions: Sequence[Region], sizes: Mapping[Var, int]) -> list[Input]:
    """How a block indexes each of the buffers that it has regions of, in their order."""
    variables = [i.var for i in block.iters]
    inputs = []
    for buffer in buffers_in_order(regions):
        accesses = [tuple(x.min for x in r.ranges) for r in regions if r.buffer is buffer]
        inputs.append(_input(buffer, accesses, variables, sizes))
    return inputs


def _read(block: Block) -> list[Region]:
    """The regions that a block reads of what it does not write."""
    written = region_buffers(block.writes)
    return [r for r in block.reads if r.buffer not in written]


def _input(
    buffer: Buffer,
    accesses: list[tuple[Expr, ...]],
    variables: list[Var],
    sizes: Mapping[Var, int],
) -> Input:
    used = {n for a in accesses for e in a for n in walk(e) if type(n) is Var}
    first = accesses[0]
    at = _parted(joined(buffer, first), sizes)
    same = all(tuple(map(key_of, a)) == tuple(map(key_of, first)) for a in accesses)
    iterated = set(variables)
    counted = Counter(n for e in at.indices for n in walk(e) if type(n) is Var)
    plain = {
        e: d
        for d, e in enumerate(at.indices)
        if same and type(e) is Var and e in iterated and counted[e] == 1
    }
    indexing = [v for v in variables if v in used]
    places = [at, *(_parted(joined(buffer, a), sizes) for a in accesses[1:])]
    steps_of = {v: {_stride(buffer, place, v) for place in places} for v in indexing}
    strides = {v: next(iter(steps)) if len(steps) == 1 else None for v, steps in steps_of.items()}
    alike = all(len(steps) == 1 for steps in steps_of.values())
    return Input(buffer, at, frozenset(indexing), plain, strides, alike)


def _parted(at: Joined, sizes: Mapping[Var, int]) -> Joined:
    """An access with each number of two digits, whose `sizes` make the dimension, as two of them.

    W[g * 8 + l, k], of shape (32, 16), g < 4, l < 8   ->   W[g, l, k], of shape (4, 8, 16)
    """
    parts: list[tuple[Dim, Expr, tuple[int, ...]]] = []
    for n, e, dims in zip(at.shape, at.indices, at.dims, strict=True):
        high, low = two_digits(e, sizes) or (None, None)
        if high is not None and low is not None and n == sizes[high] * sizes[low]:
            parts += [(sizes[high], high, dims), (sizes[low], low, dims)]
        else:
            parts.append((n, e, dims))
    return Joined(*zip(*parts, strict=True)) if len(parts) > len(at.shape) else at


def _stride(buffer: Buffer, at: Joined, var: Var) -> int | None:
    """Elements by which an access moves when `var` advances by one."""
    total = 0
    step = 1
    for d in range(len(at.indices) - 1, -1, -1):
        # The digits of one dimension follow each other: their steps go on from the last one's.
        if buffer.strides is not None and at.dims[d : d + 1] != at.dims[d + 1 : d + 2]:
            step = buffer.strides[at.dims[d][-1]]
        coefficient = _coefficient(at.indices[d], var)
        if coefficient is None:
            return None
        total += coefficient * step
        extent = at.shape[d]
        step *= extent if isinstance(extent, int) else 1
    return total


def _coefficient(index: Expr, var: Var) -> int | None:
    """By how much an index grows when `var` does by one; `None` where that is not constant."""
    if index is var:
        return 1
    if var not in free_vars(index):
        return 0
    parts = linear(index, [var])
    step = None if parts is None else parts.coefficients.get(var, 0)
    return step if isinstance(step, int) else None


def output_of(block: Block) -> Input | None:
    """How a block indexes its output; `None` where it has several."""
    outputs = outputs_of(block)
    return outputs[0] if len(outputs) == 1 else None


def outputs_of(block: Block) -> list[Input]:
    """How a block indexes its outputs, in the order by which steps number them.

    There are none where they lie in different ways.
    """
    return list(fact((outputs_of, block), lambda: _outputs_of(block)))


def _outputs_of(block: Block) -> list[Input]:
    outputs = _by_buffer(block, block.writes, {})
    layouts = [(len(o.buffer.shape), o.plain, o.strides) for o in outputs]
    return outputs if all(layout == layouts[0] for layout in layouts) else []


def spatial(block: Block) -> list[Var]:
    return [i.var for i in block.iters if i.kind is IterKind.SPATIAL]


def reduced(block: Block) -> list[Var]:
    return [i.var for i in block.iters if i.kind is IterKind.REDUCE]


def extents(block: Block) -> dict[Var, int]:
    """The extents of a block's iteration variables in a concrete program."""
    return {i.var: i.extent for i in block.iters if isinstance(i.extent, int)}


def is_injective(block: Block) -> bool:
    """Whether a block is spatial and has one output, of which each element is written once."""
    kinds = {i.kind for i in block.iters}
    return kinds <= {IterKind.SPATIAL} and len(region_buffers(block.writes)) == 1


def is_ordered(block: Block) -> bool:
    """Whether a block has iterations that run in their order alone."""
    return any(i.kind is IterKind.OPAQUE for i in block.iters)


def is_expensive(block: Block) -> bool:
    """Whether the block calls functions that cost tens of instructions an element."""
    return any(type(n) is Call and n.fn in EXPENSIVE for n in walk(block.body))


def divides(block: Block) -> bool:
    """Whether the block divides floats, which takes as long as a dozen products."""
    return any(type(n) is Binary and n.op is Op.DIV for n in walk(block.body))


def has_guard(block: Block) -> bool:
    """Whether the block chooses between values, as padding does."""
    return any(type(n) is Select for n in walk(block.body))


def loads(block: Block, buffer: Buffer) -> int:
    """In how many places a block reads a buffer."""
    return sum(region.buffer is buffer for region in block.reads)


def is_window(block: Block, readers: Sequence[Block]) -> bool:
    """Whether spatial blocks read windows: one of them several places of a spatial block's result,
    or the block itself a window, for several readers or several elements of one."""
    (buffer,) = region_buffers(block.writes)
    if not all(map(is_injective, readers)):
        return False
    if any(loads(r, buffer) > 1 for r in readers):
        return True
    again = len(readers) > 1 or any(_repeats(r, buffer) for r in readers)
    return again and any(loads(block, i.buffer) > 1 for i in inputs_of(block))


def _repeats(reader: Block, buffer: Buffer) -> bool:
    """Whether a block reads an element of a buffer for several of its own.

    These differ in variables that its reads do not use, or in the remainder of one that is divided.
    """
    sizes = extents(reader)
    wide = {v for v in spatial(reader) if sizes.get(v, 2) > 1}
    if any(wide - i.used for i in inputs_of(reader) if i.buffer is buffer):
        return True
    indices = (x.min for r in reader.reads if r.buffer is buffer for x in r.ranges)
    return any(type(n) is Binary and n.op is Op.FLOORDIV for e in indices for n in walk(e))


def reuses(block: Block) -> bool:
    """Whether a reduction reads elements of an input for several of its results."""
    if match_updates(block) is None or not has_reduction(block):
        return False
    sizes = extents(block)
    wide = {v for v in spatial(block) if sizes.get(v, 2) > 1}
    return any(wide - i.used for i in inputs_of(block)) or _slides(block)


def _slides(block: Block) -> bool:
    """Whether an index of an input mixes a spatial and a reduced variable, as windows do."""
    return any(True for _ in sliding(block, block.reads))


def sliding(block: Block, reads: Sequence[Region]) -> Iterator[Expr]:
    """The indices of `reads` that mix a spatial and a reduced variable of a block."""
    inner, outer = set(reduced(block)), set(spatial(block))
    for index in (r.min for region in reads for r in region.ranges):
        used = free_vars(index)
        if used & inner and used & outer:
            yield index


def is_bent_window(block: Block) -> bool:
    """Whether a reduction over few terms reads a window that is clamped, reflected or wrapped at
    borders."""
    terms = math.prod(extents(block).get(v, WINDOW_TERMS + 1) for v in reduced(block))
    return 1 < terms <= WINDOW_TERMS and any(map(is_bent, sliding(block, block.reads)))


def is_bent(index: Expr) -> bool:
    """Whether an index is clamped, reflected or wrapped."""
    return any(
        is_switch(n) and not (type(n) is Binary and n.op is Op.FLOORDIV) for n in walk(index)
    )


def row_dimensions(func: Func, last: Block) -> int | None:
    """How many of the first iteration variables of `last` number its rows; `None` if it has none.

    A reduction's rows are its spatial variables. For a spatial block they are the variables that
    index the results of reductions, where those are not all: then it has an element of each.
    """
    if has_reduction(last):
        return len(spatial(last))
    flow = dataflow(func)
    variables = [i.var for i in last.iters]
    rows: set[Var] = set()
    reads_reduction = False
    for region in last.reads:
        if any(map(has_reduction, flow.writers(region.buffer))):
            indices = {r.min for r in region.ranges if type(r.min) is Var}
            if len(indices) < len(variables):
                reads_reduction = True
                rows |= indices
    if not reads_reduction or set(variables[: len(rows)]) != rows:
        return None
    return len(rows)


def reduced_run(block: Block, sizes: Mapping[Var, int]) -> tuple[list[Var], list[Var]]:
    """The reduced variables: those outside, and the last ones that every input has in one run."""
    order = reduced(block)
    inputs = inputs_of(block)
    run = order[-1:]
    for v in reversed(order[:-1]):
        steps = [(i.strides.get(v, 0), i.strides.get(run[0], 0)) for i in inputs]
        if any(a is None or b is None or a != b * sizes[run[0]] for a, b in steps):
            break
        run.insert(0, v)
    return order[: len(order) - len(run)], run


def is_product(block: Block) -> bool:
    """Whether a block is a reduction that reuses two of its inputs for several results."""
    sizes = extents(block)
    wide = {v for v in spatial(block) if sizes.get(v, 2) > 1}
    return has_reduction(block) and sum(1 for i in inputs_of(block) if wide - i.used) >= 2


def low_digits(block: Block) -> dict[Var, int]:
    """The variables that vectors along another one take whole, and their extents.

    Elements lie side by side for all of them together. They are the `last_digits` of numbers at
    which no input is read: of `Y[i, h * 2 + l] += X[i, h] * W[l]` it is `l`. If there are none, it
    is the variable of `few_columns`.
    """
    read = {key_of(e) for r in _read(block) for e in (x.min for x in r.ranges)}
    low = {v: n for v, (e, n) in _digits(block).items() if key_of(e) not in read}
    few = None if low else few_columns(block)
    return low if few is None else {few[1]: extents(block)[few[1]]}


def few_columns(block: Block) -> tuple[Var, Var] | None:
    """The rows and the columns of an output that has few columns, where vectors fit its rows.

    Of `Y[i, c] += X[k, c] - X[i, c]`, c < 3, they are `i` and `c`: all that the block reads is near
    along `i`. Vectors along `i` compute what does not depend on `c` once for all columns.
    """
    out = output_of(block)
    if out is None or not out.at.indices:
        return None
    last, sizes = out.at.indices[-1], extents(block)
    few = sizes.get(last, 0) if type(last) is Var and last in out.plain else 0
    if not 1 < few <= MAX_SHUFFLE_STRIDE or out.at.shape[-1] != few:
        return None
    along = next((v for v, step in out.strides.items() if step == few and v in out.plain), None)
    if along is None or sizes.get(along, 0) <= MAX_SHUFFLE_STRIDE:
        return None
    near = all(along not in i.used or is_near(i, along) for i in inputs_of(block))
    return (along, last) if near and type(last) is Var else None


def is_near(source: Input, var: Var) -> bool:
    """Whether an input is contiguous along a variable, in either direction, or shuffles pick its
    elements out of neighbouring vectors."""
    stride = source.strides.get(var)
    if stride is None or not source.at.shape:  # a single element lies along nothing
        return False
    return isinstance(source.at.shape[-1], int) and 1 <= abs(stride) <= MAX_SHUFFLE_STRIDE


def grouped(block: Block) -> dict[Var, int]:
    """The `last_digits` of numbers at which an input is read, and their extents.

    Of `Y[g * 8 + l] += X[g * 8 + k] * W[g * 8 + l, k]` it is `l`: a group is cut without remainder.
    """
    low = low_digits(block)
    return {v: n for v, n in last_digits(block).items() if v not in low}


def last_digits(block: Block) -> dict[Var, int]:
    """The last variables of output indices that are numbers of several digits, and their extents.

    Of `Y[i, h * 2 + l]` it is `l`.
    """
    return {v: n for v, (_, n) in _digits(block).items()}


def _digits(block: Block) -> dict[Var, tuple[Expr, int]]:
    """The last digits with their numbers and extents."""
    outputs = outputs_of(block)
    if not outputs:
        return {}
    sizes = extents(block)
    return {
        v: (e, sizes[v])
        for e in outputs[0].at.indices
        for v in spatial(block)
        if type(e) is not Var and sizes.get(v, 1) > 1 and _coefficient(e, v) == 1
    }


def reuse(block: Block, source: Input) -> int:
    """For how many results each element of an input is read."""
    sizes = extents(block)
    return math.prod(sizes[v] for v in spatial(block) if v not in source.used)


def runs_across(block: Block) -> tuple[Var, Var] | None:
    """The variable along the output's rows and that along an input's, where they differ."""
    out = output_of(block)
    if out is None:
        return None
    along = [v for v, s in out.strides.items() if s == 1 and v in out.plain]
    if not along:
        return None
    for i in inputs_of(block):
        if i.strides.get(along[0]) in (0, 1, None):
            continue
        other = [v for v, s in i.strides.items() if s == 1 and v in i.plain]
        if other and other[0] is not along[0]:
            return along[0], other[0]
    return None


def input_along(block: Block, across: tuple[Var, Var]) -> int:
    """The input that `runs_across`."""
    along, other = across
    return next(
        n
        for n, i in enumerate(inputs_of(block))
        if i.strides.get(along) not in (0, 1, None)
        and i.strides.get(other) == 1
        and other in i.plain
    )


def is_flat(block: Block) -> bool:
    """Whether all accesses of a block go through memory element by element in the same order."""
    outputs = outputs_of(block)
    return bool(outputs) and all(_same_order(i, block) for i in (*outputs, *inputs_of(block)))


def _same_order(access: Input, block: Block) -> bool:
    variables = [i.var for i in block.iters]
    sizes = extents(block)
    step = 1
    for v in reversed(variables):
        if access.plain.get(v) is None or access.strides[v] != step:
            return False
        step *= sizes[v]
    return access.buffer.strides is None and step == elements(access.buffer)


def consumers(func: Func, block: Block) -> list[Block]:
    """The other blocks that read what a block writes, in program order."""
    return dataflow(func).consumers(block)


def in_order(func: Func) -> list[Block]:
    """The blocks of a program."""
    return list(dataflow(func).blocks)
