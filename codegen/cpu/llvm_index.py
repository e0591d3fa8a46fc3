"""Emit index arithmetic, each term at the loop where its value changes.

A sum is split by the loop in which each term changes. Each part is computed once at the head of
that loop, so LLVM receives index arithmetic already hoisted and shared.
"""

from __future__ import annotations

from typing import NamedTuple

from ...tir.ir import Binary, Broadcast, Const, Expr, Load, Op, Var
from ...tir.polynomial import wrapped
from ...tir.visit import children
from .llvm_text import Builder, Emitters, calling

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
