"""Vectors of indices as one scalar index plus a small 32-bit number per lane.

Vector units do not divide integers, and few multiply 64 bits by 64. Divisors of index vectors are
constants, so it is enough to divide the shared index once and to add each lane's number to the
remainder: if the numbers span at most the divisor, a lane's quotient is the shared one or the next.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

from ...base import dtypes
from ...tir.ir import (
    COMPARISONS,
    INDEX,
    Binary,
    Broadcast,
    Cast,
    Const,
    Expr,
    Load,
    Op,
    Ramp,
    Select,
    Var,
    const,
)
from .llvm_index import index
from .llvm_text import Builder, lanes_of, spread

LIMIT = 1 << 30
"""Numbers of lanes, and what they are compared with, stay below: sums of two fit 32 bits."""
_SIGNED = {Op.EQ: "eq", Op.NE: "ne", Op.LT: "slt", Op.LE: "sle", Op.GT: "sgt", Op.GE: "sge"}


class Lanes(NamedTuple):
    """`base + offsets`: a scalar index, and an operand of int32 lanes from `low` to `high`.

    The sum wraps around where the base is near a limit of int64: a place in memory never is, and
    what is divided or compared must be known not to be (`bits`).
    """

    base: Expr
    offsets: str
    low: int
    high: int


def lanes(b: Builder, e: Expr) -> Lanes | None:
    """A vector of indices in that form; `None` if it is not known to have it."""
    match e:
        case Ramp(base=base, stride=Const(value=step), lanes=n):
            last = int(step) * (n - 1)
            steps = ", ".join(f"i32 {int(step) * k}" for k in range(n))
            return _checked(Lanes(base, f"<{steps}>", min(last, 0), max(last, 0)))
        case Broadcast(value=value):
            return Lanes(value, "zeroinitializer", 0, 0)
        case Binary(op=Op.ADD | Op.SUB):
            x, y = lanes(b, e.a), lanes(b, e.b)
            return None if x is None or y is None else _sum(b, e, x, y)
        case Binary(op=Op.FLOORDIV | Op.MOD, b=Broadcast(value=Const(value=n))) if n > 0:
            x = lanes(b, e.a)
            return None if x is None else _divided(b, e, x, int(n))
    return None


def binary(b: Builder, e: Binary) -> str | None:
    """The operand of vectors of indices that are divided or compared; `None` if it takes the
    general way."""
    facts = dtypes.info(e.a.dtype)
    if facts.scalar != INDEX or facts.lanes == 1:
        return None
    if e.op in COMPARISONS:
        return _compared(b, e)
    return _quotients(b, e) if e.op in (Op.FLOORDIV, Op.MOD) else None


def bits(b: Builder, e: Expr) -> int | None:
    """Of how many bits the size of a scalar index is at most; `None` if any number may come."""
    combine: Callable[[int, int], int]
    match e:
        case Const(value=number):
            return abs(int(number)).bit_length()
        case Var():
            return b.module.bits.get(e)
        case Cast(value=inner) if dtypes.is_integer(inner.dtype):
            return _of_range(dtypes.int_limits(inner.dtype))
        case Load(buffer=buffer):
            return _of_range(buffer.value_range or dtypes.int_limits(buffer.dtype))
        case Select(then=x, other=y):
            combine = max
        case Binary(op=op, a=x, b=y) if op in _BITS:
            combine = _BITS[op]
        case _:
            return None
    first, second = bits(b, x), bits(b, y)
    return None if first is None or second is None else combine(first, second)


_BITS: dict[Op, Callable[[int, int], int]] = {
    Op.ADD: lambda x, y: max(x, y) + 1,
    Op.SUB: lambda x, y: max(x, y) + 1,
    Op.MUL: operator.add,
    Op.FLOORDIV: lambda x, _: x + 1,
    Op.MOD: lambda _, y: y,
    Op.MIN: max,
    Op.MAX: max,
}


def _of_range(limits: tuple[int, int]) -> int:
    return max(abs(n).bit_length() for n in limits)


def _fits(b: Builder, e: Expr) -> bool:
    """Whether adding the numbers of lanes to a scalar index stays within int64."""
    size = bits(b, e)
    return size is not None and size < 62


def _quotients(b: Builder, e: Binary) -> str | None:
    """Quotients or remainders, in 64 bits."""
    found = lanes(b, e)
    if found is None:
        return None
    n = dtypes.info(e.dtype).lanes
    narrow, wide = lanes_of("i32", n), lanes_of("i64", n)
    offsets = b.pure(f"sext {narrow} {found.offsets} to {wide}")
    return b.pure(f"add {wide} {_spread(b, found.base, 'i64', n)}, {offsets}")


def _compared(b: Builder, e: Binary) -> str | None:
    """A comparison of vectors of which one at least is computed: LLVM folds those of ramps."""
    if type(e.a) is not Binary and type(e.b) is not Binary:
        return None
    x, y = lanes(b, e.a), lanes(b, e.b)
    if x is None or y is None or not (_fits(b, x.base) and _fits(b, y.base)):
        return None
    found = _sum(b, Binary(Op.SUB, e.a, e.b, e.a.dtype), x, y)
    if found is None:
        return None
    # Beyond what lanes reach, how far does not matter.
    limit = Binary(Op.MAX, const(0) - found.base, const(found.low - 1), INDEX)
    limit = Binary(Op.MIN, limit, const(found.high + 1), INDEX)
    n = dtypes.info(e.a.dtype).lanes
    t = lanes_of("i32", n)
    return b.pure(f"icmp {_SIGNED[e.op]} {t} {found.offsets}, {_spread(b, limit, 'i32', n)}")


def _sum(b: Builder, e: Binary, x: Lanes, y: Lanes) -> Lanes | None:
    t = lanes_of("i32", dtypes.info(e.dtype).lanes)
    name, base = ("add", x.base + y.base) if e.op is Op.ADD else ("sub", x.base - y.base)
    low, high = (y.low, y.high) if e.op is Op.ADD else (-y.high, -y.low)
    offsets = b.pure(f"{name} {t} {x.offsets}, {y.offsets}")
    return _checked(Lanes(base, offsets, x.low + low, x.high + high))


def _divided(b: Builder, e: Binary, x: Lanes, n: int) -> Lanes | None:
    count = dtypes.info(e.dtype).lanes
    t, bits = lanes_of("i32", count), lanes_of("i1", count)
    base = x.base + x.low
    offsets = b.pure(f"sub {t} {x.offsets}, splat (i32 {x.low})") if x.low else x.offsets
    span = x.high - x.low
    if n + span > LIMIT or not _fits(b, base):
        return None
    first = _spread(b, Binary(Op.MOD, base, const(n), INDEX), "i32", count)
    rest = b.pure(f"add {t} {first}, {offsets}")
    divisor = f"splat (i32 {n})"
    if span > n:
        if e.op is Op.MOD:
            return Lanes(const(0), b.pure(f"urem {t} {rest}, {divisor}"), 0, n - 1)
        carried = b.pure(f"udiv {t} {rest}, {divisor}")
    else:
        beyond = b.pure(f"icmp uge {t} {rest}, {divisor}")
        if e.op is Op.MOD:
            below = b.pure(f"sub {t} {rest}, {divisor}")
            chosen = b.pure(f"select {bits} {beyond}, {t} {below}, {t} {rest}")
            return Lanes(const(0), chosen, 0, n - 1)
        carried = b.pure(f"zext {bits} {beyond} to {t}")
    return Lanes(Binary(Op.FLOORDIV, base, const(n), INDEX), carried, 0, (n - 1 + span) // n)


def _checked(x: Lanes) -> Lanes | None:
    return x if x.low > -LIMIT and x.high < LIMIT else None


def _spread(b: Builder, e: Expr, scalar: str, n: int) -> str:
    """A scalar index in each of `n` lanes."""
    text = index(b, e).text
    if scalar != "i64" and text.startswith("%"):
        text = b.pure(f"trunc i64 {text} to {scalar}")
    return spread(b, text, scalar, n, pure=True)
