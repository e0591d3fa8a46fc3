"""Remove masks whose disabled lanes are unobservable."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

from ...tir.ir import Buffer, Expr, Func, Load, Stmt, Store
from ...tir.structure import key_of
from ...tir.visit import distinct, rewrite_children, with_func_body
from .registers import SCOPE
from .rewrite import statements


def drop_masks(func: Func) -> Func:
    """Remove masks of registers whose disabled lanes are unobservable.

    store(R, load(R, mask=m) + 1, mask=m); store(C, load(R, mask=m), mask=m)
      ->   R = R + 1; store(C, R, mask=m)

    That is so if all reads of a register have the mask of its stores.
    """
    if not any(_is_masked(s) for s in statements(func.body)):
        return func
    key = cache(key_of)
    stored, loaded = defaultdict[Buffer, set[object]](set), defaultdict[Buffer, set[object]](set)
    for n in distinct(func.body):
        if type(n) is Store and _is_masked(n):
            stored[n.buffer].add(key(n.mask))
        elif type(n) is Load and n.buffer.scope == SCOPE:
            loaded[n.buffer].add(None if n.mask is None else key(n.mask))
    free = {b for b, keys in stored.items() if len(keys) == 1 and loaded[b] == keys}
    if not free:
        return func

    def visit(n: Any) -> Any:
        kind = type(n)
        if kind is Load and n.buffer in free:
            return Load(n.buffer, n.indices, n.dtype)
        if kind is Store and n.buffer in free:
            return Store(n.buffer, n.indices, visit(n.value))
        return rewrite_children(n, visit) if isinstance(n, Stmt | Expr) else n

    return with_func_body(func, visit(func.body))


def _is_masked(s: Stmt) -> bool:
    return type(s) is Store and s.mask is not None and s.buffer.scope == SCOPE
