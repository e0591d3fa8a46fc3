"""Remove masks whose disabled lanes are unobservable."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

from ...base import dtypes
from ...tir.ir import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Func,
    Load,
    Ramp,
    Select,
    Shuffle,
    Stmt,
    Store,
)
from ...tir.structure import key_of
from ...tir.visit import children, distinct, rewrite_children, with_func_body
from .registers import SCOPE
from .rewrite import statements
from .vectorize import enabled_lanes


def drop_masks(func: Func) -> Func:
    """Remove masks of registers whose disabled lanes are unobservable.

    store(R, load(R, mask=m) + 1, mask=m); store(C, load(R, mask=m), mask=m)
      ->   R = R + 1; store(C, R, mask=m)

    That is so if all reads of a register have the mask of its stores, or are vectors of whose lanes
    nothing stores those that the mask disables: shuffles may pick the others.
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
    picked = {b for b, keys in stored.items() if len(keys) == 1 and loaded[b] - keys == {None}}
    if picked:
        free |= _disabled_unread(func.body, picked)
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


def _disabled_unread(body: Stmt, registers: set[Buffer]) -> set[Buffer]:
    """Those of some registers, each a vector, of which nothing that is stored depends on lanes that
    the masks of their stores disable."""
    enabled: dict[Buffer, int] = {}
    for n in distinct(body):
        if type(n) is Store and n.buffer in registers:
            lanes = dtypes.info(n.value.dtype).lanes if n.mask is None else enabled_lanes(n.mask)
            known = 0 if lanes is None or not _is_whole(n) else lanes
            enabled[n.buffer] = min(known, enabled.get(n.buffer, known))
    read = _read_lanes(body)
    return {b for b in registers if max(read[b], default=0) < enabled[b]}


def _read_lanes(body: Stmt) -> dict[Buffer, set[int]]:
    """The lanes of registers that what is stored depends on, of reads without a mask."""
    found = defaultdict[Buffer, set[int]](set)
    seen: set[tuple[Expr, frozenset[int]]] = set()

    def read(e: Expr, lanes: frozenset[int]) -> None:
        if not lanes or (e, lanes) in seen:
            return
        seen.add((e, lanes))
        if type(e) is Shuffle:
            width = dtypes.info(e.a.dtype).lanes
            picks = [e.order[n] for n in lanes]
            read(e.a, frozenset(p for p in picks if p < width))
            read(e.b, frozenset(p - width for p in picks if p >= width))
            return
        if type(e) is Load and e.buffer.scope == SCOPE and e.mask is None:
            found[e.buffer] |= lanes if _is_whole(e) else {_OTHER}
        for child in children(e):
            if isinstance(child, Expr):
                read(child, lanes if type(e) in _LANE_BY_LANE else _all(child))

    for s in statements(body):
        for child in children(s):
            if isinstance(child, Expr):
                read(child, _all(child))
    return found


def _is_whole(access: Load | Store) -> bool:
    """Whether it is of all lanes of a register, in their order."""
    match access.indices:
        case (Ramp(base=Const(value=0), stride=Const(value=1)),):
            return True
        case _:
            return False


_OTHER = 1 << 30
"""Beyond all lanes: an access of lanes that are not known."""
_LANE_BY_LANE = {Binary, Call, Cast, Select}


def _all(e: Expr) -> frozenset[int]:
    return frozenset(range(dtypes.info(e.dtype).lanes))


def _is_masked(s: Stmt) -> bool:
    return type(s) is Store and s.mask is not None and s.buffer.scope == SCOPE
