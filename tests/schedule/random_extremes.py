"""Stages of random programs with integers near the limits of their dtypes, which wrap around."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

from tilewright.base import dtypes
from tilewright.tir import te
from tilewright.tir.ir import INDEX, Expr, const

from .random_stages import Draft, Stage, Tensor, map_stage, placeholder


@cache
def extreme_integers(dtype: str) -> tuple[int, ...]:
    """Integers of a dtype near the limits of this one and of narrower ones, without 0."""
    low, high = dtypes.int_limits(dtype)
    powers = [sign << n for n in (0, 7, 8, 15, 16, 31, 32, 53, 62, 63, 64) for sign in (1, -1)]
    near = {n + k for n in powers for k in (-1, 0, 1)} - {0}
    return tuple(sorted(n for n in near if low <= n <= high))


def an_extreme(dtype: str, d: Draft) -> int:
    numbers = extreme_integers(dtype)
    return numbers[d.pick(len(numbers))]


def extreme_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Arithmetic on integers and constants near the limits of their dtype."""
    if not dtypes.is_integer(x.dtype):
        return map_stage(x, name, d)
    a, b = an_extreme(x.dtype, d), an_extreme(x.dtype, d)
    bits = d.pick(dtypes.info(x.dtype).bits)
    compute = ARITHMETIC[d.pick(len(ARITHMETIC))]
    return te.compute(x.shape, lambda *i: compute(x[i], a, b, bits), name=name)


ARITHMETIC: tuple[Callable[[Any, int, int, int], Any], ...] = (
    lambda x, a, b, s: x // a,
    lambda x, a, b, s: x % a - x,
    lambda x, a, b, s: (x + b) // a,
    lambda x, a, b, s: (x * b + a) % 7,
    lambda x, a, b, s: te.select(x != 0, a // x, b),
    lambda x, a, b, s: te.select(x != 0, a % x, b),
    lambda x, a, b, s: x * a + b,
    lambda x, a, b, s: a - x,
    lambda x, a, b, s: -x // 3 - te.abs(x),
    lambda x, a, b, s: te.minimum(te.maximum(x, a), b),
    lambda x, a, b, s: te.select(x + b < a, x, x - b),
    lambda x, a, b, s: te.select((x >= a) & (x <= b), x * 2, x // 2),
    lambda x, a, b, s: (x << s) + a,
    lambda x, a, b, s: (x >> s) * b,
    lambda x, a, b, s: (x << s) // a,
    lambda x, a, b, s: (x & a) | (x ^ b),
    lambda x, a, b, s: (x * (1 << min(s, 6)) + b) >> s,
)
"""What is computed of an element, two extreme constants and a number of bits to shift by."""


def edge_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Guards, values and indices of a place and a number so large that they wrap around.

    The number is an element of a tensor, a parameter or a constant. Indices have no parameters:
    that other iterations of a loop stored such an element is true, and not shown by the verifier.
    Nor are there shifts.
    """
    if 0 in x.shape:
        return map_stage(x, name, d)
    n, dtype = x.shape[0], ("int64", "int64", "int32", "uint8")[d.pick(4)]
    use = d.pick(4) if n > 1 else 1 + d.pick(3)  # `% 1` would use no number
    numbers = (an_element, a_constant) if use == 0 else (an_element, a_parameter, a_constant)
    number = numbers[d.pick(len(numbers))](n, dtype, d)
    place = PLACES[d.pick(len(PLACES) - 2 * (use == 0))]
    guard = EDGES[d.pick(len(EDGES))]
    a, b = an_extreme(INDEX, d), an_extreme(INDEX, d)

    def value(i: Expr, *rest: Expr) -> Any:
        at = place(i, te.cast(number(i), INDEX), a)
        if use == 0:
            return x[(at % n, *rest)]
        if use == 1 and dtypes.is_integer(x.dtype):
            return x[(i, *rest)] + te.cast(at, x.dtype)
        return te.select(guard(at, b), x[(i, *rest)], 0)

    return te.compute(x.shape, value, name=name)


def an_element(n: int, dtype: str, d: Draft) -> Callable[[Expr], Expr]:
    """One of a tensor, the same at all places or one for each."""
    each = d.pick(2)
    tensor = placeholder((n if each else 1,), dtype, d)
    return lambda i: tensor[i if each else 0]


def a_parameter(_: int, dtype: str, d: Draft) -> Callable[[Expr], Expr]:
    scalar = te.scalar(dtype, name=f"P{len(d.params)}")
    d.params.append(scalar)
    return lambda _: scalar


def a_constant(_: int, dtype: str, d: Draft) -> Callable[[Expr], Expr]:
    number = const(an_extreme(dtype, d), dtype)
    return lambda _: number


PLACES: tuple[Callable[[Any, Any, int], Any], ...] = (
    lambda i, s, a: i + s,
    lambda i, s, a: s - i,
    lambda i, s, a: i * a + s,
    lambda i, s, a: i * s + a,
    lambda i, s, a: (i + s) // (a if abs(a) > 1 else 3),
    lambda i, s, a: (i + s) % (a if abs(a) > 1 else 3),
    lambda i, s, a: te.minimum(i + a, s),
    lambda i, s, a: te.abs(s) - i * a,
    lambda i, s, a: (i << 60) + s,
    lambda i, s, a: (s + i) >> 2,
)
"""What is computed of a place, a number and a constant, all of int64; shifts come last."""
EDGES: tuple[Callable[[Any, int], Any], ...] = (
    lambda place, b: place < b,
    lambda place, b: place >= b,
    lambda place, b: place // 3 == b,
    lambda place, b: place != b,
    lambda place, b: place + b > place,
)


def shifted_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Shifts by data and by constants, in both directions, negative counts and large ones too."""
    if not dtypes.is_integer(x.dtype):
        return map_stage(x, name, d)
    bits, (low, high) = dtypes.info(x.dtype).bits, dtypes.int_limits(x.dtype)
    counts = [c for c in (0, bits - 1, bits, bits + 1, 2 * bits, -1, low) if low <= c <= high]
    left, by = d.pick(2), d.pick(4)
    constant = const(counts[d.pick(len(counts))], x.dtype)
    data = placeholder(x.shape, x.dtype, d) if by > 1 else None

    def value(*i: Expr) -> Any:
        count = constant if data is None else data[i]
        if by == 3:
            count = count & (bits - 1)
        return x[i] << count if left else x[i] >> count

    return te.compute(x.shape, value, name=name)


def signs_stage(x: Tensor, name: str, d: Draft) -> Tensor:
    """Comparisons of a signed integer with an unsigned one of 64 bits, in both orders."""
    if not dtypes.is_integer(x.dtype):
        return map_stage(x, name, d)
    signed = dtypes.info(x.dtype).kind == "int"
    y = placeholder(x.shape[-1:] if d.pick(2) else x.shape, "uint64" if signed else "int64", d)
    compare, turned = SIGNS[d.pick(len(SIGNS))], d.pick(2)

    def value(*i: Expr) -> Any:
        a, b = x[i], y[i[len(i) - len(y.shape) :]]
        return te.select(compare(b, a) if turned else compare(a, b), a, a ^ 5)

    return te.compute(x.shape, value, name=name)


SIGNS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
)  # fmt: skip


EXTREMES: tuple[Stage, ...] = (
    extreme_stage, extreme_stage, edge_stage, edge_stage, shifted_stage, signs_stage,
)  # fmt: skip
