"""Contractions as products of matrices: four groups of iteration variables, numbered together.

    for n, o, y, x, c, i, j: Y[n, o, y, x] += X[n, c, y + i, x + j] * W[o, c, i, j]

      ->  for b, r, s, k: Y[b, r, s] += X_shared[b, k, s] * W_shared[k, r]

`rows` are the variables of one input, `columns` those of the other one, along which the result is
contiguous. The reduction has `steps`, in the order of the input that is contiguous along them. What
both inputs or none have, and what does not lie next to the others in the result, is a `batch`. The
windows of a convolution are read by the copies.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ....schedule import Schedule
from ....schedule.block_queries import buffers_in_order, free_vars
from ....schedule.find import find_block
from ....schedule.index_map import IndexMap
from ....schedule.reduction_blocks import match_reduction
from ....schedule.require import require_some
from ....tir.digits import two_digits
from ....tir.ir import Block, Expr, Label, Var, as_expr, integers
from ..access_patterns import Input, extents, inputs_of, output_of, outputs_of, reduced, spatial
from ..common import result_or_none
from ..draft import Draft
from .by_thread import follow_results


@dataclass(frozen=True)
class MatmulForm:
    """The variables of a contraction by group, each in the order in which they are numbered.

    `row_input` is the number of the input that has the rows.
    """

    batch: tuple[Var, ...]
    rows: tuple[Var, ...]
    columns: tuple[Var, ...]
    steps: tuple[Var, ...]
    row_input: int


@dataclass(frozen=True)
class Operand:
    """The `number`-th input of a product: the block that copies it, and how it lies in memory.

    It is contiguous `along_steps`, else along rows or columns, and aligned for `lanes` elements.
    `moved` are the registers that a thread takes for an element that it copies.
    """

    number: int
    dtype: str
    copy: Label
    views: tuple[Label, ...]
    along_steps: bool
    lanes: int
    moved: int


@dataclass(frozen=True)
class Matmul:
    """A contraction in this form: `main` computes, and `write` copies the result.

    `operands` are those of rows and of columns, `sizes` the extents (batch, rows, columns, steps).
    `contiguous` says whether the result is along columns.
    """

    main: Label
    write: Label
    operands: tuple[Operand, Operand]
    sizes: tuple[int, int, int, int]
    contiguous: bool


def matmul_form(block: Block, follow: Block | None = None) -> MatmulForm | None:
    """The form of a contraction that `follow` reads; `None` where it is no product of two inputs.

    The result is what `follow` writes, if there is one.
    """
    inputs, out = inputs_of(block), output_of(block)
    if len(inputs) != 2 or out is None or match_reduction(block, "sum") is None:
        return None
    sizes = extents(block)
    stored = _stored_strides(block, follow, sizes)
    order = sorted(spatial(block), key=lambda v: -stored.get(v, 0))
    several = [v for v in order if sizes[v] > 1]
    if any(v not in stored for v in several):
        return None
    groups: list[list[Var]] = []
    for operand, other in (inputs, inputs[::-1]):
        mine = [v for v in several if v in operand.used and v not in other.used]
        groups.append(_last_run(mine, stored, sizes))
    if not all(groups):
        return None
    columns = min((0, 1), key=lambda n: stored[groups[n][-1]])
    tiled = {*groups[0], *groups[1]}
    return MatmulForm(
        tuple(v for v in order if sizes[v] > 1 and v not in tiled),
        tuple(groups[1 - columns]),
        tuple(groups[columns]),
        _steps(block, groups, columns, sizes),
        1 - columns,
    )


def _steps(
    block: Block, tiles: Sequence[Sequence[Var]], columns: int, sizes: dict[Var, int]
) -> tuple[Var, ...]:
    """The variables of the reduction, in the order of the input that is contiguous along them.

    Threads next to each other then copy elements next to each other. Where no input is, places of
    a window come first: all steps that are taken at once are at one place of it.
    """
    inputs, steps = inputs_of(block), reduced(block)
    for source, tile in zip(inputs, tiles, strict=True):
        along = source.strides.get(tile[-1]) != 1 and any(
            source.strides.get(v) == 1 and sizes[v] > 1 for v in steps
        )
        if along and all(source.strides.get(v) for v in steps):
            return tuple(sorted(steps, key=lambda v: -(source.strides[v] or 0)))
    window = {v for i in inputs for e in i.at.indices if type(e) is not Var for v in free_vars(e)}
    strides = inputs[columns].strides
    return tuple(sorted(steps, key=lambda v: (v not in window, -(strides.get(v) or 0))))


def as_matmul(draft: Draft, labels: Sequence[Label], most_lanes: int) -> Matmul:
    """Bring a contraction to that form.

    What follows it is computed where the result is copied, if it can be, else in a launch of its
    own. Raises `ScheduleError` where it has none.
    """
    sch = draft.schedule
    main, *following = (sch.get_block(label) for label in labels)
    views = [_computed_ahead(sch, main, n) for n in range(2)]
    block = draft.block(main)
    follow = draft.block(following[0]) if following else None
    form_or_none = matmul_form(block, follow)
    form = require_some(form_or_none, "block {0} is no product of two matrices", main)
    sizes, inputs = extents(block), inputs_of(block)
    stored = _stored_strides(block, follow, sizes)
    tiles = form.rows, form.columns
    layouts = [
        _layout(inputs[n], tile, form, sizes, most_lanes)
        for n, tile in zip((form.row_input, 1 - form.row_input), tiles, strict=True)
    ]
    write = sch.cache_write(main, 0, "local")
    for label in following:
        follow_results(draft, label)
    groups = [*((v,) for v in form.batch), *tiles, form.steps]
    numbers = tuple(_number(g, [sizes[v] for v in g]) for g in groups)
    _number_results(sch, main, write, groups[:-1], sizes)
    sch.transform_block_layout(main, IndexMap(tuple(i.var for i in block.iters), numbers))
    iters = tuple(i.var for i in draft.block(main).iters)
    *batch, row, column, step = iters
    operands = []
    for n, tile, (along_steps, lanes) in zip(
        (form.row_input, 1 - form.row_input), (row, column), layouts, strict=True
    ):
        used = inputs_of(draft.block(main))[n].used
        place = (*(v for v in batch if v in used), step, tile)
        copy = sch.reindex_cache_read(main, n, "shared", IndexMap(iters, place))
        dtype = inputs[n].buffer.dtype
        window = any(type(e) is not Var for e in inputs[n].at.indices)
        moved = 1 if lanes > 1 else 4 if window else 2
        operands.append(Operand(n, dtype, copy, views[n], along_steps, lanes, moved))
    extent = extents(draft.block(main))
    batches = math.prod(extent[v] for v in batch)
    return Matmul(
        main,
        write,
        (operands[0], operands[1]),
        (batches, extent[row], extent[column], extent[step]),
        stored[form.columns[-1]] == 1,
    )


def _number_results(
    sch: Schedule, main: Label, write: Label, groups: Sequence[Sequence[Var]], sizes: dict[Var, int]
) -> None:
    """Let what holds the results have a dimension for each group, and its copy a variable."""
    out, copy = outputs_of(find_block(sch.func, main))[0], find_block(sch.func, write)

    def numbers(at: Sequence[Expr]) -> tuple[Expr, ...]:
        digits = _digits(out, at, sizes)
        return tuple(_number([digits[v] for v in g], [sizes[v] for v in g]) for g in groups)

    read = next(r for r in copy.reads if r.buffer is out.buffer)
    iterations = numbers([r.min for r in read.ranges])
    dimensions = tuple(Var(f"d{n}") for n in range(len(read.ranges)))
    sch.transform_layout(main, ("write", 0), IndexMap(dimensions, numbers(dimensions)))
    variables = tuple(i.var for i in copy.iters)
    sch.transform_block_layout(write, IndexMap(variables, iterations))


def _digits(out: Input, at: Sequence[Expr], sizes: dict[Var, int]) -> dict[Var, Expr]:
    """What the variables that index a result are at an element of it."""
    digits: dict[Var, Expr] = {}
    shape = integers(out.buffer.shape)
    for index, dims in zip(out.at.indices, out.at.dims, strict=True):
        value = _number([at[d] for d in dims], [shape[d] for d in dims])
        high, low = two_digits(index, sizes) or (None, None)
        if type(index) is Var:
            digits[index] = value
        elif high is not None and low is not None:
            digits |= {high: value // sizes[low], low: value % sizes[low]}
    return digits


def writer_of(sch: Schedule, main: Label, index: int, among: Collection[Label]) -> Label:
    """The block that writes an input of `main`."""
    source = inputs_of(find_block(sch.func, main))[index].buffer
    return next(
        label for label in among if source in buffers_in_order(find_block(sch.func, label).writes)
    )


def _computed_ahead(sch: Schedule, main: Label, index: int) -> tuple[Label, ...]:
    """The block that computes what a contraction computes of an input alone, if it does."""
    label = result_or_none(sch.compute_ahead, main, index)
    return () if label is None else (label,)


def _stored_strides(block: Block, follow: Block | None, sizes: dict[Var, int]) -> dict[Var, int]:
    """The steps by which the variables of a contraction move in the result."""
    (out,) = outputs_of(block)
    shape = integers(out.buffer.shape)
    steps: list[int | None] = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    if follow is not None and (last := output_of(follow)) is not None:
        read = next(r for r in follow.reads if r.buffer is out.buffer)
        at = [r.min for r in read.ranges]
        # What reads other elements than it writes is not computed with them.
        if all(type(e) is Var or n == 1 for e, n in zip(at, shape, strict=True)):
            steps = [last.strides.get(e) if type(e) is Var else None for e in at]
    strides: dict[Var, int] = {}
    for index, dims in zip(out.at.indices, out.at.dims, strict=True):
        step, size = steps[dims[-1]], shape[dims[-1]]
        joined = all(steps[a] == (steps[b] or 0) * shape[b] for a, b in pairwise(dims))
        high, low = two_digits(index, sizes) or (None, None)
        if step is None or step <= 0 or not joined:
            continue
        if type(index) is Var:
            strides[index] = step
        elif high is not None and low is not None and size == sizes[high] * sizes[low]:
            strides |= {high: step * sizes[low], low: step}
    return strides


def _last_run(order: Sequence[Var], stored: dict[Var, int], sizes: dict[Var, int]) -> list[Var]:
    """The last variables that the result has next to each other."""
    run = list(order[-1:])
    for v in reversed(order[:-1]):
        if stored[v] != stored[run[0]] * sizes[run[0]]:
            break
        run.insert(0, v)
    return run


def _number(digits: Sequence[Expr], sizes: Sequence[int]) -> Expr:
    """The number that digits of these sizes make."""
    number: Expr = as_expr(0)
    for n, (digit, size) in enumerate(zip(digits, sizes, strict=True)):
        number = digit if n == 0 else number * size + digit
    return number


def _layout(
    source: Input, tile: Sequence[Var], form: MatmulForm, sizes: dict[Var, int], most: int
) -> tuple[bool, int]:
    """Whether an input is contiguous along steps, and the elements that are aligned there."""
    for group in (tile, form.steps):
        inner = next((v for v in reversed(group) if sizes[v] > 1), None)
        if inner is None or source.strides.get(inner) != 1:
            continue
        run = _contiguous_run(source, group, sizes)
        others = [source.strides[v] for v in source.used if v not in run and sizes[v] > 1]
        length = math.prod(sizes[v] for v in run)
        lanes = most
        while lanes > 1 and any(n is None or n % lanes for n in (*others, length)):
            lanes //= 2
        return group is form.steps, lanes
    near = [v for v in form.steps if source.strides.get(v) == 1]
    return bool(near), 1


def _contiguous_run(source: Input, group: Sequence[Var], sizes: dict[Var, int]) -> set[Var]:
    """The last variables of a group, numbered together, along which an input is contiguous."""
    run, length = set[Var](), 1
    for v in reversed(group):
        if sizes[v] > 1 and (v not in source.plain or source.strides.get(v) != length):
            break
        run.add(v)
        length *= sizes[v]
    return run
