"""Operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.compose import movement
from ....graph.compose.basics import cast_to, in_rank, part, parts, reshaped, room, row
from ....graph.compose.bits import bitcast
from ....graph.ir import TensorType, Value
from ....graph.operator import Array
from ...unsupported import Reason, Unsupported
from ..table import Number, aten


@aten(
    "view",
    "view_copy",
    "_unsafe_view",
    "unsqueeze",
    "squeeze",
    "squeeze.dim",
    "squeeze.dims",
    "unflatten.int",
)
def reshape(b: Builder, out: TensorType, x: Value, *_where: object) -> Value:
    return b.add("reshape", x, shape=out.shape)


@aten("view.dtype")
def bits_of(b: Builder, out: TensorType, x: Value, _dtype: object) -> Value:
    """Of another width, the last dimension has more or fewer elements."""
    if "bool" in (x.dtype, out.dtype):
        raise Unsupported(Reason.DTYPE, "bits of bool")
    parts_of_one = dtypes.nbytes(out.dtype) // dtypes.nbytes(x.dtype)
    if parts_of_one > 1:
        x = reshaped(b, x, (*out.shape, parts_of_one))
    return reshaped(b, bitcast(b, x, out.dtype), out.shape)


@aten(
    "clone",
    "alias",
    "detach",
    "lift",
    "lift_fresh",
    "lift_fresh_copy",
    "contiguous",
    "conj_physical",
    "resolve_conj",
    "resolve_neg",
)
def identity(_b: Builder, _out: TensorType, x: Value) -> Value:
    return x


@aten("_to_copy")
def cast(b: Builder, out: TensorType, x: Value, *, dtype: object = None) -> Value:
    del dtype
    return cast_to(b, x, out.dtype)


@aten("copy")
def copy(
    b: Builder, out: TensorType, _x: Value, source: Value, _non_blocking: bool = False
) -> Value:
    return b.add("broadcast_to", cast_to(b, source, out.dtype), shape=out.shape)


@aten("expand")
def expand(
    b: Builder, out: TensorType, x: Value, _size: object, *, implicit: bool = False
) -> Value:
    del implicit
    return x if x.shape == out.shape else b.add("broadcast_to", x, shape=out.shape)


@aten("permute", "permute_copy")
def permute(b: Builder, _out: TensorType, x: Value, dims: Sequence[int]) -> Value:
    return b.add("transpose", x, axes=tuple(d % x.type.rank for d in dims))


@aten("slice.Tensor")
def slice_(
    b: Builder,
    _out: TensorType,
    x: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    own = range(x.shape[dim])[start:end:step]
    return movement.sliced(b, x, (own.start,), (own.stop,), (dim,), (step,))


@aten("select.int")
def select(b: Builder, _out: TensorType, x: Value, dim: int, index: int) -> Value:
    axis = in_rank(dim, x.type.rank)
    return row(b, x, axis, index % x.shape[axis])


@aten("cat")
def concatenate(b: Builder, out: TensorType, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Of vectors without elements nothing is taken, of whatever rank the others are."""
    every = [cast_to(b, t, out.dtype) for t in tensors]
    own = [t for t in every if t.shape != (0,)] or every[:1]
    return own[0] if len(own) == 1 else b.add("concatenate", *own, axis=in_rank(dim, out.rank))


@aten("split_with_sizes")
def split(
    b: Builder, _out: TensorType, x: Value, sizes: Sequence[int], dim: int = 0
) -> Sequence[Value]:
    return parts(b, x, in_rank(dim, x.type.rank), sizes)


@aten("unbind_copy.int")
def unbound(b: Builder, _out: TensorType, x: Value, dim: int = 0) -> Sequence[Value]:
    axis = in_rank(dim, x.type.rank)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    slices = parts(b, x, axis, [1] * x.shape[axis])
    return [reshaped(b, one, shape) for one in slices]


