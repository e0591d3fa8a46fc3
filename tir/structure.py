"""Structural keys, equality and measures of expressions; variables count by identity.

`equality.py` compares programs up to the names that they bind. This module is for subexpressions of
one program.

Split conditions into conjuncts, and combine them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .ir import Binary, Const, Expr, Iter, Op, Stmt, Var, binary
from .visit import children


def key_of(e: Any) -> object:
    """A hashable key, equal for expressions of one structure over the same variables and buffers.

    It is made of numbers, texts and buffers, which are safe to compare; expressions are not.
    """
    kind = type(e)
    if isinstance(e, Var):
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
            parts.append(tuple([_part(x) for x in v]))
        else:
            parts.append(v)
    return tuple(parts)


def _part(x: Any) -> object:
    if isinstance(x, Expr):
        return key_of(x)
    return id(x.var) if type(x) is Iter else x


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
    return key_of(a) == key_of(b)


def size(e: Any) -> int:
    """The number of expression nodes in `e`, shared ones counted each time."""
    kind = type(e)
    if kind is Var or kind is Const:
        return 1
    if kind is Binary:
        return 1 + size(e.a) + size(e.b)
    return 1 + sum([size(c) for c in children(e) if isinstance(c, Expr)])


def tree_size(root: Any, sizes: dict[Any, int]) -> int:
    """`size` of an expression, at the cost of one visit for each node: `sizes` keeps theirs."""
    kind = type(root)
    if kind is Var or kind is Const:
        return 1
    found = sizes.get(root)
    if found is None:
        below = [c for c in children(root) if isinstance(c, Expr)]
        found = sizes[root] = 1 + sum([tree_size(c, sizes) for c in below])
    return found


def tree_depth(root: Any, depths: dict[Any, int]) -> int:
    """The nodes on the longest path down an expression or statement; `depths` keeps theirs."""
    found = depths.get(root)
    if found is None:
        below = [tree_depth(c, depths) for c in children(root) if isinstance(c, (Expr, Stmt))]
        found = depths[root] = 1 + max(below, default=0)
    return found


def conjuncts(predicate: Expr | None) -> list[Expr]:
    """The conditions whose conjunction is `predicate`."""
    if predicate is None:
        return []
    if type(predicate) is Binary and predicate.op is Op.AND and predicate.dtype == "bool":
        return conjuncts(predicate.a) + conjuncts(predicate.b)
    return [predicate]


def conjunction(conditions: Sequence[Expr]) -> Expr | None:
    """The predicate that requires all `conditions`; `None` of none."""
    result: Expr | None = None
    for c in conditions:
        result = c if result is None else binary(Op.AND, result, c)
    return result
