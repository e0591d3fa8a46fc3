"""Random programs for schedules: one to four stages, driven by numbers that somebody picks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tilewright.tir import te
from tilewright.tir.ir import Expr, Func

Tensor: TypeAlias = Any
Pick = Callable[[int], int]
"""A number from 0 to below the given one."""
SIZES = (1, 2, 3, 4, 5, 6, 7, 8)


def a_program(pick: Pick) -> Func:
    """One to four stages, each reading the one before, and sometimes an earlier one too."""
    dtype = ("int32", "float32")[pick(2)]
    shape = tuple(a_size(pick) for _ in range(1 + pick(2)))
    first = te.placeholder(shape, dtype, name="A")
    params = [first]
    tensors = [first]
    outputs: list[Tensor] = []
    count = 1 + pick(4)
    for k in range(count):
        made = STAGES[pick(len(STAGES))](tensors[-1], f"S{k}", pick, params)
        if pick(4) == 0:
            made = joined(made, tensors, f"J{k}", pick)
        if k < count - 1 and pick(5) == 0:
            outputs.append(made)
        tensors.append(made)
    last: Any = tensors[-1]
    if pick(6) == 0:
        target = te.placeholder(last.shape, last.dtype, name="IO")
        new: Any = te.compute(last.shape, lambda *i: last[i] - target[i], name="U")
        return te.func([*params, *outputs, target], name="random", inplace={new: target})
    return te.func([*params, *outputs, last], name="random")


def a_size(pick: Pick) -> int:
    return 0 if pick(32) == 0 else SIZES[pick(len(SIZES))]


def joined(x: Tensor, tensors: list[Tensor], name: str, pick: Pick) -> Tensor:
    """`x` with an earlier tensor added that has at most as many dimensions, shifted within it."""
    fitting = [t for t in tensors if len(t.shape) <= len(x.shape) and 0 not in t.shape]
    if not fitting:
        return x
    other = fitting[pick(len(fitting))]

    def value(*i: Expr) -> Any:
        at = [j % n for j, n in zip(i[len(i) - len(other.shape) :], other.shape, strict=True)]
        return x[i] + other[tuple(at)]

    def whole(*i: Expr) -> Any:
        return x[i] + other[i[len(i) - len(other.shape) :]]

    fits = x.shape[len(x.shape) - len(other.shape) :] == other.shape
    return te.compute(x.shape, whole if fits else value, name=name)


def map_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    return te.compute(x.shape, lambda *i: x[i] * 2 + 1, name=name)


def two_reads(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    other = placeholder(x.shape, x.dtype, params)
    return te.compute(x.shape, lambda *i: te.maximum(x[i], other[i]) - x[i], name=name)


def biased(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """A sum plus a term, which can be the start of the sum."""
    total = product_stage(x, f"{name}m", pick, params)
    bias = placeholder(total.shape[-1:], x.dtype, params)
    return te.compute(total.shape, lambda *i: total[i] + bias[i[-1]], name=name)


def shift_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """A stencil over the first dimension, with padding of zeros."""
    n = x.shape[0]

    def at(i: Expr, rest: tuple[Expr, ...]) -> Any:
        before = te.select(i > 0, x[(i - 1, *rest)], 0)
        after = te.select(i < n - 1, x[(i + 1, *rest)], 0)
        return before + x[(i, *rest)] - after

    return te.compute(x.shape, lambda i, *rest: at(i, rest), name=name)


def turn_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    shape = tuple(reversed(x.shape))
    return te.compute(shape, lambda *i: x[tuple(reversed(i))] + 3, name=name)


def part_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """The first or the last elements of the first dimension."""
    n = x.shape[0]
    size = min(n, 1 + pick(max(n, 1)))
    start = (0, n - size)[pick(2)]
    shape = (size, *x.shape[1:])
    return te.compute(shape, lambda i, *rest: x[(i + start, *rest)] * 3, name=name)


def pad_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """Zeros after the last elements of the first dimension, or around them."""
    n = x.shape[0]
    before = pick(2)

    def value(i: Expr, rest: tuple[Expr, ...]) -> Any:
        inside = i < n if before == 0 else (i >= before) & (i < n + before)
        return te.select(inside, x[(i - before if before else i, *rest)], 0)

    shape = (n + before + 1, *x.shape[1:])
    return te.compute(shape, lambda i, *rest: value(i, rest), name=name)


def spread_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """A new dimension, along which all elements are the same."""
    if len(x.shape) > 2:
        return map_stage(x, name, pick, params)
    n = a_size(pick)
    if pick(2):
        return te.compute((n, *x.shape), lambda _, *i: x[i] - 2, name=name)
    return te.compute((*x.shape, n), lambda *i: x[i[:-1]] - 2, name=name)


def flat_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """Two dimensions as one, or one as two."""
    if len(x.shape) == 2:
        rows, columns = x.shape
        return te.compute((rows * columns,), lambda i: x[i // columns, i % columns], name=name)
    if len(x.shape) == 1 and x.shape[0] % 2 == 0:
        return te.compute((x.shape[0] // 2, 2), lambda i, j: x[i * 2 + j] + 1, name=name)
    return map_stage(x, name, pick, params)


def reduce_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    r = te.reduce_axis(x.shape[-1], name=f"r{name}")
    reduce = (te.sum, te.max, te.min)[pick(3)]
    if len(x.shape) == 1:
        return te.compute((3,), lambda i: reduce(x[r] + i.astype(x.dtype), axis=r), name=name)
    return te.compute(x.shape[:-1], lambda *i: reduce(x[(*i, r)], axis=r), name=name)


def window_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """Sums of neighbours along the first dimension."""
    n = x.shape[0]
    width = 1 + pick(max(1, min(3, n)))
    r = te.reduce_axis(width, name=f"r{name}")
    shape = (n - width + 1, *x.shape[1:])
    return te.compute(shape, lambda i, *k: te.sum(x[(i + r, *k)], axis=r), name=name)


def total_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """One number from all elements."""
    axes = [te.reduce_axis(n, name=f"r{name}{k}") for k, n in enumerate(x.shape)]
    return te.compute((1,), lambda _: te.sum(x[tuple(axes)], axis=axes), name=name)


def best_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """The values of an argmax, whose places are computed too."""
    if len(x.shape) == 1 or x.shape[-1] == 0:
        return map_stage(x, name, pick, params)
    r = te.reduce_axis(x.shape[-1], name=f"r{name}")
    shape = x.shape[:-1]
    made: Tensor = te.compute(
        shape, lambda *i: te.argmax(x[(*i, r)], axis=r), name=(f"{name}p", name)
    )
    places, values = made
    if pick(2):
        return values
    return te.compute(shape, lambda *i: values[i] + places[i].astype(x.dtype), name=name)


def product_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    n = a_size(pick)
    other = placeholder((x.shape[-1], n), x.dtype, params)
    r = te.reduce_axis(x.shape[-1], name=f"r{name}")
    shape = (*x.shape[:-1], n)
    return te.compute(
        shape, lambda *i: te.sum(x[(*i[:-1], r)] * other[r, i[-1]], axis=r), name=name
    )


def placeholder(shape: tuple[int, ...], dtype: str, params: list[Tensor]) -> Tensor:
    params.append(te.placeholder(shape, dtype, name=f"P{len(params)}"))
    return params[-1]


STAGES = (
    map_stage, two_reads, biased, shift_stage, turn_stage, part_stage, pad_stage, spread_stage,
    flat_stage, reduce_stage, window_stage, total_stage, best_stage, product_stage,
)  # fmt: skip
