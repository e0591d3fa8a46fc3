"""Masks that keep nothing from being seen."""

from __future__ import annotations

from typing import Any

from ...target import Target
from ...tir.ir import (
    Broadcast,
    Buffer,
    Const,
    Dot,
    Expr,
    Func,
    Load,
    Matmul,
    Ramp,
    Shuffle,
    Stmt,
    Store,
    Var,
)
from ...tir.structure import key_of
from ...tir.visit import rewrite_children, walk
from ..masks import counts_lanes
from .registers import SCOPE
from .scope import with_body

_ACROSS: frozenset[type] = frozenset({Dot, Matmul, Shuffle})
"""What looks at other lanes than its own."""


def unmask(func: Func, target: Target) -> Func:
    """Leave out masks of registers, and of what is the same for all lanes, where lanes that are off
    are seen by nobody.

    store(R, load(R, mask=m) + load(A[broadcast(i)], mask=m), mask=m); store(C, load(R, mask=m), m)
      ->   R = R + A[broadcast(i)]; store(C, R, mask=m)

    That is so where all reads of a register have the mask of what is stored to it.
    """
    del target
    masks = _Masks()
    masks.collect(func.body)
    if not masks.found:
        return func
    free = {b for b, keys in masks.found.items() if len(keys) == 1 and masks.loads.get(b) == keys}

    def expr(e: Any, off: object) -> Any:
        kind = type(e)
        if kind is Const or kind is Var or kind is Ramp:
            return e
        if kind is Load and (e.buffer in free or is_shared(e, off)):
            return Load(e.buffer, e.indices, e.dtype)
        inside = None if kind in _ACROSS else off
        return rewrite_children(e, lambda c: expr(c, inside) if isinstance(c, Expr) else c)

    def is_shared(e: Load, off: object) -> bool:
        if e.mask is None or type(e.indices[0]) is not Broadcast:
            return False
        return masks.key(e.mask) == off and counts_lanes(e.mask)

    def stmt(s: Any) -> Any:
        if type(s) is Store:
            off = None if s.mask is None else masks.key(s.mask)
            value = expr(s.value, off)
            mask = None if s.buffer in free else s.mask
            same = value is s.value and mask is s.mask
            return s if same else Store(s.buffer, s.indices, value, mask)
        if isinstance(s, Stmt):
            return rewrite_children(s, stmt)
        return expr(s, None) if isinstance(s, Expr) else s

    return with_body(func, stmt(func.body))


class _Masks:
    """The masks of what is stored to each register that is stored to under one, and of its loads.

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
        for n in walk(body):
            kind = type(n)
            if kind is Store and n.mask is not None and n.buffer.scope == SCOPE:
                self.found.setdefault(n.buffer, set()).add(self.key(n.mask))
            elif kind is Load and n.buffer.scope == SCOPE:
                key = None if n.mask is None else self.key(n.mask)
                self.loads.setdefault(n.buffer, set()).add(key)
