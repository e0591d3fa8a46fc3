"""Buffers in registers: each element, or vector of elements, becomes a buffer of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

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
    Stmt,
    Store,
    const,
)
from ...tir.visit import rewrite_children, walk
from .scope import with_body

SCOPE = "register"
Elements = tuple[int, ...]


def registers(func: Func, target: Target) -> Func:
    """Make a buffer of one value of each value that a buffer of scope `register` holds.

    R[ramp(0, 1, 16)] = ...; R[ramp(16, 1, 16)] = ...   ->   R_0[...] = ...; R_16[...] = ...

    A value is as wide as the widest vector that is accessed, narrower accesses are parts of it.
    Code generation turns such buffers into values. Raises `BuildError` where an index is not a
    constant.
    """
    del target
    slots = _slots(func)
    if not slots:
        return func

    def visit(n: Any) -> Any:
        kind = type(n)
        if (kind is Load or kind is Store) and n.buffer in slots:
            elements = _elements(n)
            slot, first = slots[n.buffer].place(n.buffer, elements)
            where = _index(first, len(elements))
            mask = None if n.mask is None else visit(n.mask)
            if kind is Load:
                return Load(slot, where, n.dtype, mask)
            return Store(slot, where, visit(n.value), mask)
        if kind is Alloc and n.buffer in slots:
            body = visit(n.body)
            for slot in slots[n.buffer].buffers:
                body = Alloc(slot, body)
            return body
        return rewrite_children(n, visit) if isinstance(n, Expr | Stmt) else n

    return with_body(func, visit(func.body))


class _Slots(NamedTuple):
    """The values of a buffer, and where each element is: in which of them, and in which lane."""

    buffers: tuple[Buffer, ...]
    lanes: dict[int, tuple[Buffer, int]]

    def place(self, buffer: Buffer, elements: Elements) -> tuple[Buffer, int]:
        """The value that holds `elements` one after the other, and the lane of the first."""
        places = [self.lanes[e] for e in elements]
        slot, first = places[0]
        if places != [(slot, first + k) for k in range(len(places))]:
            raise BuildError(
                "{0} is held in registers, and the elements {1} are accessed as one vector, others "
                "of their vectors in another order",
                buffer.name,
                elements,
                hint="vectorize all loops over it along one dimension",
            )
        return slot, first


def _slots(func: Func) -> dict[Buffer, _Slots]:
    accessed: dict[Buffer, dict[Elements, None]] = {}
    for n in walk(func):
        kind = type(n)
        if kind is Alloc and n.buffer.scope == SCOPE:
            accessed.setdefault(n.buffer, {})
        elif (kind is Load or kind is Store) and n.buffer.scope == SCOPE:
            accessed.setdefault(n.buffer, {})[_elements(n)] = None
    return {buffer: _cut(buffer, list(found)) for buffer, found in accessed.items()}


def _cut(buffer: Buffer, accesses: list[Elements]) -> _Slots:
    """Elements that are accessed together go together."""
    group: dict[int, list[int]] = {}
    for elements in accesses:
        merged = {id(group[e]): group[e] for e in elements if e in group}
        if len(merged) == 1 and all(e in group for e in elements):
            continue
        together = sorted({*elements, *(e for g in merged.values() for e in g)})
        for e in together:
            group[e] = together
    buffers: list[Buffer] = []
    lanes: dict[int, tuple[Buffer, int]] = {}
    for together in {id(g): g for g in group.values()}.values():
        name = f"{buffer.name}_{together[0]}"
        slot = replace(buffer, name=name, shape=(len(together),))
        buffers.append(slot)
        for lane, e in enumerate(together):
            lanes[e] = slot, lane
    return _Slots(tuple(buffers), lanes)


def _index(first: int, count: int) -> tuple[Expr, ...]:
    if count == 1:
        return (const(first),)
    return (Ramp(const(first), const(1), count, dtypes.vector(INDEX, count)),)


def _elements(n: Load | Store) -> Elements:
    match n.indices[0]:
        case Const(value=start):
            return (int(start),)
        case Ramp(base=Const(value=start), stride=Const(value=step), lanes=lanes):
            return tuple(range(int(start), int(start) + int(step) * lanes, int(step)))
        case index:
            raise BuildError(
                "{0} is held in registers, and its index {1} is not a constant",
                n.buffer.name,
                index,
                hint="unroll or vectorize the loops in the index, or use another scope",
            )
