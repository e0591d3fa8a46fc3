"""Remove masks whose disabled lanes are unobservable."""

from __future__ import annotations

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
    masks = _Masks()
    masks.collect(func.body)
    free = {b for b, keys in masks.found.items() if len(keys) == 1 and masks.loads.get(b) == keys}
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


class _Masks:
    """The masks of the stores to each register that has masked stores, and of its loads.

    A load without a mask has the key `None`.
    """

    def __init__(self) -> None:
        self.found: dict[Buffer, set[object]] = {}
        self.loads: dict[Buffer, set[object]] = {}
        self._keys: dict[Expr, object] = {}

    def key(self, mask: Expr) -> object:
        known = self._keys.get(mask)
        if known is None:
            known = self._keys[mask] = key_of(mask)
        return known

    def collect(self, body: Stmt) -> None:
        for n in distinct(body):
            kind = type(n)
            if kind is Store and _is_masked(n):
                self.found.setdefault(n.buffer, set()).add(self.key(n.mask))
            elif kind is Load and n.buffer.scope == SCOPE:
                key = None if n.mask is None else self.key(n.mask)
                self.loads.setdefault(n.buffer, set()).add(key)
