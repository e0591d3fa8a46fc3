"""The reads and writes of a statement, with inner bindings substituted."""

from __future__ import annotations

from typing import NamedTuple

from .ir import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    Dim,
    Expr,
    For,
    If,
    Let,
    Load,
    Prefetch,
    Seq,
    Stmt,
    Store,
    Var,
)
from .visit import substitute, walk


class BufferAccess(NamedTuple):
    """`extents[d]` elements from `first[d]` on, in each dimension d."""

    buffer: Buffer
    is_write: bool
    first: tuple[Expr, ...]
    extents: tuple[Dim, ...]


class Accesses:
    """All accesses in a statement, as functions of loop variables and free variables.

    Blocks count with their declared regions. `loops` are the extents of the loops inside, `inside`
    the buffers that are allocated there.
    """

    def __init__(self, stmt: Stmt) -> None:
        self.found: list[BufferAccess] = []
        self.loops: dict[Var, Dim] = {}
        self.inside: set[Buffer] = set()
        self._stmt(stmt, {})

    def _stmt(self, s: Stmt, values: dict[Var, Expr]) -> None:
        match s:
            case For():
                self.loops[s.var] = s.extent
                self._stmt(s.body, values)
            case Seq():
                for child in s.stmts:
                    self._stmt(child, values)
            case If():
                self._loads(s.cond, values)
                self._stmt(s.then, values)
                if s.other is not None:
                    self._stmt(s.other, values)
            case Let():
                self._loads(s.value, values)
                self._stmt(s.body, {**values, s.var: substitute(s.value, values)})
            case Alloc():
                self.inside.add(s.buffer)
                self._stmt(s.body, values)
            case Store():
                self._loads(s.value, values)
                for e in s.indices if s.mask is None else (*s.indices, s.mask):
                    self._loads(e, values)
                self._add(s.buffer, True, s.indices, values)
            case Barrier():
                pass
            case Prefetch():
                for e in s.indices:
                    self._loads(e, values)
            case Block():
                self._block(s, values)
            case _:
                raise TypeError(f"{type(s).__name__} is no statement")

    def _block(self, s: Block, values: dict[Var, Expr]) -> None:
        for i in s.iters:
            self._loads(i.value, values)
        if s.predicate is not None:
            self._loads(s.predicate, values)
        inner = {**values, **{i.var: substitute(i.value, values) for i in s.iters}}
        for is_write, regions in ((False, s.reads), (True, s.writes)):
            for r in regions:
                first = tuple([substitute(x.min, inner) for x in r.ranges])
                extents = tuple([x.extent for x in r.ranges])
                self.found.append(BufferAccess(r.buffer, is_write, first, extents))

    def _loads(self, e: Expr, values: dict[Var, Expr]) -> None:
        for n in walk(e):
            if type(n) is Load:
                self._add(n.buffer, False, n.indices, values)

    def _add(
        self, buffer: Buffer, is_write: bool, indices: tuple[Expr, ...], values: dict[Var, Expr]
    ) -> None:
        first = tuple([substitute(i, values) for i in indices])
        self.found.append(BufferAccess(buffer, is_write, first, (1,) * len(first)))
