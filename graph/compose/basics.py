"""Small compositions that others are made of, and checks of what is asked of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError
from ..builder import Builder
from ..ir import Value

MAX_KNOWN = 1 << 27
"""Elements of an array that is computed as a model is read."""


def room(*extents: float) -> None:
    """Raise `ModelError` for an array that would have extents below 0, or too many elements."""
    if not all(extent >= 0 for extent in extents) or math.prod(extents) > MAX_KNOWN:
        shape = " x ".join(f"{extent:,}" for extent in extents)
        raise ModelError("{0} elements would be computed; the most are {1:,}", shape, MAX_KNOWN)


def in_rank(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises `ModelError` if there is none of that number."""
    if not -rank <= axis < rank:
        raise ModelError("axis {0} of {1} dims", axis, rank)
    return axis % rank


def wide(x: Value) -> str:
    """The float dtype that compositions of several steps compute in, so as to round once."""
    return "float64" if x.dtype == "float64" else "float32"


def cast_to(b: Builder, x: Value, dtype: str, *, saturate: bool = False) -> Value:
    """`x` as another dtype; with `saturate` within the range of a float of 8 bits."""
    if x.dtype == dtype:
        return x
    if saturate and dtypes.is_float(dtype) and dtypes.nbytes(dtype) == 1:
        largest = dtypes.largest_float(dtype)
        x = b.add("cast", x, dtype="float32") if not dtypes.is_float(x.dtype) else x
        x = b.add("clip", x, low=-largest, high=largest)
    return b.add("cast", x, dtype=dtype)


def reshaped(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    return b.add("reshape", x, shape=tuple(shape))


def times(b: Builder, x: Value, factor: float) -> Value:
    return b.add("multiply", x, b.constant(factor, x.dtype))


def part(b: Builder, x: Value, axis: int, start: int, count: int) -> Value:
    """`count` elements along an axis."""
    starts = [start if d == axis else 0 for d in range(x.type.rank)]
    shape = [count if d == axis else e for d, e in enumerate(x.shape)]
    return b.add("slice", x, starts=starts, steps=(1,) * x.type.rank, shape=shape)


def parts(b: Builder, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """The elements along an axis, as so many each."""
    starts = np.cumsum([0, *sizes])
    if starts[-1] != x.shape[axis] or min(sizes, default=0) < 0:
        raise ModelError("{0} does not divide into {1}", x.type, list(sizes))
    return [part(b, x, axis, int(s), n) for s, n in zip(starts, sizes, strict=False)]


def row(b: Builder, x: Value, axis: int, place: int) -> Value:
    """The elements at one place of an axis, without it."""
    return reshaped(b, part(b, x, axis, place, 1), x.shape[:axis] + x.shape[axis + 1 :])


def stacked(b: Builder, values: Sequence[Value], axis: int) -> Value:
    """Values of one shape, one after the other along a new axis."""
    shape = values[0].shape
    axis = in_rank(axis, len(shape) + 1)
    views = [reshaped(b, v, (*shape[:axis], 1, *shape[axis:])) for v in values]
    return b.add("concatenate", *views, axis=axis) if len(views) > 1 else views[0]
