"""Stages of random programs: each computes a tensor from the one before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilewright.base import dtypes
from tilewright.tir import te
from tilewright.tir.ir import Expr

Tensor: TypeAlias = Any
Pick = Callable[[int], int]
"""A number from 0 to below the given one."""
SIZES = (1, 2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True)
class Draft:
    """A program in the making: what picks for it, its parameters and outputs so far.

    Few dimensions are 0, the others one of `sizes`.
    """

    pick: Pick
    sizes: tuple[int, ...] = SIZES
    params: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


Stage: TypeAlias = Callable[[Tensor, str, Draft], Tensor]


def a_size(d: Draft) -> int:
    return 0 if d.pick(32) == 0 else d.sizes[d.pick(len(d.sizes))]


def placeholder(
    shape: tuple[int, ...], dtype: str, d: Draft, value_range: tuple[int, int] | None = None
) -> Tensor:
    name = f"P{len(d.params)}"
    d.params.append(te.placeholder(shape, dtype, name=name, value_range=value_range))
    return d.params[-1]


def map_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    return te.compute(x.shape, lambda *i: x[i] * 2 + 1, name=name)


def function_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Operations that only integers have, or only floats."""
    if dtypes.is_float(x.dtype):
        return te.compute(x.shape, lambda *i: te.sqrt(te.abs(x[i]) + 1), name=name)
    make: Callable[[Any], Any] = (
        lambda e: e // 3,
        lambda e: e % 5,
        lambda e: e ^ 3,
        lambda e: e >> 1,
    )[d.pick(4)]
    return te.compute(x.shape, lambda *i: make(x[i]), name=name)


def scaled_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """A multiple by a number that is passed at each call."""
    d.params.append(te.scalar(x.dtype, name=f"P{len(d.params)}"))
    scale = d.params[-1]
    return te.compute(x.shape, lambda *i: x[i] * scale, name=name)


def two_reads(x: Tensor, name: str, d: Draft) -> Tensor:
    other = placeholder(x.shape, x.dtype, d)
    return te.compute(x.shape, lambda *i: te.maximum(x[i], other[i]) - x[i], name=name)


def mask_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """A choice by the data, which may be a tensor of its own; it makes no jump at zero."""
    if d.pick(2):
        return te.compute(x.shape, lambda *i: te.select(x[i] > 0, x[i], x[i] * 3), name=name)
    mask: Tensor = te.compute(x.shape, lambda *i: x[i] > 0, name=f"{name}m")
    return te.compute(x.shape, lambda *i: te.select(mask[i], x[i], x[i] * 3), name=name)


def quotient_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """A quotient or remainder by data, zeros among them, where a guard keeps the zeros out."""
    if dtypes.is_float(x.dtype):
        return map_stage(x, name, d)
    shape = x.shape[-1:] if d.pick(2) else x.shape
    y = placeholder(shape if d.pick(4) else (1,), x.dtype, d)
    guard, divide, guarded = GUARDS[d.pick(len(GUARDS))], d.pick(2), d.pick(3)

    def value(*i: Expr) -> Any:
        low = y[i[len(i) - len(shape) :]] if y.shape == shape else y[0]
        shown, divisor = guard(x[i], low)
        found = x[i] // divisor if divide else x[i] % divisor
        if guarded == 0:
            return te.select(~shown, 7, found)
        return te.select(shown & (x[i] > 1) if guarded == 1 else shown, found, x[i])

    return te.compute(x.shape, value, name=name)


GUARDS: tuple[Callable[[Any, Any], tuple[Any, Any]], ...] = (
    lambda x, y: (y != 0, y),
    lambda x, y: (~(y == 0), y),
    lambda x, y: (y >= 1, y),
    lambda x, y: ((y < 0) | (y > 0), y),
    lambda x, y: (te.abs(y) > 0, y),
    lambda x, y: (te.minimum(x, y) > 0, y),
    lambda x, y: (x != y, x - y),
    lambda x, y: (x > y, y - x),
    lambda x, y: (x != 1, y % 3 + 1),
    lambda x, y: (x != 1, te.maximum(y, 1)),
    lambda x, y: (y % 3 != 0, y),
    lambda x, y: (x < 4, te.select(y != 0, y, 1)),
)
"""Conditions on two integers, and what differs from zero under them."""


