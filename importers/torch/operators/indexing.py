"""Operators that read or write at places that data decide."""

from __future__ import annotations

from collections.abc import Sequence

from ....graph.builder import Builder
from ....graph.compose.basics import cast_to, in_rank, reshaped, stacked
from ....graph.compose.movement import sliced, taken
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import Number, as_value, aten


@aten("embedding")
def embedding(
    b: Builder, _out: TensorType, weight: Value, indices: Value, *_training: object
) -> Value:
    return taken(b, weight, indices, 0)


@aten("index_select")
def index_select(b: Builder, out: TensorType, x: Value, dim: int, index: Value) -> Value:
    axis = in_rank(dim, x.type.rank)
    return reshaped(b, taken(b, x, index, axis), out.shape)


@aten("gather")
def gather(
    b: Builder, _out: TensorType, x: Value, dim: int, index: Value, *, sparse_grad: bool = False
) -> Value:
    del sparse_grad
    return b.add("take_along", x, index, axis=in_rank(dim, x.type.rank))


@aten("index.Tensor")
def index(b: Builder, out: TensorType, x: Value, indices: Sequence[Value | None]) -> Value:
    """Elements at places of some dimensions, which are one block of the result.

    It stands in place of the first of them, or in front where others lie between them.
    """
    axes = [d for d, value in enumerate(indices) if value is not None]
    places = _places(indices)
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
    import numpy as np

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
        if values.type.size != 1 or accumulate:
            raise Unsupported(Reason.DATA_DEPENDENT, "a mask says which elements are written")
        where = reshaped(b, first, (*first.shape, *(1,) * (x.type.rank - first.type.rank)))
        return b.add("where", where, reshaped(b, cast_to(b, values, out.dtype), ()), x)
    if None in indices:
        raise Unsupported(Reason.ATTRIBUTE, "dimensions that are not indexed, before others")
    at = _together(b, _places(indices))
    depth = at.shape[-1]
    updates = cast_to(b, values, out.dtype)
    updates = b.add("broadcast_to", updates, shape=(*at.shape[:-1], *x.shape[depth:]))
    return b.add("scatter_nd", x, at, updates, reduction="add" if accumulate else "none")


def _scattered(
    b: Builder, out: TensorType, x: Value, dim: int, index: Value, source: Value, reduction: str
) -> Value:
    if not index.type.size:
        return x
    if not x.type.rank:
        raise Unsupported(Reason.ATTRIBUTE, "a tensor without dimensions")
    if x.dtype == "bool" and reduction != "none":
        raise Unsupported(Reason.DTYPE, f"{reduction} of bool")
    axis = in_rank(dim, x.type.rank)
    updates = cast_to(b, source, out.dtype)
    updates = sliced(b, updates, (0,) * index.type.rank, index.shape)
    return b.add("scatter", x, index, updates, axis=axis, reduction=reduction)


@aten("scatter.src")
def scatter(b: Builder, out: TensorType, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _scattered(b, out, x, dim, index, source, "none")


@aten("scatter.value")
def scatter_number(
    b: Builder, out: TensorType, x: Value, dim: int, index: Value, value: Number
) -> Value:
    source = b.add("broadcast_to", as_value(b, value, out.dtype), shape=index.shape)
    return _scattered(b, out, x, dim, index, source, "none")


@aten("scatter_add")
def scatter_add(
    b: Builder, out: TensorType, x: Value, dim: int, index: Value, source: Value
) -> Value:
    return _scattered(b, out, x, dim, index, source, "add")


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


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
    if reduce not in _REDUCTIONS or not include_self:
        raise Unsupported(Reason.ATTRIBUTE, f"reduce={reduce!r}, include_self={include_self}")
    return _scattered(b, out, x, dim, index, source, _REDUCTIONS[reduce])
