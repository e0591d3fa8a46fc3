"""Operations that read or write at places that data decide.

Dimensions that are indexed are made one, in which a place is one number: to read is then `take`, to
write `scatter_nd`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from ....graph.builder import Builder
from ....graph.compose.basics import cast_to, part, reshaped
from ....graph.ir import Constant, Value
from ...rolling import StepBuilder
from ...unsupported import Reason, Unsupported
from ..table import Op, hlo


def _starts(b: Builder, indices: Value, axis: int) -> list[Value]:
    """The components of indices, which lie along an axis, or are single ones behind the last."""
    if axis == indices.type.rank:
        return [cast_to(b, indices, "int64")]
    rest = indices.shape[:axis] + indices.shape[axis + 1 :]
    whole = cast_to(b, indices, "int64")
    return [reshaped(b, part(b, whole, axis, k, 1), rest) for k in range(indices.shape[axis])]


def _clipped(b: Builder, value: Value, low: int, high: int) -> Value:
    return b.add("clip", value, low=low, high=high)


def _place(
    b: Builder,
    starts: Sequence[Value | None],
    extents: Sequence[int],
    windows: Sequence[int | None],
    shape: Sequence[int],
) -> Value:
    """Places in the dimensions that were made one, of `shape` and then the windows.

    Each dimension is indexed from its start on, which has `shape`, or is 0 for `None`; a window of
    `None` is one element, and no dimension.
    """
    lead = len(shape)
    sizes = [size for size in windows if size is not None]
    total: Value = b.constant(np.zeros((1,) * (lead + len(sizes))), "int64")
    for d, (start, window) in enumerate(zip(starts, windows, strict=True)):
        step = b.constant(math.prod(extents[d + 1 :]), "int64")
        if start is not None:
            own = reshaped(b, start, (*start.shape, *(1,) * len(sizes)))
            total = b.add("add", total, b.add("multiply", own, step))
        if window is not None:
            at = lead + sum(size is not None for size in windows[:d])
            within = [1] * total.type.rank
            within[at] = window
            own = b.constant(np.arange(window).reshape(within), "int64")
            total = b.add("add", total, b.add("multiply", own, step))
    return b.add("broadcast_to", total, shape=(*shape, *sizes))


def _counted(b: Builder, axis: int, shape: Sequence[int]) -> Value:
    """The places along an axis, as a tensor of `shape`."""
    within = [e if d == axis else 1 for d, e in enumerate(shape)]
    return b.add(
        "broadcast_to", b.constant(np.arange(shape[axis]).reshape(within), "int64"), shape=shape
    )


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(e for d, e in enumerate(shape) if d != axis)


def _moved(b: Builder, x: Value, given: Sequence[Any], wanted: Sequence[Any]) -> Value:
    """`x`, whose dimensions are labelled, with them in another order."""
    order = [list(given).index(label) for label in wanted]
    return x if order == list(range(len(order))) else b.add("transpose", x, axes=tuple(order))


@hlo("gather")
def gather(b: Builder, op: Op) -> Value:
    """Slices of a size; their starts are moved so that they are within the operand."""
    from jax.extend.mlir.dialects.stablehlo import GatherDimensionNumbers

    dims = GatherDimensionNumbers(op.raw.attributes["dimension_numbers"])
    x, indices = op.operands
    sizes = op.integers("slice_sizes")
    starts = _starts(b, indices, dims.index_vector_dim)
    shape = _without(indices.shape, dims.index_vector_dim)
    batched, collapsed = set(dims.operand_batching_dims), set(dims.collapsed_slice_dims)
    origin = dict[int, Value]()
    for d, start in zip(dims.start_index_map, starts, strict=True):
        if sizes[d] < x.shape[d]:
            origin[d] = _clipped(b, start, 0, x.shape[d] - sizes[d])
    for d, along in zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True):
        origin[d] = _counted(b, along - (along > dims.index_vector_dim), shape)
    indexed = sorted({*origin, *batched, *collapsed})
    rest = [d for d in range(x.type.rank) if d not in indexed]
    for d in rest:
        x = part(b, x, d, 0, sizes[d]) if sizes[d] < x.shape[d] else x
    windows = [None if d in batched or d in collapsed else sizes[d] for d in indexed]
    extents = [x.shape[d] for d in indexed]
    kept = [d for d, size in zip(indexed, windows, strict=True) if size is not None]
    found = x
    labels: list[Any] = list(rest)
    if indexed or shape:
        place = _place(b, [origin.get(d) for d in indexed], extents, windows, shape)
        first = [d for d in rest if indexed and d < indexed[0]]
        if indexed and indexed != list(range(indexed[0], indexed[0] + len(indexed))):
            first = []
        last = [d for d in rest if d not in first]
        whole = _moved(b, x, range(x.type.rank), [*first, *indexed, *last])
        count = math.prod(extents)
        before, after = ([x.shape[d] for d in side] for side in (first, last))
        whole = reshaped(b, whole, (*before, count, *after))
        found = b.add("take", whole, _clipped(b, place, 0, count - 1), axis=len(first))
        labels = [*first, *((k,) for k in range(len(shape))), *kept, *last]
    inside = iter(sorted({*rest, *kept}))
    batch = iter([(k,) for k in range(len(shape))])
    offsets = set(dims.offset_dims)
    wanted = [next(inside) if d in offsets else next(batch) for d in range(op.type.rank)]
    return _moved(b, found, labels, wanted)


_REDUCTIONS = {
    "b": "none",
    "add(a, b)": "add",
    "multiply(a, b)": "mul",
    "maximum(a, b)": "max",
    "minimum(a, b)": "min",
}


@hlo("scatter")
def scatter(b: Builder, op: Op) -> Value:
    """Windows of the updates; those that are not within the operand are left out."""
    from jax.extend.mlir.dialects.stablehlo import ScatterDimensionNumbers

    dims = ScatterDimensionNumbers(op.raw.attributes["scatter_dimension_numbers"])
    if len(op.operands) != 3:
        raise Unsupported(Reason.ATTRIBUTE, f"{len(op.results)} operands of one scatter")
    x, indices, updates = op.operands
    (formula,) = op.formulas()
    reduction = _REDUCTIONS.get(_sorted(formula))
    if reduction is None or (x.dtype == "bool" and reduction != "none"):
        raise Unsupported(Reason.ATTRIBUTE, f"the body {formula} of {x.dtype}")
    if not updates.type.size:
        return x
    batched, inserted = set(dims.input_batching_dims), set(dims.inserted_window_dims)
    starts = _starts(b, indices, dims.index_vector_dim)
    shape = _without(indices.shape, dims.index_vector_dim)
    inside = [d for d in range(x.type.rank) if d not in batched and d not in inserted]
    sizes = [1] * x.type.rank
    for d, own in zip(inside, dims.update_window_dims, strict=True):
        sizes[d] = updates.shape[own]
    origin = dict(zip(dims.scattered_dims_to_operand_dims, starts, strict=True))
    valid = list[Value]()
    for d, start in origin.items():
        last = x.shape[d] - sizes[d]
        valid += _outside(b, start, last)
        origin[d] = _clipped(b, start, 0, last)
    for d, along in zip(dims.input_batching_dims, dims.scatter_indices_batching_dims, strict=True):
        origin[d] = _counted(b, along - (along > dims.index_vector_dim), shape)
    indexed = sorted({*origin, *inserted, *(d for d in inside if sizes[d] < x.shape[d])})
    windows = [sizes[d] if d in inside else None for d in indexed]
    place = _place(
        b, [origin.get(d) for d in indexed], [x.shape[d] for d in indexed], windows, shape
    )
    labels: list[Any] = [None] * updates.type.rank
    for d, own in zip(inside, dims.update_window_dims, strict=True):
        labels[own] = d
    batch = iter(range(len(shape)))
    labels = [(next(batch),) if label is None else label for label in labels]
    kept = [d for d in indexed if d in inside]
    rest = [d for d in range(x.type.rank) if d not in indexed]
    order = [*((k,) for k in range(len(shape))), *kept, *rest]
    given = _moved(b, updates, labels, order)
    out = None
    if valid:
        out = reduce(partial(b.add, "logical_or"), valid)
        out = reshaped(b, out, (*out.shape, *(1,) * len(kept)))
        out = b.add("broadcast_to", out, shape=place.shape)
    return _written(b, x, indexed, place, given, reduction, out)


def _sorted(formula: str) -> str:
    return formula.replace("(b, a)", "(a, b)")


def _outside(b: Builder, start: Value, last: int) -> list[Value]:
    """Conditions that a start is not from 0 to the last one; none if it is known."""
    if isinstance(start, Constant) and (start.data >= 0).all() and (start.data <= last).all():
        return []
    zero, most = b.constant(0, start.dtype), b.constant(last, start.dtype)
    return [b.add("less", start, zero), b.add("less", most, start)]


def _written(
    b: Builder,
    x: Value,
    indexed: Sequence[int],
    place: Value,
    updates: Value,
    reduction: str,
    out: Value | None = None,
) -> Value:
    """`x` with updates (*places, *rest) at places in the dimensions that are indexed.

    Those that are `out` are left out: they add 0, or are written behind the last place.
    """
    rest = [d for d in range(x.type.rank) if d not in indexed]
    order = [*indexed, *rest]
    count = math.prod(x.shape[d] for d in indexed)
    row = math.prod(x.shape[d] for d in rest)
    table = reshaped(b, _moved(b, x, range(x.type.rank), order), (count, row))
    rows = reshaped(b, updates, (place.type.size, row))
    at = reshaped(b, _clipped(b, place, 0, count - 1), (place.type.size, 1))
    if out is not None and reduction == "add":
        none = reshaped(b, out, (place.type.size, 1))
        rows = b.add("where", none, b.constant(0, x.dtype), rows)
    elif out is not None:
        none = reshaped(b, out, (place.type.size, 1))
        at = b.add("where", none, b.constant(count, "int64"), at)
        at = _clipped(b, at, 0, count)
        table = b.add("pad", table, before=(0, 0), after=(1, 0))
    table = b.add("scatter_nd", table, at, rows, reduction=reduction)
    if table.shape[0] > count:
        table = part(b, table, 0, 0, count)
    whole = reshaped(b, table, [x.shape[d] for d in order])
    return _moved(b, whole, order, range(x.type.rank))


@hlo("dynamic_slice")
def dynamic_slice(b: Builder, op: Op) -> Value:
    """A part of a size; its start is moved so that it is within the operand."""
    x, *starts = op.operands
    if isinstance(b, StepBuilder) and (row := b.row(x, starts, op.type.shape)) is not None:
        return row
    for d, (start, size) in enumerate(zip(starts, op.type.shape, strict=True)):
        last = x.shape[d] - size
        if not last:
            continue
        if isinstance(start, Constant):
            x = _part(b, x, d, min(max(int(start.data), 0), last), size)
            continue
        first = _clipped(b, cast_to(b, start, "int64"), 0, last)
        places = b.add("add", b.constant(np.arange(size), "int64"), first)
        x = b.add("take", x, _clipped(b, places, 0, x.shape[d] - 1), axis=d)
    return x


@hlo("dynamic_update_slice")
def dynamic_update_slice(b: Builder, op: Op) -> Value:
    """Another part; its start is moved so that it is within the operand."""
    x, own, *given = op.operands
    if not own.type.size:
        return x
    changed = [d for d in range(x.type.rank) if own.shape[d] < x.shape[d]]
    if not changed:
        return own
    if isinstance(b, StepBuilder) and (after := b.update(x, own, given)) is not None:
        return after
    starts = [cast_to(b, given[d], "int64") for d in changed]
    lasts = [x.shape[d] - own.shape[d] for d in changed]
    starts = [_clipped(b, start, 0, last) for start, last in zip(starts, lasts, strict=True)]
    (first, *others) = starts
    if isinstance(first, Constant) and not others:
        return _replaced(b, x, own, changed[0], int(first.data))
    extents, windows = ([v.shape[d] for d in changed] for v in (x, own))
    place = _place(b, starts, extents, windows, ())
    order = [*changed, *(d for d in range(x.type.rank) if d not in changed)]
    return _written(b, x, changed, place, _moved(b, own, range(x.type.rank), order), "none")


def _pieces(b: Builder, x: Value, axis: int) -> list[Value]:
    """The values that lie one after the other along an axis."""
    node = b.producer(x, "concatenate")
    return list(node.inputs) if node is not None and node.attributes["axis"] == axis else [x]


def _part(b: Builder, x: Value, axis: int, start: int, count: int) -> Value:
    """Elements along an axis; of pieces only those are read that have them."""
    found = list[Value]()
    first = 0
    for piece in _pieces(b, x, axis):
        low, high = max(start - first, 0), min(start + count - first, piece.shape[axis])
        if low < high:
            whole = high - low == piece.shape[axis]
            found.append(piece if whole else part(b, piece, axis, low, high - low))
        first += piece.shape[axis]
    return found[0] if len(found) == 1 else b.add("concatenate", *found, axis=axis)


def _replaced(b: Builder, x: Value, own: Value, axis: int, start: int) -> Value:
    """`x` with other elements from a place on: what loops fill step by step is joined once."""
    end = start + own.shape[axis]
    found = list[Value]()
    if start:
        found += _pieces(b, _part(b, x, axis, 0, start), axis)
    found.append(own)
    if end < x.shape[axis]:
        found += _pieces(b, _part(b, x, axis, end, x.shape[axis] - end), axis)
    return b.add("concatenate", *found, axis=axis)
