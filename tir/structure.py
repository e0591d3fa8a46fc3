"""Structure of expressions with variables and buffers by identity: keys, equality and size.

`equality.py` compares programs up to the names of what they bind; this is for subexpressions of one
program.
"""

from __future__ import annotations

from typing import Any

from .ir import Binary, Broadcast, Call, Cast, Const, Dot, Expr, Load, Ramp, Select, Shuffle, Var
from .visit import rewrite_children


def key_of(e: Any) -> object:
    """Equal for structurally equal expressions; variables and buffers are themselves."""
    kind = type(e)
    if kind is Var:
        return e
    if kind is Const:
        return (e.dtype, repr(e.value))
    if kind is Binary:
        return (e.op, key_of(e.a), key_of(e.b))
    if kind is Call:
        return (e.fn, *(key_of(a) for a in e.args))
    if kind is Cast:
        return ("cast", e.dtype, key_of(e.value))
    if kind is Select:
        return ("select", key_of(e.cond), key_of(e.then), key_of(e.other))
    if kind is Load:
        return (e.buffer, *(key_of(i) for i in e.indices), e.mask and key_of(e.mask))
    return e


def same(a: Any, b: Any) -> bool:
    """Whether two expressions are structurally equal, variables and buffers by identity."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b) or kind is Var:
        return False
    if kind is Const:
        return a.dtype == b.dtype and repr(a.value) == repr(b.value)
    if a.dtype != b.dtype:
        return False
    if kind is Binary:
        return a.op is b.op and same(a.a, b.a) and same(a.b, b.b)
    if kind is Call:
        return a.fn == b.fn and all(same(x, y) for x, y in zip(a.args, b.args, strict=True))
    if kind is Cast:
        return same(a.value, b.value)
    if kind is Select:
        return same(a.cond, b.cond) and same(a.then, b.then) and same(a.other, b.other)
    if kind is Load:
        return (
            a.buffer is b.buffer
            and a.mask is b.mask
            and all(same(x, y) for x, y in zip(a.indices, b.indices, strict=True))
        )
    if kind is Ramp:
        return same(a.base, b.base) and same(a.stride, b.stride)
    if kind is Dot:
        return same(a.acc, b.acc) and same(a.x, b.x) and same(a.y, b.y)
    if kind is Shuffle:
        return a.order == b.order and same(a.a, b.a) and same(a.b, b.b)
    return kind is Broadcast and same(a.value, b.value)


def size(e: Any) -> int:
    """The number of expression nodes in `e`, shared ones counted each time."""
    kind = type(e)
    if kind is Var or kind is Const:
        return 1
    if kind is Binary:
        return 1 + size(e.a) + size(e.b)
    total = 1

    def count(n: Any) -> Any:
        nonlocal total
        if isinstance(n, Expr):
            total += size(n)
        return n

    rewrite_children(e, count)
    return total
