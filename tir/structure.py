"""Structural keys, equality and size of expressions; variables and buffers count by identity.

`equality.py` compares programs up to the names that they bind. This module is for subexpressions of
one program.
"""

from __future__ import annotations

from typing import Any

from .ir import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Dot,
    Expr,
    Load,
    Matmul,
    Ramp,
    Select,
    Shuffle,
    Var,
)
from .visit import rewrite_children


def key_of(e: Any) -> object:
    """A hashable key, equal for expressions of one structure over the same variables and buffers.

    It is made of numbers, texts and buffers, which are safe to compare; expressions are not.
    """
    kind = type(e)
    if kind is Var:
        return id(e)
    if kind is Const:  # by their texts, 0.0 and -0.0 differ and NaN equals itself
        return (e.dtype, e.value if type(e.value) is int else repr(e.value))
    if kind is Binary:
        return (e.op, key_of(e.a), key_of(e.b))
    parts: list[object] = [kind.__name__]
    for name in e.__slots__:
        v = getattr(e, name)
        if isinstance(v, Expr):
            parts.append(key_of(v))
        elif type(v) is tuple:
            parts.append(tuple([key_of(x) if isinstance(x, Expr) else x for x in v]))
        else:
            parts.append(v)
    return tuple(parts)


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
    if kind is Matmul:
        shape = (a.rows, a.group) == (b.rows, b.group)
        return shape and same(a.acc, b.acc) and same(a.x, b.x) and same(a.y, b.y)
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