def triangle_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Zeros in a corner, or at some of the places."""
    if len(x.shape) > 1:
        upper = d.pick(2)
        return te.compute(
            x.shape,
            lambda i, j, *k: te.select(j >= i if upper else j < i, x[(i, j, *k)], 0),
            name=name,
        )
    return te.compute(x.shape, lambda i: te.select(i % 3 != 1, x[i], 0), name=name)


def biased(x: Tensor, name: str, d: Draft) -> Tensor:
    """A sum plus a term, which can be the start of the sum."""
    total = product_stage(x, f"{name}m", d)
    bias = placeholder(total.shape[-1:], total.dtype, d)
    return te.compute(total.shape, lambda *i: total[i] + bias[i[-1]], name=name)


def shift_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """A stencil over the first dimension, with padding of zeros."""
    n = x.shape[0]

    def at(i: Expr, rest: tuple[Expr, ...]) -> Any:
        before = te.select(i > 0, x[(i - 1, *rest)], 0)
        after = te.select(i < n - 1, x[(i + 1, *rest)], 0)
        return before + x[(i, *rest)] - after

    return te.compute(x.shape, lambda i, *rest: at(i, rest), name=name)


def stencil_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Neighbours at some distance added, without padding."""
    n = x.shape[0]
    reach = 1 + d.pick(3)
    if n <= reach:
        return map_stage(x, name, d)
    shape = (n - reach, *x.shape[1:])
    return te.compute(shape, lambda i, *k: x[(i, *k)] + x[(i + reach, *k)], name=name)


def turn_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    shape = tuple(reversed(x.shape))
    return te.compute(shape, lambda *i: x[tuple(reversed(i))] + 3, name=name)