@aten("flip")
def flip(b: Builder, _out: TensorType, x: Value, dims: Sequence[int]) -> Value:
    axes = {in_rank(d, x.type.rank) for d in dims}
    return movement.reversed_(b, x, tuple(axes))


@aten("repeat")
def repeat(b: Builder, _out: TensorType, x: Value, repeats: Sequence[int]) -> Value:
    shape = (*(1,) * (len(repeats) - x.type.rank), *x.shape)
    return movement.tiled(b, reshaped(b, x, shape), repeats)


def _around(pad: Sequence[int], rank: int) -> list[int]:
    """Widths before all dimensions, then after them, of pairs for the last dimensions."""
    pairs = [(0, 0)] * rank
    for n in range(len(pad) // 2):
        pairs[rank - 1 - n] = pad[2 * n], pad[2 * n + 1]
    return [first for first, _ in pairs] + [last for _, last in pairs]


@aten("constant_pad_nd")
def pad_constant(
    b: Builder, _out: TensorType, x: Value, pad: Sequence[int], value: Number = 0
) -> Value:
    return movement.padded(b, x, _around(pad, x.type.rank), fill=value)


def _reflected(b: Builder, _out: TensorType, x: Value, padding: Sequence[int]) -> Value:
    return movement.padded(b, x, _around(padding, x.type.rank), mode="reflect")


def _replicated(b: Builder, out: TensorType, x: Value, padding: Sequence[int]) -> Value:
    """Widths below 0 cut what is repeated: the outer elements are those of the whole."""
    widths = _around(padding, x.type.rank)
    if min(widths) >= 0:
        return movement.padded(b, x, widths, mode="edge")
    value = x
    for axis, (before, extent) in enumerate(zip(widths, x.shape, strict=False)):
        places = np.clip(np.arange(out.shape[axis]) - before, 0, extent - 1)
        value = movement.taken(b, value, b.constant(places, "int64"), axis)
    return value


for _rank in (1, 2, 3):
    aten(f"reflection_pad{_rank}d")(_reflected)
    aten(f"replication_pad{_rank}d")(_replicated)


def _triangle(upper: bool, b: Builder, _out: TensorType, x: Value, diagonal: int = 0) -> Value:
    return movement.triangle(b, x, diagonal, upper=upper)


aten("tril")(partial(_triangle, False))
aten("triu")(partial(_triangle, True))


def _blocks(to_space: bool, b: Builder, out: TensorType, x: Value, factor: int) -> Value:
    own = reshaped(b, x, (math.prod(x.shape[:-3]), *x.shape[-3:]))
    move = movement.depth_to_space if to_space else movement.space_to_depth
    return reshaped(b, move(b, own, factor, depth_first=True), out.shape)


aten("pixel_shuffle")(partial(_blocks, True))
aten("pixel_unshuffle")(partial(_blocks, False))


@aten("slice_scatter")
def slice_scatter(
    b: Builder,
    out: TensorType,
    x: Value,
    source: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    axis = in_rank(dim, x.type.rank)
    own = range(x.shape[axis])[start:end:step]
    if step != 1:
        flat = np.arange(x.type.size).reshape(x.shape)
        return _put(b, out, x, source, np.take(flat, list(own), axis))
    return _replaced(b, x, cast_to(b, source, out.dtype), axis, own.start, own.stop)


@aten("select_scatter")
def select_scatter(
    b: Builder, out: TensorType, x: Value, source: Value, dim: int, index: int
) -> Value:
    axis = in_rank(dim, x.type.rank)
    place = index % x.shape[axis]
    own = reshaped(b, source, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return _replaced(b, x, cast_to(b, own, out.dtype), axis, place, place + 1)


def _replaced(b: Builder, x: Value, own: Value, axis: int, start: int, stop: int) -> Value:
    """`x`, of which the elements from `start` to `stop` along an axis are others."""
    if stop <= start:
        return x
    ends = [part(b, x, axis, 0, start), own, part(b, x, axis, stop, x.shape[axis] - stop)]
    kept = [value for value in ends if value.shape[axis]]
    return kept[0] if len(kept) == 1 else b.add("concatenate", *kept, axis=axis)


def _of_diagonal(shape: Sequence[int], offset: int, dim1: int, dim2: int) -> Array:
    """The places of a diagonal of two dimensions in the flat elements; it is the last dimension."""
    places = np.arange(math.prod(shape)).reshape(shape)
    return np.diagonal(places, offset, dim1, dim2)


@aten("diagonal")
def diagonal(
    b: Builder, out: TensorType, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    """A slice of the flat elements of matrices, whose step is a row and one."""
    dims = [in_rank(d, x.type.rank) for d in (dim1, dim2)]
    rest = [d for d in range(x.type.rank) if d not in dims]
    matrices = b.add("transpose", x, axes=(*rest, *dims))
    *batch, rows, columns = matrices.shape
    if not out.size:
        return reshaped(b, part(b, x, 0, 0, 0), out.shape)
    first = max(offset, 0) + max(-offset, 0) * columns
    flat = reshaped(b, matrices, (*batch, rows * columns))
    starts, steps = [0] * len(batch) + [first], [1] * len(batch) + [columns + 1]
    return b.add("slice", flat, starts=tuple(starts), steps=tuple(steps), shape=out.shape)


@aten("diagonal_scatter")
def diagonal_scatter(
    b: Builder,
    out: TensorType,
    x: Value,
    source: Value,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
) -> Value:
    return _put(b, out, x, source, _of_diagonal(x.shape, offset, dim1, dim2))


def _put(b: Builder, out: TensorType, x: Value, source: Value, places: Array) -> Value:
    """`x`, whose flat elements at known places are those of `source`."""
    if not places.size:
        return x
    flat = reshaped(b, x, (x.type.size,))
    updates = reshaped(b, cast_to(b, source, out.dtype), (places.size,))
    at = b.constant(places.reshape(-1), "int64")
    return reshaped(b, b.add("scatter", flat, at, updates, axis=0), out.shape)


def _of_strides(x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None) -> Array:
    """The places of a view in the elements as they lie: in row-major order, as importers ask."""
    room(*size)
    places = np.full((1,) * len(size), offset or 0)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        shape = [extent if d == axis else 1 for d in range(len(size))]
        places = places + (np.arange(extent) * step).reshape(shape)
    if places.size and places.max() >= x.type.size:
        raise Unsupported(Reason.ATTRIBUTE, "elements that the tensor is a view of")
    return places


@aten("as_strided", "as_strided_copy")
def as_strided(
    b: Builder,
    _out: TensorType,
    x: Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Value:
    places = _of_strides(x, size, stride, storage_offset)
    return b.add("take", reshaped(b, x, (x.type.size,)), b.constant(places, "int64"), axis=0)


@aten("narrow_copy")
def narrow(b: Builder, _out: TensorType, x: Value, dim: int, start: int, length: int) -> Value:
    axis = in_rank(dim, x.type.rank)
    return part(b, x, axis, start % max(x.shape[axis], 1) if start < 0 else start, length)


@aten("as_strided_scatter")
def as_strided_scatter(
    b: Builder,
    out: TensorType,
    x: Value,
    source: Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Value:
    return _put(b, out, x, source, _of_strides(x, size, stride, storage_offset))


@aten("unfold")
def unfold(b: Builder, _out: TensorType, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along a dimension, whose elements are a last one."""
    if not x.type.rank:
        return b.add("broadcast_to", x, shape=(size,))
    axis = in_rank(dim, x.type.rank)
    windows = b.add("windows", x, axis=axis, size=size, step=step)
    order = [d for d in range(x.type.rank + 1) if d != axis + 1]
    return b.add("transpose", windows, axes=(*order, axis + 1))
