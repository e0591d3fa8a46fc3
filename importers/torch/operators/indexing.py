"""Operators that read or write at places that data decide.

PyTorch counts negative indices from the end where it indexes as Python does (`x[i]`, `take`, `put`,
`index_fill`), and refuses them elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....base import dtypes
from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.compose.basics import cast_to, in_rank, part, reshaped, room, stacked, times
from ....graph.compose.movement import sliced, taken
from ....graph.compose.pointwise import floor_divided
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..bags import LARGEST, MEAN
from ..table import Number, Operand, as_value, aten, common


@aten("embedding")
def embedding(
    b: Builder, _out: TensorType, weight: Value, indices: Value, *_training: object
) -> Value:
    return taken(b, weight, indices, 0, negative=False)


@aten("_embedding_bag_forward_only")
def embedding_bag(
    b: Builder,
    out: TensorType,
    weight: Value,
    indices: Value,
    offsets: Value,
    _scale_gradients: bool = False,
    mode: int = 0,
    _sparse: bool = False,
    factors: Value | None = None,
    with_end: bool = False,
    padding: int = -1,
) -> Sequence[Value]:
    """Of each bag of indices the sum, mean or largest of their rows; a bag begins at each offset.

    The last offset may be where the last bag ends, which has to be the number of indices: PyTorch
    itself reads indices behind it for a mean or the largest. Rows of the index `padding` are left
    out. Other results are for gradients.
    """
    bags, count = out.shape[0], indices.type.size
    if not out.size:
        return (b.add("broadcast_to", b.constant(0, out.dtype), shape=out.shape),)
    end = b.constant([count])
    edges = cast_to(b, offsets, "int64")
    edges = edges if with_end else b.add("concatenate", edges, end, axis=0)
    bag = _bags(b, edges, count)
    rows = taken(b, weight, indices, 0, negative=False)
    if factors is not None:
        rows = b.add("multiply", rows, reshaped(b, factors, (count, 1)))
    absent = dtypes.extremes(out.dtype)[0] if mode == LARGEST else 0
    kept = b.add("logical_not", b.add("equal", indices, b.constant(padding, indices.dtype)))
    rows = b.add("where", reshaped(b, kept, (count, 1)), rows, b.constant(absent, out.dtype))

    def together(values: Value, reduction: str, start: float) -> Value:
        whole = (bags, *values.shape[1:])
        empty = b.add("broadcast_to", b.constant(start, values.dtype), shape=whole)
        return b.add("scatter_nd", empty, bag, values, reduction=reduction, negative=False)

    if mode not in (MEAN, LARGEST):
        return (together(rows, "add", 0),)
    sizes = reshaped(b, together(cast_to(b, kept, "int64"), "add", 0), (bags, 1))
    if mode == MEAN:
        some = b.add("maximum", sizes, b.constant(1, "int64"))
        return (b.add("divide", together(rows, "add", 0), cast_to(b, some, out.dtype)),)
    none = b.add("equal", sizes, b.constant(0, "int64"))
    return (b.add("where", none, b.constant(0, out.dtype), together(rows, "max", absent)),)


def _bags(b: Builder, edges: Value, count: int) -> Value:
    """The bag of each of so many indices, in tuples of one, of where bags begin and the last ends.

    The model demands that these are from 0 to the count, and do not decrease.
    """
    bags = edges.type.size - 1
    zero, end = b.constant([0]), b.constant([count])
    least = b.add("concatenate", zero, part(b, edges, 0, 0, bags - 1), end, axis=0)
    greatest = b.constant([0] + [count] * bags)
    outside = b.add("logical_or", b.add("less", edges, least), b.add("less", greatest, edges))
    b.demand(
        cast_to(b, outside, "int32"), by="embedding_bag",
        broken=f"offset {{place}} is out of order: offsets begin at 0, do not decrease, and end at "
        f"{count}, the number of indices",
    )  # fmt: skip
    starts = reshaped(b, part(b, edges, 0, 0, bags), (bags, 1))
    none = b.add("broadcast_to", b.constant(0, "int64"), shape=(count + 1,))
    one = b.add("broadcast_to", b.constant(1, "int64"), shape=(bags,))
    begun = b.add("scatter_nd", none, starts, one, reduction="add", negative=False)
    bag = part(b, b.add("accumulate", begun, axis=0), 0, 0, count)
    return reshaped(b, b.add("subtract", bag, b.constant(1, "int64")), (count, 1))


@aten("index_select")
def index_select(b: Builder, out: TensorType, x: Value, dim: int, index: Value) -> Value:
    own = x if x.type.rank else reshaped(b, x, (1,))
    found = taken(b, own, index, in_rank(dim, own.type.rank), negative=False)
    return reshaped(b, found, out.shape)


@aten("take")
def take(b: Builder, out: TensorType, x: Value, index: Value) -> Value:
    """At places of the flat elements."""
    if not index.type.size:
        return b.add("broadcast_to", b.constant(0, out.dtype), shape=out.shape)
    return taken(b, reshaped(b, x, (x.type.size,)), index, 0)


@aten("gather")
def gather(
    b: Builder, out: TensorType, x: Value, dim: int, index: Value, *, sparse_grad: bool = False
) -> Value:
    """A tensor without dimensions is a vector of one."""
    del sparse_grad
    own, at = (v if v.type.rank else reshaped(b, v, (1,)) for v in (x, index))
    if not at.type.size:
        return b.add("broadcast_to", b.constant(0, x.dtype), shape=out.shape)
    axis = in_rank(dim, own.type.rank)
    return reshaped(b, b.add("take_along", own, at, axis=axis, negative=False), out.shape)


@aten("index.Tensor")
def index(b: Builder, out: TensorType, x: Value, indices: Sequence[Value | None]) -> Value:
    """Elements at places of some dimensions, which are one block of the result.

    It stands in place of the first of them, or in front where others lie between them.
    """
    axes = [d for d, value in enumerate(indices) if value is not None]
    places = _places(indices)
    if not out.size:  # PyTorch then reads no index
        return b.add("broadcast_to", b.constant(0, out.dtype), shape=out.shape)
    if len(axes) == 1:
        return taken(b, x, places[0], axes[0])
    at = _together(b, places)
    rest = [d for d in range(x.type.rank) if d not in axes]
    found = b.add("take_nd", b.add("transpose", x, axes=(*axes, *rest)), at)
    block = at.type.rank - 1
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    order = [*range(block, block + first), *range(block), *range(block + first, found.type.rank)]
    return reshaped(b, b.add("transpose", found, axes=tuple(order)), out.shape)


def _places(indices: Sequence[Value | None]) -> list[Value]:
    places = [value for value in indices if value is not None]
    if any(value.dtype in ("bool", "uint8") for value in places):
        raise Unsupported(Reason.DATA_DEPENDENT, "a mask says which elements are taken")
    return places


def _together(b: Builder, places: Sequence[Value]) -> Value:
    """Indices that broadcast, as tuples in the last dimension."""
    shape = np.broadcast_shapes(*(value.shape for value in places))
    own = [b.add("broadcast_to", cast_to(b, value, "int64"), shape=shape) for value in places]
    return stacked(b, own, len(shape))


@aten("index_put")
def index_put(
    b: Builder,
    out: TensorType,
    x: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
) -> Value:
    first, *others = indices
    if first is not None and first.dtype == "bool" and not others:
        return _masked_put(b, x, first, cast_to(b, values, out.dtype), accumulate=accumulate)
    if all(value is None for value in indices):
        raise Unsupported(Reason.ATTRIBUTE, "no dimension is indexed")
    return _put_at(b, x, indices, cast_to(b, values, out.dtype), "add" if accumulate else "none")


def _put_at(
    b: Builder,
    x: Value,
    indices: Sequence[Value | None],
    updates: Value,
    reduction: str,
    *,
    negative: bool = True,
) -> Value:
    axes = [d for d, value in enumerate(indices) if value is not None]
    order = (*axes, *(d for d in range(x.type.rank) if d not in axes))
    own = b.add("transpose", x, axes=order)
    at = _together(b, _places(indices))
    if not at.type.size:
        return x
    if not x.type.size:
        if not all(x.shape[d] for d in axes):
            raise ModelError("indices of a dimension of no elements, found {0}", x.type)
        return x
    depth, block = at.shape[-1], at.type.rank - 1
    # Where values have the dimensions that are indexed, as `index` has them.
    begin = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    rest = own.shape[depth:]
    whole = (*rest[:begin], *at.shape[:-1], *rest[begin:])
    updates = b.add("broadcast_to", updates, shape=whole)
    end = begin + block
    front = (*range(begin, end), *range(begin), *range(end, len(whole)))
    updates = b.add("transpose", updates, axes=front)
    written = b.add("scatter_nd", own, at, updates, reduction=reduction, negative=negative)
    return b.add("transpose", written, axes=tuple(order.index(d) for d in range(x.type.rank)))


@aten("index_copy")
def index_copy(
    b: Builder, _out: TensorType, x: Value, dim: int, index: Value, source: Value
) -> Value:
    return _slices_put(b, x, dim, index, source, "none")


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(
    b: Builder, out: TensorType, x: Value, dim: int, index: Value, value: Operand
) -> Value:
    filling = as_value(b, value, out.dtype)
    return _slices_put(b, x, dim, index, filling, "none", negative=True)


@aten("index_add")
def index_add(
    b: Builder,
    out: TensorType,
    x: Value,
    dim: int,
    index: Value,
    source: Value,
    *,
    alpha: Number = 1,
) -> Value:
    if out.dtype == "bool":
        own, added = (cast_to(b, value, "uint8") for value in (x, source))
        written = _slices_put(b, own, dim, index, times(b, added, alpha), _OF_BOOL["add"])
        return cast_to(b, written, "bool")
    return _slices_put(b, x, dim, index, times(b, source, alpha), "add")


def _slices_put(
    b: Builder,
    x: Value,
    dim: int,
    index: Value,
    source: Value,
    reduction: str,
    *,
    negative: bool = False,
) -> Value:
    """Slices of the source, or one number, at an index each along a dimension of `x`."""
    count = index.type.size
    if not count or not x.type.size:
        return x
    rows = x if x.type.rank else reshaped(b, x, (1,))
    axis = in_rank(dim, rows.type.rank)
    whole = (*rows.shape[:axis], count, *rows.shape[axis + 1 :])
    updates = reshaped(b, source, () if source.type.size == 1 else whole)
    indices = [*(None for _ in range(axis)), reshaped(b, index, (count,))]
    written = _put_at(b, rows, indices, updates, reduction, negative=negative)
    return reshaped(b, written, x.shape)


_OF_BOOL = {"add": "max", "max": "max", "mul": "min", "min": "min"}
"""Reductions of 0 and 1 that are those of bool."""


def _masked_put(b: Builder, x: Value, mask: Value, values: Value, *, accumulate: bool) -> Value:
    """Write one value to all blocks of `x` where a mask is true, or to each the next one of as many
    as there are."""
    block = x.shape[mask.type.rank :]
    own = (*mask.shape, *(1,) * len(block))
    if values.type.rank > len(block) and values.shape[0] != 1:
        count = values.shape[0]
        if not count or not x.type.size:
            raise Unsupported(Reason.DATA_DEPENDENT, "a mask says whether nothing is written")
        flat = cast_to(b, reshaped(b, mask, (mask.type.size,)), "int64")
        known = b.add("equal", b.add("sum", flat, axes=(0,)), b.constant(count, "int64"))
        # Where there are more values, or fewer, no index is in range.
        beyond = b.add("where", known, b.constant(0, "int64"), b.constant(count, "int64"))
        places = b.add("add", _ordinals(b, flat), beyond)
        values = b.add("broadcast_to", values, shape=(count, *block))
        values = reshaped(b, b.add("take", values, places, axis=0), x.shape)
    elif values.type.rank > len(block):
        values = reshaped(b, values, values.shape[values.type.rank - len(block) :])
    together = "logical_or" if x.dtype == "bool" else "add"
    written = b.add(together, x, values) if accumulate else values
    return b.add("where", reshaped(b, mask, own), written, x)


def _ordinals(b: Builder, flat: Value) -> Value:
    """Of each 1 how many are before it, and 0 of each 0."""
    return b.add("multiply", b.add("accumulate", flat, axis=0, exclusive=True), flat)


def _scattered(
    b: Builder,
    out: TensorType,
    x: Value,
    dim: int,
    index: Value,
    source: Operand,
    reduction: str,
    *,
    include_self: bool = True,
    negative: bool = False,
) -> Value:
    """Without `include_self`, elements that are written count nothing of their own."""
    if not index.type.size:
        return x
    if not x.type.rank:
        own, at = reshaped(b, x, (1,)), reshaped(b, index, (1,))
        updates = reshaped(b, as_value(b, source, out.dtype), (1,))
        made = _scattered(
            b, own.type, own, dim, at, updates, reduction,
            include_self=include_self, negative=negative,
        )  # fmt: skip
        return reshaped(b, made, ())
    if x.dtype == "bool" and reduction in _OF_BOOL:
        own, given = cast_to(b, x, "uint8"), as_value(b, source, "bool")
        made = _scattered(
            b, own.type, own, dim, index, cast_to(b, given, "uint8"), _OF_BOOL[reduction],
            include_self=include_self, negative=negative,
        )  # fmt: skip
        return cast_to(b, made, "bool")
    axis = in_rank(dim, x.type.rank)
    updates = as_value(b, source, out.dtype)
    if updates.type.rank:
        updates = sliced(b, updates, (0,) * index.type.rank, index.shape)
    else:
        updates = b.add("broadcast_to", updates, shape=index.shape)

    def put(base: Value, values: Value, reduction: str) -> Value:
        return b.add(
            "scatter", base, index, values, axis=axis, reduction=reduction, negative=negative
        )

    def all_of(number: float) -> Value:
        return b.add("broadcast_to", b.constant(number, x.dtype), shape=index.shape)

    if reduction == "none":
        return put(x, updates, reduction)
    if not include_self:
        low, high = dtypes.extremes(x.dtype)
        unit = {"mul": 1, "max": low, "min": high}.get(reduction, 0)
        x = put(x, all_of(unit), "none")
    total = put(x, updates, "add" if reduction == "mean" else reduction)
    if reduction != "mean":
        return total
    zeros = b.add("broadcast_to", b.constant(0, x.dtype), shape=x.shape)
    counts = put(zeros, all_of(1), "add")
    if include_self:
        counts = b.add("add", counts, b.constant(1, x.dtype))
    else:
        counts = b.add("maximum", counts, b.constant(1, x.dtype))
    if dtypes.is_float(x.dtype):
        return b.add("divide", total, counts)
    return floor_divided(b, total, counts)


@aten("scatter.src", "scatter.value")
def scatter(
    b: Builder, out: TensorType, x: Value, dim: int, index: Value, source: Operand
) -> Value:
    return _scattered(b, out, x, dim, index, source, "none")


@aten("scatter_add")
def scatter_add(
    b: Builder, out: TensorType, x: Value, dim: int, index: Value, source: Value
) -> Value:
    return _scattered(b, out, x, dim, index, source, "add")


@aten("scatter.reduce", "scatter.value_reduce")
def scatter_with(
    b: Builder, out: TensorType, x: Value, dim: int, index: Value, source: Operand, *, reduce: str
) -> Value:
    own = {"add": "add", "multiply": "mul"}[reduce]
    return _scattered(b, out, x, dim, index, source, own)


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "mean"}


@aten("scatter_reduce.two")
def scatter_reduce(
    b: Builder,
    out: TensorType,
    x: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> Value:
    own = _REDUCTIONS[reduce]
    return _scattered(b, out, x, dim, index, source, own, include_self=include_self)


@aten("index_reduce")
def index_reduce(
    b: Builder,
    out: TensorType,
    x: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> Value:
    """As `scatter_reduce`, with one index for a whole slice."""
    if x.type.rank:
        axis = in_rank(dim, x.type.rank)
        shape = [index.type.size if d == axis else 1 for d in range(x.type.rank)]
        index = b.add("broadcast_to", reshaped(b, index, shape), shape=source.shape)
    return scatter_reduce(b, out, x, dim, index, source, reduce, include_self=include_self)


@aten("put")
def put(
    b: Builder, out: TensorType, x: Value, index: Value, source: Value, accumulate: bool = False
) -> Value:
    """At places of the flat elements."""
    if not index.type.size:
        return x
    flat, at, updates = (reshaped(b, v, (v.type.size,)) for v in (x, index, source))
    own = TensorType(out.dtype, flat.shape)
    reduction = "add" if accumulate else "none"
    made = _scattered(b, own, flat, 0, at, updates, reduction, negative=True)
    return reshaped(b, made, out.shape)


@aten("max_unpool2d", "max_unpool3d")
def max_unpool(
    b: Builder, out: TensorType, x: Value, indices: Value, size: Sequence[int], *_window: object
) -> Value:
    """Each element at its place in an image, which is 0 elsewhere."""
    if not x.type.size:
        return b.add("broadcast_to", b.constant(0, out.dtype), shape=out.shape)
    extent = math.prod(size)
    planes = out.size // extent
    zeros = b.add("broadcast_to", b.constant(0, out.dtype), shape=(planes, extent))
    flat = [reshaped(b, value, (planes, x.type.size // planes)) for value in (indices, x)]
    return reshaped(b, b.add("scatter", zeros, *flat, axis=1, negative=False), out.shape)


@aten("multilabel_margin_loss_forward")
def multilabel_margin(
    b: Builder, out: TensorType, x: Value, target: Value, reduction: int
) -> Sequence[Value]:
    """Of each row the margins of its labels, those before the first -1, over all other classes.

    PyTorch's own decomposition counts rows that have fewer labels than another wrongly.
    """
    margin, hit = _margins(b, x, target)
    classes = margin.shape[-1]
    loss = times(b, b.add("sum", margin, axes=(1, 2)), 1 / classes)
    if reduction:
        loss = b.add("mean" if reduction == 1 else "sum", loss, axes=(0,))
    labelled = cast_to(b, b.add("max", hit, axes=(1,)), x.dtype)
    return reshaped(b, loss, out.shape), reshaped(b, labelled, target.shape)


@aten("multilabel_margin_loss_backward")
def multilabel_margin_gradient(
    b: Builder,
    out: TensorType,
    gradient: Value,
    x: Value,
    target: Value,
    reduction: int,
    _labelled: Value,
) -> Value:
    """A margin above 0 grows with the other class, and shrinks with the label."""
    margin, hit = _margins(b, x, target)
    rows, _, classes = margin.shape
    grows = cast_to(b, b.add("less", b.constant(0, x.dtype), margin), x.dtype)
    times_grown = b.add("sum", grows, axes=(2,), keepdims=True)
    shrinks = b.add("multiply", cast_to(b, hit, x.dtype), times_grown)
    change = b.add("sum", b.add("subtract", grows, shrinks), axes=(1,))
    own = reshaped(b, gradient, (rows if gradient.type.size == rows else 1, 1))
    share = times(b, own, 1 / (classes * (rows if reduction == 1 else 1)))
    return reshaped(b, b.add("multiply", change, share), out.shape)


def _margins(b: Builder, x: Value, target: Value) -> tuple[Value, Value]:
    """Of each row, label and class: how much the class is above the label less 1, or 0; and 1 where
    the class is the label. All are 0 where there is no label any more."""
    classes = x.shape[-1] if x.type.rank else 1
    rows = x.type.size // classes
    room(rows, classes, classes)
    scores, labels = (reshaped(b, value, (rows, classes)) for value in (x, target))
    ended = cast_to(b, b.add("equal", labels, b.constant(-1, "int64")), "int64")
    before = b.add("equal", b.add("accumulate", ended, axis=1), b.constant(0, "int64"))
    label = b.add("where", before, labels, b.constant(0, "int64"))
    own = b.add("take_along", scores, label, axis=1, negative=False)
    own, label, counts = (reshaped(b, value, (rows, classes, 1)) for value in (own, label, before))
    hit = b.add("equal", label, b.constant(np.arange(classes), "int64"))
    hit = cast_to(b, b.add("logical_and", hit, counts), "uint8")
    others = b.add("equal", b.add("max", hit, axes=(1,), keepdims=True), b.constant(0, "uint8"))
    every = reshaped(b, scores, (rows, 1, classes))
    margin = b.add("add", b.add("subtract", b.constant(1, x.dtype), own), every)
    counted = b.add("logical_and", counts, others)
    return b.add("where", counted, b.add("relu", margin), b.constant(0, x.dtype)), hit


@aten("masked_scatter")
def masked_scatter(b: Builder, out: TensorType, x: Value, mask: Value, source: Value) -> Value:
    """Where the mask is true, the elements of `source` in their order."""
    if not out.size or not source.type.size:
        return b.add("broadcast_to", x, shape=out.shape)
    own = b.add("broadcast_to", mask, shape=out.shape)
    flat = cast_to(b, reshaped(b, own, (out.size,)), "int64")
    given = reshaped(b, source, (source.type.size,))
    taken_ = b.add("take", given, _ordinals(b, flat), axis=0)
    return b.add("where", own, reshaped(b, taken_, out.shape), x)


@aten("masked_scatter_backward")
def masked_scatter_gradient(
    b: Builder, out: TensorType, gradient: Value, mask: Value, _sizes: object
) -> Value:
    """That of the source: the elements where the mask is true, in their order, before zeros."""
    own = b.add("broadcast_to", mask, shape=gradient.shape)
    flat = cast_to(b, reshaped(b, own, (own.type.size,)), "int64")
    kept = b.add("where", own, gradient, b.constant(0, out.dtype))
    zeros = b.add("broadcast_to", b.constant(0, out.dtype), shape=(out.size,))
    if not out.size or not own.type.size:
        return reshaped(b, zeros, out.shape)
    updates = reshaped(b, kept, (own.type.size,))
    found = b.add("scatter", zeros, _ordinals(b, flat), updates, axis=0, reduction="add")
    return reshaped(b, found, out.shape)


@aten("searchsorted.Tensor", "searchsorted.Scalar")
def search(
    b: Builder,
    out: TensorType,
    sequence: Value,
    values: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """How many elements of each row are less than a value, or not above it if `right`."""
    del out_int32
    if not out.size or not sequence.shape[-1]:
        return b.add("broadcast_to", b.constant(0, out.dtype), shape=out.shape)
    if sorter is not None:
        axis = sequence.type.rank - 1
        sequence = b.add("take_along", sequence, sorter, axis=axis, negative=False)
    dtype = common(sequence, values)
    rows, wanted = as_value(b, sequence, dtype), as_value(b, values, dtype)
    wanted = reshaped(b, wanted, (*wanted.shape, 1))
    if rows.type.rank > 1:
        rows = reshaped(b, rows, (*rows.shape[:-1], 1, rows.shape[-1]))
    room(out.size, rows.shape[-1])
    if right or side == "right":
        before = b.add("less_equal", rows, wanted)
    else:
        before = b.add("less", rows, wanted)
    if dtypes.is_float(dtype):  # NaN comes behind all numbers
        last = b.add("is_nan", wanted)
        numbers = b.add("logical_not", b.add("is_nan", rows))
        also = numbers if not (right or side == "right") else b.constant(True)
        before = b.add("logical_or", before, b.add("logical_and", last, also))
    count = b.add("sum", cast_to(b, before, "int64"), axes=(before.type.rank - 1,))
    return cast_to(b, reshaped(b, count, out.shape), out.dtype)


@aten("histc")
def histogram(
    b: Builder, out: TensorType, x: Value, bins: int = 100, min: Number = 0, max: Number = 0
) -> Value:
    """How many elements are in each of the ranges that `min` to `max` is divided into."""
    if not min < max:
        raise Unsupported(Reason.ATTRIBUTE, "a range that is that of the elements")
    room(x.type.size, bins)
    low, high, count = (b.constant(n, x.dtype) for n in (min, max, bins))
    flat = reshaped(b, x, (x.type.size, 1))
    inside = b.add("logical_and", b.add("less_equal", low, flat), b.add("less_equal", flat, high))
    steps = b.add("multiply", b.add("subtract", flat, low), count)
    place = b.add("divide", steps, b.add("subtract", high, low))
    found = b.add("minimum", b.add("floor", place), b.constant(bins - 1, x.dtype))
    own = b.add("equal", found, b.constant(np.arange(bins), x.dtype))
    return b.add("sum", cast_to(b, b.add("logical_and", own, inside), out.dtype), axes=(0,))


@aten("bucketize.Tensor", "bucketize.Scalar")
def bucketize(
    b: Builder,
    out: TensorType,
    values: Operand,
    boundaries: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
) -> Value:
    return search(b, out, boundaries, values, out_int32=out_int32, right=right)