def mirror_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """The first dimension from its last element to its first, each once or twice."""
    n, times = x.shape[0], 1 + d.pick(2)
    shape = (n * times, *x.shape[1:])
    last = n * times - 1
    return te.compute(shape, lambda i, *k: x[((last - i) // times, *k)] + 1, name=name)


def part_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """The first or the last elements of the first dimension."""
    n = x.shape[0]
    size = min(n, 1 + d.pick(max(n, 1)))
    start = (0, n - size)[d.pick(2)]
    shape = (size, *x.shape[1:])
    return te.compute(shape, lambda i, *rest: x[(i + start, *rest)] * 3, name=name)


def strided_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Every second or third element of the first dimension."""
    n = x.shape[0]
    step = 2 + d.pick(2)
    start = d.pick(step)
    shape = (max(0, -(-(n - start) // step)), *x.shape[1:])
    return te.compute(shape, lambda i, *k: x[(i * step + start, *k)], name=name)


def resize_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """As many rows as one likes, each the nearest one."""
    n, m = x.shape[0], a_size(d)
    if n == 0:
        return map_stage(x, name, d)
    return te.compute((m, *x.shape[1:]), lambda i, *k: x[(i * n // m, *k)] + 1, name=name)


def gather_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Rows that the data choose."""
    n, m = x.shape[0], a_size(d)
    if n == 0:
        return map_stage(x, name, d)
    at = placeholder((m,), ("int32", "int64")[d.pick(2)], d, value_range=(0, n))
    return te.compute((m, *x.shape[1:]), lambda i, *k: x[(at[i], *k)] * 2, name=name)


def pad_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Zeros after the last elements of the first dimension, or around them."""
    n = x.shape[0]
    before = d.pick(2)

    def value(i: Expr, rest: tuple[Expr, ...]) -> Any:
        inside = i < n if before == 0 else (i >= before) & (i < n + before)
        return te.select(inside, x[(i - before if before else i, *rest)], 0)

    shape = (n + before + 1, *x.shape[1:])
    return te.compute(shape, lambda i, *rest: value(i, rest), name=name)


def spread_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """A new dimension, along which all elements are the same."""
    if len(x.shape) > 2:
        return map_stage(x, name, d)
    n = a_size(d)
    if d.pick(2):
        return te.compute((n, *x.shape), lambda _, *i: x[i] - 2, name=name)
    return te.compute((*x.shape, n), lambda *i: x[i[:-1]] - 2, name=name)


def flat_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Two dimensions as one, or one as two."""
    if len(x.shape) == 2:
        rows, columns = x.shape
        return te.compute((rows * columns,), lambda i: x[i // columns, i % columns], name=name)
    if len(x.shape) == 1 and x.shape[0] % 2 == 0:
        return te.compute((x.shape[0] // 2, 2), lambda i, j: x[i * 2 + j] + 1, name=name)
    return map_stage(x, name, d)


def reduce_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    reduce = (te.sum, te.max, te.min, te.prod)[d.pick(4)]
    if len(x.shape) > 1 and d.pick(4) == 0:
        first = te.reduce_axis(x.shape[0], name=f"r{name}")
        return te.compute(x.shape[1:], lambda *i: reduce(x[(first, *i)], axis=first), name=name)
    r = te.reduce_axis(x.shape[-1], name=f"r{name}")
    if len(x.shape) == 1:
        return te.compute((3,), lambda i: reduce(x[r] + i.astype(x.dtype), axis=r), name=name)
    return te.compute(x.shape[:-1], lambda *i: reduce(x[(*i, r)], axis=r), name=name)


def window_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Sums of neighbours along the first dimension, each next to the other or at a distance."""
    n = x.shape[0]
    width = 1 + d.pick(max(1, min(3, n)))
    step = 1 + d.pick(2) if n >= 2 * width else 1
    r = te.reduce_axis(width, name=f"r{name}")
    shape = (n - (width - 1) * step, *x.shape[1:])
    return te.compute(shape, lambda i, *k: te.sum(x[(i + r * step, *k)], axis=r), name=name)


def image_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """A convolution of an image, whose channels are summed if it has some, with 3 by 3 kernels."""
    if len(x.shape) == 1 or min(x.shape[-2:]) < 3:
        return map_stage(x, name, d)
    axes = [te.reduce_axis(n, name=f"r{name}{k}") for k, n in enumerate((*x.shape[:-2], 3, 3))]
    *rc, ry, rx = axes
    w = placeholder(tuple(a.extent for a in axes), x.dtype, d)
    shape = tuple(n - 2 for n in x.shape[-2:])
    return te.compute(
        shape,
        lambda i, j: te.sum(x[(*rc, i + ry, j + rx)] * w[tuple(axes)], axis=axes),
        name=name,
    )


def total_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """One number from all elements."""
    axes = [te.reduce_axis(n, name=f"r{name}{k}") for k, n in enumerate(x.shape)]
    return te.compute((1,), lambda _: te.sum(x[tuple(axes)], axis=axes), name=name)


def soft_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """The sums of exponentials of a softmax, which are a stage or written where they are summed."""
    if not dtypes.is_float(x.dtype) or 0 in x.shape:
        return map_stage(x, name, d)
    k, r = (te.reduce_axis(x.shape[-1], name=f"{c}{name}") for c in "kr")
    rows = x.shape[:-1] or (1,)
    row = slice(None, len(x.shape) - 1)
    most = te.compute(rows, lambda *i: te.max(x[(*i[row], k)], axis=k), name=f"{name}m")
    if d.pick(2):
        return te.compute(
            rows, lambda *i: te.sum(te.exp(x[(*i[row], r)] - most[i]), axis=r), name=name
        )
    exps: Tensor = te.compute(
        (*rows, x.shape[-1]),
        lambda *i: te.exp(x[(*i[row], i[-1])] - most[i[:-1]]),
        name=f"{name}e",
    )
    return te.compute(rows, lambda *i: te.sum(exps[(*i, r)], axis=r), name=name)


def variance_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """The squared distances of rows from their means, which are a stage or written where needed."""
    if not dtypes.is_float(x.dtype) or 0 in x.shape:
        return map_stage(x, name, d)
    k, r = (te.reduce_axis(x.shape[-1], name=f"{c}{name}") for c in "kr")
    rows = x.shape[:-1] or (1,)
    row = slice(None, len(x.shape) - 1)
    count = float(x.shape[-1])
    total = te.compute(rows, lambda *i: te.sum(x[(*i[row], k)], axis=k), name=f"{name}t")
    mean = te.compute(rows, lambda *i: total[i] / count, name=f"{name}m") if d.pick(2) else None

    def square(*i: Expr) -> Expr:
        distance = x[(*i[row], r)] - (total[i] / count if mean is None else mean[i])
        return te.sum(distance * distance, axis=r)

    return te.compute(rows, square, name=name)


def weighted_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Rows times a matrix, with factors of each row; or with weights of a softmax, say."""
    if x.dtype not in ("float32", "float64") or len(x.shape) < 2 or 0 in x.shape:
        return map_stage(x, name, d)
    n, k = a_size(d), x.shape[-1]
    r = te.reduce_axis(k, name=f"r{name}")
    other = placeholder((k, n), x.dtype, d)
    if d.pick(2):
        row = placeholder(x.shape[:1], x.dtype, d)
        turn = d.pick(3)

        def term(*i: Expr) -> Any:
            a, b, w = x[(*i[:-1], r)], other[r, i[-1]], row[i[0]]
            return (a * w * b, w * (b * a), (a * b) * (w * 2))[turn]

        return te.compute((*x.shape[:-1], n), lambda *i: te.sum(term(*i), axis=r), name=name)
    s, t = (te.reduce_axis(k, name=f"{c}{name}") for c in "st")
    rows = x.shape[:-1]
    most = te.compute(rows, lambda *i: te.max(x[(*i, s)], axis=s), name=f"{name}m")
    exps: Tensor = te.compute(x.shape, lambda *i: te.exp(x[i] - most[i[:-1]]), name=f"{name}e")
    total = te.compute(rows, lambda *i: te.sum(exps[(*i, t)], axis=t), name=f"{name}s")
    share: Tensor = te.compute(x.shape, lambda *i: exps[i] * (1 / total[i[:-1]]), name=f"{name}w")

    def product(*i: Expr) -> Any:
        return te.sum(share[(*i[:-1], r)] * other[r, i[-1]], axis=r)

    return te.compute((*rows, n), product, name=name)


def best_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """The values of an argmax or argmin, whose places are computed too."""
    if len(x.shape) == 1 or x.shape[-1] == 0:
        return map_stage(x, name, d)
    r = te.reduce_axis(x.shape[-1], name=f"r{name}")
    best = (te.argmax, te.argmin)[d.pick(2)]
    shape = x.shape[:-1]
    made: Tensor = te.compute(shape, lambda *i: best(x[(*i, r)], axis=r), name=(f"{name}p", name))
    places, values = made
    use = d.pick(3)
    if use == 0:
        d.outputs.append(places)
    if use < 2:
        return values
    return te.compute(shape, lambda *i: values[i] + places[i].astype(x.dtype), name=name)


def pair_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Two results of one block, of which one or both are used."""
    n = 1 + d.pick(3)
    made: Tensor = te.compute(x.shape, lambda *i: (x[i] * n, x[i] + n), name=(f"{name}q", name))
    others, values = made
    use = d.pick(3)
    if use == 0:
        d.outputs.append(others)
    if use < 2:
        return values
    return te.compute(x.shape, lambda *i: values[i] - others[i], name=f"{name}d")


def product_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """A matrix product, each of the matrices as it is or turned."""
    n, turned = a_size(d), d.pick(2)
    if len(x.shape) == 2 and d.pick(3) == 0:
        return outer_stage(x, name, d)
    k = x.shape[-1]
    other = placeholder((n, k) if turned else (k, n), x.dtype, d)
    r = te.reduce_axis(k, name=f"r{name}")

    def value(*i: Expr) -> Any:
        return x[(*i[:-1], r)] * (other[i[-1], r] if turned else other[r, i[-1]])

    return te.compute((*x.shape[:-1], n), lambda *i: te.sum(value(*i), axis=r), name=name)


def filter_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Weighted sums of neighbours along the first dimension, in one or the other direction.

    The neighbours may be those of a difference of two places, or of pairs of places.
    """
    n = x.shape[0]
    width = 1 + d.pick(max(1, min(3, n)))
    m, pairs = 1 + d.pick(3), 1 + d.pick(2)
    down, window, across = (d.pick(2) == 0 for _ in range(3))
    size = n - (width - 1) - (m - 1) * across
    if size < 1:
        return map_stage(x, name, d)
    weights = placeholder((width, m), x.dtype, d)
    r = te.reduce_axis(width, name=f"r{name}")
    last = size * pairs - 1

    def value(i: Expr, j: Expr, *k: Expr) -> Any:
        place: Any = (last - i) // pairs if down else i // pairs
        place = place + (m - 1 - j) if across else place
        at = place + (width - 1 - r) if window else place + r
        return te.sum(x[(at, *k)] * weights[r, j], axis=r)

    return te.compute((size * pairs, m, *x.shape[1:]), value, name=name)


def outer_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """The sum of the outer products of rows, of the first matrix and another one."""
    k, m = x.shape
    other = placeholder((k, a_size(d)), x.dtype, d)
    r = te.reduce_axis(k, name=f"r{name}")
    shape = (m, other.shape[1])
    return te.compute(shape, lambda i, j: te.sum(x[r, i] * other[r, j], axis=r), name=name)


STAGES: tuple[Stage, ...] = (
    map_stage, function_stage, scaled_stage, two_reads, mask_stage, quotient_stage, triangle_stage,
    biased, shift_stage, stencil_stage, turn_stage, mirror_stage, part_stage, strided_stage,
    resize_stage, gather_stage, pad_stage, spread_stage, flat_stage, reduce_stage, reduce_stage,
    window_stage, filter_stage, total_stage, best_stage, pair_stage, product_stage, product_stage,
)  # fmt: skip
