"""Emit index arithmetic, each term at the loop where its value changes.

A sum is split by the loop in which each term changes. Each part is computed once at the head of
that loop, so LLVM receives index arithmetic already hoisted and shared.

Vectors of indices as one scalar index plus a small 32-bit number per lane.

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
from ...tir.polynomial import wrapped
from ...tir.visit import children
from .llvm_text import Builder, Emitters, calling, lanes_of, spread

HERE = 1 << 30
"""The depth of a value that is only known in the current block."""


VALUE: Emitters[str] = Emitters("expressions")
"""How to compile each type of expression; `llvm_expr` fills it."""


def value(b: Builder, e: Expr) -> str:
    """The operand that holds `e`, after appending its instructions to the current block."""
    if type(e) is Load:
        return _loaded(b, e, e)
    if type(e) is Broadcast and type(e.value) is Load:
        return _loaded(b, e, e.value)
    return VALUE[type(e)](b, e)


def _loaded(b: Builder, e: Expr, load: Load) -> str:
    """The operand of a load, or of one with lanes; one in this block that still holds if any."""
    known = b.block.loads.get(load.buffer)
    if known is not None and e in known:
        return known[e]
    text = VALUE[type(e)](b, e)
    if load.buffer.scope != "register" and load.mask is None and not _reads(b, load.indices[0]):
        b.block.loads.setdefault(load.buffer, {})[e] = text
    return text


def _reads(b: Builder, e: Expr) -> bool:
    """Whether memory is read for an index; those of copies of a loop's body share most of them."""
    kind = type(e)
    if kind is Var or kind is Const:
        return False
    known = b.module.reads.get(e)
    if known is None:
        below = (c for c in children(e) if isinstance(c, Expr))
        known = b.module.reads[e] = kind is Load or any(_reads(b, c) for c in below)
    return known


class Index(NamedTuple):
    """An int64 operand and the depth of the loop in which it changes."""

    text: str
    depth: int


def index(b: Builder, e: Expr) -> Index:
    """A scalar int64 expression as an operand."""
    part, constant = parts(b, e)
    if part is None:
        return Index(str(constant), 0)
    if constant == 0:
        return part
    return Index(emit(b, part.depth, f"add i64 {part.text}, {constant}"), part.depth)


def parts(b: Builder, e: Expr) -> tuple[Index | None, int]:
    """A scalar int64 expression as an operand, `None` if it is 0, plus a constant."""
    terms: dict[Index, int] = {}
    constant = wrapped(_collect(b, e, 1, terms))
    total: Index | None = None
    for term, coefficient in sorted(terms.items(), key=lambda t: t[0].depth):
        if coefficient == 0:
            continue
        scaled = term
        if coefficient != 1:
            scaled = Index(emit(b, term.depth, f"mul i64 {term.text}, {coefficient}"), term.depth)
        if total is None:
            total = scaled
        else:
            depth = max(total.depth, scaled.depth)
            total = Index(emit(b, depth, f"add i64 {total.text}, {scaled.text}"), depth)
    return total, constant


def emit(b: Builder, depth: int, text: str) -> str:
    """A pure instruction at the head of the loop at `depth`, or in the current block."""
    return b.op(text) if depth == HERE else b.op_at(depth, text)


def _collect(b: Builder, e: Expr, scale: int, terms: dict[Index, int]) -> int:
    """Add `scale * e` to `terms`; returns what is constant in it."""
    match e:
        case Const(value=number):
            return scale * int(number)
        case Var():
            term = Index(*b.value_of(e))
            if term.text.lstrip("-").isdecimal():
                return scale * int(term.text)
        case Binary(op=Op.ADD):
            return _collect(b, e.a, scale, terms) + _collect(b, e.b, scale, terms)
        case Binary(op=Op.SUB):
            return _collect(b, e.a, scale, terms) + _collect(b, e.b, -scale, terms)
        case Binary(op=Op.MUL, b=Const(value=factor)):
            return _collect(b, e.a, scale * int(factor), terms)
        case Binary(op=Op.MUL, a=Const(value=factor)):
            return _collect(b, e.b, scale * int(factor), terms)
        case Binary(op=Op.MUL):
            x, y = index(b, e.a), index(b, e.b)
            depth = max(x.depth, y.depth)
            term = Index(emit(b, depth, f"mul i64 {x.text}, {y.text}"), depth)
        case Binary(op=Op.FLOORDIV | Op.MOD, b=Const(value=divisor)) if divisor > 0:
            x = index(b, e.a)
            term = Index(_divide(b, x, e.op, int(divisor)), x.depth)
        case Binary(op=Op.MIN | Op.MAX):
            x, y = index(b, e.a), index(b, e.b)
            depth = max(x.depth, y.depth)
            name = "llvm.smin.i64" if e.op is Op.MIN else "llvm.smax.i64"
            least = calling(b, name, "i64", ("i64", x.text), ("i64", y.text))
            term = Index(emit(b, depth, least), depth)
        case _:
            term = Index(value(b, e), HERE)
    terms[term] = terms.get(term, 0) + scale
    return 0


def _divide(b: Builder, x: Index, op: Op, divisor: int) -> str:
    """Quotient or remainder, rounded down, of an index by a positive constant."""
    if divisor & (divisor - 1) == 0:
        if op is Op.MOD:
            return emit(b, x.depth, f"and i64 {x.text}, {divisor - 1}")
        return emit(b, x.depth, f"ashr i64 {x.text}, {divisor.bit_length() - 1}")
    rest = emit(b, x.depth, f"srem i64 {x.text}, {divisor}")
    below = emit(b, x.depth, f"icmp slt i64 {rest}, 0")
    if op is Op.MOD:
        up = emit(b, x.depth, f"add i64 {rest}, {divisor}")
        return emit(b, x.depth, f"select i1 {below}, i64 {up}, i64 {rest}")
    quotient = emit(b, x.depth, f"sdiv i64 {x.text}, {divisor}")
    borrow = emit(b, x.depth, f"sext i1 {below} to i64")
    return emit(b, x.depth, f"add i64 {quotient}, {borrow}")


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
