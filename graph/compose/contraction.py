"""Products of matrices and convolutions: of vectors and groups, with biases, transposed, causal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...base.errors import ModelError
from ..builder import Builder
from ..ir import Value
from .basics import cast_to, part, reshaped
from .linear import turned
from .movement import dilated
from .pointwise import clipped


def product(b: Builder, x: Value, y: Value) -> Value:
    """The product of matrices or, with one dimension, vectors."""
    rows, columns = matrices(b, x, y)
    return of_matrices(b, b.add("matmul", rows, columns), x, y)


def matrices(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """The operands of a product as matrices: a vector is a row at its left, a column at its right.

    `of_matrices` takes the dimensions off the result again.
    """
    first, last = x.type.rank == 1, y.type.rank == 1
    x = reshaped(b, x, (1, *x.shape)) if first else x
    return x, reshaped(b, y, (*y.shape, 1)) if last else y


def of_matrices(b: Builder, z: Value, x: Value, y: Value) -> Value:
    """The product of `x` and `y`, given that of their `matrices`."""
    first, last = x.type.rank == 1, y.type.rank == 1
    shape = list(z.shape)
    if last:
        del shape[-1]
    if first:
        del shape[-1 if last else -2]
    return reshaped(b, z, shape) if first or last else z


def grouped_product(b: Builder, x: Value, matrices: Value, ends: Value) -> Value:
    """Rows of `x` by one of several matrices: those before `ends[0]` by the first, and so on.

    `x` is (rows, depth), `matrices` (groups, depth, columns), and the ends of the groups (groups,)
    ascend; rows behind the last are zeros.
    """
    rows, groups, columns = x.shape[0], matrices.shape[0], matrices.shape[2]
    ends = cast_to(b, ends, "int64")
    every = _places(b, rows)
    own = _group_of(b, ends, every)
    if rows <= groups:
        product = b.add("matmul", reshaped(b, x, (rows, 1, x.shape[1])), _at(b, matrices, own))
        found = reshaped(b, product, (rows, columns))
    else:
        blocks = _blocks(b, rows, ends)
        size = blocks.rows.shape[1]
        product = b.add("matmul", _at(b, x, blocks.rows), _at(b, matrices, blocks.group))
        before = b.add("subtract", every, _at(b, blocks.start, own))
        start = b.add("multiply", _at(b, blocks.first, own), b.constant(size, "int64"))
        count = blocks.group.shape[0] * size
        flat = reshaped(b, product, (count, columns))
        found = _at(b, flat, _within(b, b.add("add", start, before), count))
    inside = b.add("less", reshaped(b, every, (rows, 1)), part(b, ends, 0, groups - 1, 1))
    return b.add("where", inside, found, b.constant(0, found.dtype))


def products_of_groups(b: Builder, x: Value, y: Value, ends: Value) -> Value:
    """For each group of rows, the product of its transposed rows of `x` by those of `y`.

    `x` is (rows, height), `y` (rows, width), and the ends of the groups (groups,) ascend. The
    result is (groups, height, width), of which an empty group has zeros.
    """
    ends = cast_to(b, ends, "int64")
    blocks = _blocks(b, x.shape[0], ends)

    def rows_of(values: Value) -> Value:
        held = reshaped(b, blocks.held, (*blocks.held.shape, 1))
        return b.add("where", held, _at(b, values, blocks.rows), b.constant(0, values.dtype))

    products = b.add("matmul", turned(b, rows_of(x)), rows_of(y))
    zeros = b.constant(np.zeros((ends.shape[0], x.shape[1], y.shape[1])), x.dtype)
    at = reshaped(b, blocks.group, (*blocks.group.shape, 1))
    return b.add("scatter_nd", zeros, at, products, reduction="add")


@dataclass(frozen=True)
class _Blocks:
    """Groups of rows, cut into blocks of about their mean number of rows.

    Of each block the `group` (blocks,), the places of its `rows` (blocks, size), and whether it has
    them: `held`. Of each group the `start`, a row, and its `first` block, both (groups,). There are
    at most twice as many blocks as groups, or rows of the largest size; the last may be empty.
    """

    group: Value
    rows: Value
    held: Value
    start: Value
    first: Value


def _blocks(b: Builder, rows: int, ends: Value) -> _Blocks:
    groups, size = ends.shape[0], 1
    while size * groups < rows and size < _ROWS_OF_BLOCK:
        size *= 2

    def number(value: int) -> Value:
        return b.constant(value, "int64")

    starts = part(b, b.add("pad", ends, before=(1,), after=(0,), value=0), 0, 0, groups)
    lengths = b.add("subtract", ends, starts)
    blocks = b.add("divide", b.add("add", lengths, number(size - 1)), number(size))
    last = b.add("accumulate", blocks, axis=0)
    first = b.add("subtract", last, blocks)
    count = min(rows, (rows + groups * (size - 1)) // size)
    block = _places(b, count)
    group = _group_of(b, last, block)
    skipped = b.add("multiply", b.add("subtract", block, _at(b, first, group)), number(size))
    begin = reshaped(b, b.add("add", _at(b, starts, group), skipped), (count, 1))
    places = b.add("add", begin, _places(b, size))
    held = b.add("less", places, reshaped(b, _at(b, ends, group), (count, 1)))
    return _Blocks(group, _within(b, places, rows), held, starts, first)


def _places(b: Builder, count: int) -> Value:
    return b.constant(np.arange(count), "int64")


def _within(b: Builder, places: Value, count: int) -> Value:
    return clipped(b, places, b.constant(0, "int64"), b.constant(count - 1, "int64"))


def _at(b: Builder, values: Value, places: Value) -> Value:
    return b.add("take", values, places, axis=0)


def _group_of(b: Builder, bounds: Value, places: Value) -> Value:
    """The group of each place: so many bounds are not above it."""
    column = reshaped(b, places, (places.shape[0], 1))
    passed = cast_to(b, b.add("less_equal", bounds, column), "int64")
    return _within(b, b.add("sum", passed, axes=(1,)), bounds.shape[0])


_ROWS_OF_BLOCK = 64
"""The most rows of a block: as many products for each element of its matrix that is read."""


@dataclass(frozen=True)
class Convolution:
    """The attributes of a convolution, for each spatial dimension; `before` and `after` pad it."""

    strides: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1

    def of(self, b: Builder, x: Value, w: Value, dtype: str | None = None) -> Value:
        return b.add("conv", x, w, **vars(self), dtype=dtype)


def same_padding(
    extents: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[tuple[int, int]]:
    """The padding with which there is an output for each stride: a half, and what is left of it."""
    found = []
    for e, k, s, d in zip(extents, kernel, strides, dilations, strict=True):
        total = max((-(-e // s) - 1) * s + (k - 1) * d + 1 - e, 0)
        found.append((total // 2, total - total // 2))
    return found


def along_channels(b: Builder, values: Value, y: Value) -> Value:
    """A value for each channel of (n, c, *extents), or one for all, to broadcast."""
    shape = (values.type.size, *(1,) * (y.type.rank - 2)) if values.type.size > 1 else ()
    return b.add("reshape", values, shape=shape)


def biased(b: Builder, y: Value, bias: Value | None) -> Value:
    if bias is None:
        return y
    return b.add("add", y, along_channels(b, bias, y))


def transposed_conv(
    b: Builder,
    x: Value,
    w: Value,
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    before: Sequence[int],
    sizes: Sequence[int],
) -> Value:
    """A transposed convolution, whose outputs are cut off `before`, and are `sizes` many.

    It is one with stride 1 for each phase of the outputs, interleaved. Output y is the sum over
    taps k of `x[i] * w[k]` where `y + before = i * stride + k`. Those of one phase
    `(y + before) % stride` read each `stride`-th tap: phases are channels. Along an axis with one
    phase the convolution is dilated, along others zeros are put between the taps.
    """
    rank = x.type.rank - 2
    apart = [1 if s == 1 else d for s, d in zip(strides, dilations, strict=True)]
    steps = [d if s == 1 else 1 for s, d in zip(strides, dilations, strict=True)]
    if any(d > 1 for d in apart):
        w = dilated(b, w, (1, 1, *apart), b.constant(0, w.dtype))
    taps = tuple(-(-k // s) for k, s in zip(w.shape[2:], strides, strict=True))
    reach = [(t - 1) * d for t, d in zip(taps, steps, strict=True)]
    # The first input that the first output of a phase reads, and the last one.
    first = [min(p // s, r) for p, s, r in zip(before, strides, reach, strict=True)]
    last = [(p + n - 1) // s for p, n, s in zip(before, sizes, strides, strict=True)]
    y = b.add(
        "conv",
        x,
        _phases(b, w, strides, taps, groups),
        strides=(1,) * rank,
        before=tuple(r - f for r, f in zip(reach, first, strict=True)),
        after=tuple(max(p - e + 1, 0) for p, e in zip(last, x.shape[2:], strict=True)),
        dilations=tuple(steps),
        groups=groups,
    )
    starts = tuple(p - f * s for p, f, s in zip(before, first, strides, strict=True))
    if any(s > 1 for s in strides) or (*starts, *sizes) != (*(0,) * rank, *y.shape[2:]):
        y = b.add("interleave", y, factors=strides, starts=starts, shape=sizes)
    return y


def _phases(
    b: Builder, w: Value, strides: Sequence[int], taps: Sequence[int], groups: int
) -> Value:
    """Weights (c, o / groups, *kernel) as those (o * prod(strides), c / groups, *taps)."""
    rank, (channels, outputs) = len(strides), w.shape[:2]
    after = [t * s - k for t, s, k in zip(taps, strides, w.shape[2:], strict=True)]
    if any(after):
        w = b.add("pad", w, before=(0,) * w.type.rank, after=(0, 0, *after))
    split = [n for t, s in zip(taps, strides, strict=True) for n in (t, s)]
    shape = (groups, channels // groups, outputs, *split)
    w = b.add("reshape", w, shape=shape)
    turned = [t - 1 if n % 2 == 0 else 0 for n, t in enumerate(split)]
    steps = [-1 if n % 2 == 0 else 1 for n in range(2 * rank)]
    w = b.add("slice", w, starts=(0, 0, 0, *turned), steps=(1, 1, 1, *steps), shape=shape)
    phases, places = range(4, 4 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
    w = b.add("transpose", w, axes=(0, 2, *phases, 1, *places))
    count = groups * outputs
    for s in strides:
        count *= s
    return b.add("reshape", w, shape=(count, channels // groups, *taps))


def causal_conv(
    b: Builder, x: Value, w: Value, bias: Value | None, past: Value | None
) -> tuple[Value, Value]:
    """A depthwise convolution of what came before and the input (n, c, steps), and both together.

    Without a `past` zeros came before.
    """
    rest = w.shape[2] - 1
    if past is None:
        past = b.add("broadcast_to", b.constant(0, x.dtype), shape=(*x.shape[:2], rest))
    whole = b.add("concatenate", past, x, axis=2) if rest else x
    y = Convolution((1,), (0,), (0,), (1,), x.shape[1]).of(b, whole, w)
    return biased(b, y, bias), whole


def columns_to_image(
    b: Builder,
    x: Value,
    image: Sequence[int],
    block: Sequence[int],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
) -> Value:
    """A transposed convolution of each channel, which adds each tap to its place."""
    taps = math.prod(block)
    counts = [
        (e + p + q - (k - 1) * d - 1) // s + 1
        for e, p, q, k, d, s in zip(image, before, after, block, dilations, strides, strict=True)
    ]
    channels = x.shape[1] // taps
    if x.shape[1] % taps or math.prod(counts) != x.shape[2]:
        raise ModelError("columns {0} of an image {1}", x.type, image)
    own = reshaped(b, x, (x.shape[0], x.shape[1], *counts))
    one = np.eye(taps).reshape(taps, 1, *block)
    weights = b.constant(np.tile(one, (channels, 1, *(1,) * len(block))), x.dtype)
    return transposed_conv(b, own, weights, strides, dilations, channels, before, image)
