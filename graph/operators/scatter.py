"""Operators that write at places that data decide, one update after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.errors import IRError
from ...tir.ir import Func
from ...tir.parser import parse
from ..ir import TensorType
from ..operator import Array, Kind, Limits, programmed, within

_REDUCTIONS: dict[str, tuple[str, Callable[..., Any] | None]] = {
    "none": ("{1}", None),
    "add": ("{0} + {1}", np.add),
    "mul": ("{0} * {1}", np.multiply),
    "max": ("T.maximum({0}, {1})", np.maximum),
    "min": ("T.minimum({0}, {1})", np.minimum),
}


def _updated(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    result = x.copy()
    for index, extent in zip(places, x.shape, strict=False):
        if index.size and not (-extent <= index.min() and index.max() < extent):
            raise IndexError(f"an index is out of range of {extent}")
    function = _REDUCTIONS[reduction][1]
    if function is None:
        result[places] = updates
    else:
        function.at(result, places, updates)  # type: ignore[attr-defined]
    return result


def _check(name: str, x: TensorType, updates: TensorType, reduction: str) -> None:
    if reduction not in _REDUCTIONS or updates.dtype != x.dtype:
        raise IRError("{0}: {1} with updates {2}, reduction {3}", name, x, updates, reduction)


def _clipped(index: str, extent: int) -> str:
    """An index that counts from the end if it is negative, kept within the dimension."""
    wide = f'T.cast("int64", {index})'
    counted = f"T.select({wide} < 0, {wide} + {extent}, {wide})"
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


def _scattered(x: Array, indices: Array, updates: Array, *, axis: int, reduction: str) -> Array:
    places = list(np.ogrid[tuple(slice(e) for e in indices.shape)])
    places[axis] = indices.astype(np.int64)
    return _updated(x, tuple(np.broadcast_arrays(*places)), updates, reduction)


def _infer(
    x: TensorType, indices: TensorType, updates: TensorType, *, axis: int, reduction: str
) -> TensorType:
    _check("scatter", x, updates, reduction)
    fits = all(
        n <= e or d == axis for d, (n, e) in enumerate(zip(indices.shape, x.shape, strict=False))
    )
    if indices.shape != updates.shape or indices.rank != x.rank or not fits or 0 in x.shape:
        raise IRError("scatter: {0} at {1} into {2}", updates, indices, x)
    return x


def _limits(x: TensorType, *_: TensorType, axis: int, **_more: object) -> list[Limits]:
    return [within(1, x.shape[axis])]


@programmed(Kind.OPAQUE, reference=_scattered, infer=_infer, limits=_limits)
def scatter(
    x: TensorType, indices: TensorType, updates: TensorType, *, axis: int, reduction: str = "none"
) -> Func:
    """`x`, where element i of the updates is at i, but along `axis` at `indices[i]`.

    `reduction` (add, mul, max, min) takes it together with what is there.
    """
    names = [f"i{d}" for d in range(x.rank)]
    own = ", ".join(names)
    names[axis] = _clipped(f"I[{own}]", x.shape[axis])
    return _program(x, indices, updates, ", ".join(names), own, reduction)


def _scattered_nd(x: Array, indices: Array, updates: Array, *, reduction: str) -> Array:
    places = tuple(indices[..., k].astype(np.int64) for k in range(indices.shape[-1]))
    return _updated(x, places, updates, reduction)


def _infer_nd(
    x: TensorType, indices: TensorType, updates: TensorType, *, reduction: str
) -> TensorType:
    _check("scatter_nd", x, updates, reduction)
    depth = indices.shape[-1]
    if depth > x.rank or updates.shape != indices.shape[:-1] + x.shape[depth:] or 0 in x.shape:
        raise IRError("scatter_nd: {0} at {1} into {2}", updates, indices, x)
    return x


def _limits_nd(x: TensorType, indices: TensorType, _: TensorType, **_more: object) -> list[Limits]:
    return [within(1, x.shape[k], k) for k in range(indices.shape[-1])]


@programmed(Kind.OPAQUE, reference=_scattered_nd, infer=_infer_nd, limits=_limits_nd)
def scatter_nd(
    x: TensorType, indices: TensorType, updates: TensorType, *, reduction: str = "none"
) -> Func:
    """`x`, where slices of the updates are at tuples of indices, the last dimension of `indices`.

    `reduction` (add, mul, max, min) takes them together with what is there.
    """
    names = [f"i{d}" for d in range(updates.rank)]
    at = names[: indices.rank - 1]
    depth = indices.shape[-1]
    places = [_clipped(f"I[{', '.join([*at, str(k)])}]", x.shape[k]) for k in range(depth)]
    place = ", ".join([*places, *names[indices.rank - 1 :]]) or "()"
    return _program(x, indices, updates, place, ", ".join(names) or "()", reduction)
