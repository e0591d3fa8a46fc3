"""Buffers in registers: each element, or vector of elements, becomes a buffer of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ... import dtypes
from ...errors import BuildError
from ...target import Target
from ...tir.ir import (
    INDEX,
    Alloc,
    Buffer,
    Const,
    Expr,
    Func,
    Load,
    Ramp,
    Select,
    Stmt,
    Store,
    const,
)
from ...tir.visit import rewrite_children, walk
from .scope import with_body

SCOPE = "register"
Place = tuple[int, int]
"""The first element and the number of elements of an access."""


def registers(func: Func, target: Target) -> Func:
    """Make a buffer of one value of each value that a buffer of scope `register` holds.

    R[ramp(0, 1, 16)] = ...; R[ramp(16, 1, 16)] = ...   ->   R_0[...] = ...; R_16[...] = ...

    Code generation turns such buffers into values. Raises `BuildError` where an index is not a
    constant, or accesses overlap in part.
    """
    del target
    slots = _slots(func)
    if not slots:
        return func

    def visit(n: Any) -> Any:
        if isinstance(n, Load | Store) and n.buffer in slots:
            slot = slots[n.buffer][_place(n)]
            (size,) = slot.shape
            where = _whole(int(size))  # type: ignore[arg-type]
            if isinstance(n, Load):  # nothing uses what the lanes hold that are off
                return Load(slot, where, n.dtype)
            mask = None if n.mask is None else visit(n.mask)
            value = visit(n.value)
            if mask is not None:
                value = Select(mask, value, Load(slot, where, value.dtype), value.dtype)
            return Store(slot, where, value)
        if type(n) is Alloc and n.buffer in slots:
            body = visit(n.body)
            for slot in slots[n.buffer].values():
                body = Alloc(slot, body)
            return body
        return rewrite_children(n, visit) if isinstance(n, Expr | Stmt) else n

    return with_body(func, visit(func.body))


def _whole(size: int) -> tuple[Expr, ...]:
    if size == 1:
        return (const(0),)
    return (Ramp(const(0), const(1), size, dtypes.vector(INDEX, size)),)


def _slots(func: Func) -> dict[Buffer, dict[Place, Buffer]]:
    places: dict[Buffer, dict[Place, None]] = {}
    for n in walk(func):
        if type(n) is Alloc and n.buffer.scope == SCOPE:
            places.setdefault(n.buffer, {})
        elif isinstance(n, Load | Store) and n.buffer.scope == SCOPE:
            places.setdefault(n.buffer, {})[_place(n)] = None
    slots: dict[Buffer, dict[Place, Buffer]] = {}
    for buffer, found in places.items():
        slots[buffer] = {}
        end = 0
        for start, size in sorted(found):
            if start < end:
                raise BuildError(
                    "{0} is held in registers, and element {1} is accessed in vectors that differ",
                    buffer.name,
                    start,
                    hint="vectorize all loops over it alike",
                )
            end = start + size
            name = f"{buffer.name}_{start}"
            slots[buffer][start, size] = replace(buffer, name=name, shape=(size,))
    return slots


def _place(n: Load | Store) -> Place:
    match n.indices[0]:
        case Const(value=start):
            return int(start), 1
        case Ramp(base=Const(value=start), stride=Const(value=1), lanes=lanes):
            return int(start), lanes
        case index:
            raise BuildError(
                "{0} is held in registers, and its index {1} is not a constant",
                n.buffer.name,
                index,
                hint="unroll or vectorize the loops in the index, or use another scope",
            )
