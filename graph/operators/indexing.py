"""Operators that read or write at places that data decide.

Where they have the attribute `negative`, it says whether negative indices count from the end of the
dimension, or are out of range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import IRError
from ...tir import te
from ...tir.ir import Func
from ...tir.parser import parse
from ...tir.te import Expr, Tensor
from ..ir import TensorType
from ..operator import Array, Kind, Limits, operator, programmed, within


def clipped(index: Expr, extent: int, *, negative: bool = True) -> Expr:
    """An index kept within the dimension; if `negative`, one below 0 counts from its end."""
    wide = te.cast(index, "int64")
    counted = te.select(wide < 0, wide + extent, wide) if negative else wide
    return te.minimum(te.maximum(counted, te.const(0, "int64")), te.const(extent - 1, "int64"))


def _taken(x: Array, indices: Array, *, axis: int, **_: object) -> Array:
    return np.take(x, indices.astype(np.int64), axis)


def _along(x: TensorType, *_: TensorType, axis: int, negative: bool, **_more: Any) -> list[Limits]:
    return [within(1, x.shape[axis], negative=negative)]


@operator(Kind.INDEXING, reference=_taken, limits=_along)
def take(x: Tensor, indices: Tensor, *, axis: int, negative: bool = True) -> Tensor:
    """The slices of `x` at `indices` along `axis`."""
    if x.extents[axis] == 0:
        raise IRError("take: there is no element along axis {0} of {1}", axis, x.extents)
    last = axis + indices.ndim

    def element(*i: Expr) -> Expr:
        place = clipped(indices[i[axis:last]], x.extents[axis], negative=negative)
        return x[(*i[:axis], place, *i[last:])]

    extents = x.extents[:axis] + indices.extents + x.extents[axis + 1 :]
    return te.compute(extents, element, name="take")


def _taken_along(x: Array, indices: Array, *, axis: int, **_: object) -> Array:
    places = list(np.ogrid[tuple(slice(e) for e in indices.shape)])
    places[axis] = indices.astype(np.int64)
    return np.asarray(x[tuple(places)])


@operator(Kind.INDEXING, reference=_taken_along, limits=_along)
def take_along(x: Tensor, indices: Tensor, *, axis: int, negative: bool = True) -> Tensor:
    """Element i of the result is that of `x` at i, but along `axis` at `indices[i]`."""
    if x.ndim != indices.ndim or x.extents[axis] == 0:
        raise IRError("take_along: {0} at {1}", x.extents, indices.extents)
    for d, (e, n) in enumerate(zip(x.extents, indices.extents, strict=True)):
        if d != axis and n > e:
            raise IRError("take_along: {0} at {1}", x.extents, indices.extents)

    def element(*i: Expr) -> Expr:
        place = clipped(indices[i], x.extents[axis], negative=negative)
        return x[(*i[:axis], place, *i[axis + 1 :])]

    return te.compute(indices.extents, element, name="take_along")


def _taken_nd(x: Array, indices: Array, *, batch: int, **_: object) -> Array:
    shape = indices.shape[:-1]
    own = [
        np.arange(e).reshape((1,) * d + (e,) + (1,) * (len(shape) - d - 1))
        for d, e in enumerate(shape[:batch])
    ]
    return np.asarray(x[(*own, *np.moveaxis(indices.astype(np.int64), -1, 0))])


def _at(
    x: TensorType, indices: TensorType, *_: TensorType, batch: int = 0, negative: bool, **_more: Any
) -> list[Limits]:
    extents = x.shape[batch : batch + indices.shape[-1]]
    return [within(1, extent, k, negative=negative) for k, extent in enumerate(extents)]


@operator(Kind.INDEXING, reference=_taken_nd, limits=_at)
def take_nd(x: Tensor, indices: Tensor, *, batch: int = 0, negative: bool = True) -> Tensor:
    """The slices of `x` at tuples of indices, which are the last dimension of `indices`.

    The first `batch` dimensions of both are the same, and are not indexed.
    """
    depth = indices.extents[-1]
    rank = indices.ndim - 1
    end = batch + depth
    if not 0 <= batch <= rank or end > x.ndim or x.extents[:batch] != indices.extents[:batch]:
        raise IRError("take_nd: {0} at {1}, batch {2}", x.extents, indices.extents, batch)
    if 0 in x.extents[batch:end]:
        raise IRError("take_nd: there is no element in {0}", x.extents)

    def element(*i: Expr) -> Expr:
        places = [
            clipped(indices[(*i[:rank], k)], x.extents[batch + k], negative=negative)
            for k in range(depth)
        ]
        return x[(*i[:batch], *places, *i[rank:])]

    return te.compute(indices.extents[:-1] + x.extents[end:], element, name="take_nd")


def _unviolated(x: Array, violations: Array, *, by: str, broken: str) -> Array:
    del violations, by, broken
    return x.copy()


def _none(*_: TensorType, by: str, broken: str) -> list[Limits]:
    return [Limits(1, 0, 0, by=by, broken=broken)]


@operator(Kind.MOVEMENT, reference=_unviolated, limits=_none)
def asserted(
    x: Tensor, violations: Tensor, *, by: str = "asserted", broken: str = "a number is not 0"
) -> Tensor:
    """`x`, of a model that demands that `violations`, which are integers of any shape, are 0.

    `by` names what demands it, and `broken` is what the error says; see `Limits`.
    """
    del by, broken
    if not dtypes.is_integer(violations.dtype) or 0 in violations.extents:
        raise IRError("asserted: {0} of {1}", violations.extents, violations.dtype)
    holds = violations[(0,) * violations.ndim] == 0
    zero = te.const(0, x.dtype)
    return te.compute(x.extents, lambda *at: te.select(holds, x[at], zero), name="asserted")


_REDUCTIONS: dict[str, tuple[str, Callable[..., Any] | None]] = {
    "none": ("{1}", None),
    "add": ("{0} + {1}", np.add),
    "mul": ("{0} * {1}", np.multiply),
    "max": ("T.maximum({0}, {1})", np.maximum),
    "min": ("T.minimum({0}, {1})", np.minimum),
}


def _updated(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    result = x.copy()
    function = _REDUCTIONS[reduction][1]
    if function is None:
        result[places] = updates
    else:
        function.at(result, places, updates)  # type: ignore[attr-defined]
    return result


def _check(name: str, x: TensorType, updates: TensorType, reduction: str) -> None:
    if reduction not in _REDUCTIONS or updates.dtype != x.dtype:
        raise IRError("{0}: {1} with updates {2}, reduction {3}", name, x, updates, reduction)


def _clipped(index: str, extent: int, *, negative: bool) -> str:
    """As `clipped`, in the text of a program."""
    wide = f'T.cast("int64", {index})'
    counted = f"T.select({wide} < 0, {wide} + {extent}, {wide})" if negative else wide
    return f"T.minimum(T.maximum({counted}, 0), {extent - 1})"


def _loops(letter: str, shape: tuple[int, ...]) -> tuple[str, str]:
    """A line of loops over a shape, and their variables."""
    names = ", ".join(f"{letter}{d}" for d in range(len(shape)))
    if not shape:
        return f"for {letter}0 in range(1):", "()"
    if len(shape) == 1:
        return f"for {names} in range({shape[0]}):", names
    return f"for {names} in T.grid({', '.join(map(str, shape))}):", names


def _program(
    x: TensorType, indices: TensorType, updates: TensorType, place: str, source: str, reduction: str
) -> Func:
    """`source` is the place in the updates, and `place` the one in the result."""
    around, own = _loops("d", x.shape)
    steps, _ = _loops("i", updates.shape)
    value = _REDUCTIONS[reduction][0].format(f"Y[{place}]", f"U[{source}]")
    types = {"X": x, "I": indices, "U": updates, "Y": x}
    parameters = ", ".join(f'{k}: T.Buffer({t.shape}, "{t.dtype}")' for k, t in types.items())
    return parse(f"""
@tw.script
def scatter({parameters}):
    {around}
        Y[{own}] = X[{own}]
    {steps}
        Y[{place}] = {value}
""")


def _scattered(
    x: Array, indices: Array, updates: Array, *, axis: int, reduction: str, **_: object
) -> Array:
    places = list(np.ogrid[tuple(slice(e) for e in indices.shape)])
    places[axis] = indices.astype(np.int64)
    return _updated(x, tuple(np.broadcast_arrays(*places)), updates, reduction)


def _infer(
    x: TensorType,
    indices: TensorType,
    updates: TensorType,
    *,
    axis: int,
    reduction: str,
    **_: object,
) -> TensorType:
    _check("scatter", x, updates, reduction)
    fits = all(
        n <= e or d == axis for d, (n, e) in enumerate(zip(indices.shape, x.shape, strict=False))
    )
    if indices.shape != updates.shape or indices.rank != x.rank or not fits or 0 in x.shape:
        raise IRError("scatter: {0} at {1} into {2}", updates, indices, x)
    return x


@programmed(Kind.OPAQUE, reference=_scattered, infer=_infer, limits=_along)
def scatter(
    x: TensorType,
    indices: TensorType,
    updates: TensorType,
    *,
    axis: int,
    reduction: str = "none",
    negative: bool = True,
) -> Func:
    """`x`, where element i of the updates is at i, but along `axis` at `indices[i]`.

    `reduction` (add, mul, max, min) takes it together with what is there.
    """
    names = [f"i{d}" for d in range(x.rank)]
    own = ", ".join(names)
    names[axis] = _clipped(f"I[{own}]", x.shape[axis], negative=negative)
    return _program(x, indices, updates, ", ".join(names), own, reduction)


def _scattered_nd(
    x: Array, indices: Array, updates: Array, *, reduction: str, **_: object
) -> Array:
    places = np.moveaxis(indices.astype(np.int64), -1, 0)
    return _updated(x, tuple(places), updates, reduction)


def _infer_nd(
    x: TensorType, indices: TensorType, updates: TensorType, *, reduction: str, **_: object
) -> TensorType:
    _check("scatter_nd", x, updates, reduction)
    depth = indices.shape[-1]
    if depth > x.rank or updates.shape != indices.shape[:-1] + x.shape[depth:] or 0 in x.shape:
        raise IRError("scatter_nd: {0} at {1} into {2}", updates, indices, x)
    return x


@programmed(Kind.OPAQUE, reference=_scattered_nd, infer=_infer_nd, limits=_at)
def scatter_nd(
    x: TensorType,
    indices: TensorType,
    updates: TensorType,
    *,
    reduction: str = "none",
    negative: bool = True,
) -> Func:
    """`x`, where slices of the updates are at tuples of indices, the last dimension of `indices`.

    `reduction` (add, mul, max, min) takes them together with what is there.
    """
    names = [f"i{d}" for d in range(updates.rank)]
    at = names[: indices.rank - 1]
    depth = indices.shape[-1]
    places = [
        _clipped(f"I[{', '.join([*at, str(k)])}]", x.shape[k], negative=negative)
        for k in range(depth)
    ]
    place = ", ".join([*places, *names[indices.rank - 1 :]]) or "()"
    return _program(x, indices, updates, place, ", ".join(names) or "()", reduction)
