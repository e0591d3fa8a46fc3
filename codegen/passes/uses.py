"""How code of threads uses buffers: elements, loops and conditions around each access."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from ...tir.dependence import Access
from ...tir.ir import (
    Buffer,
    Expr,
    For,
    If,
    Let,
    Load,
    Range,
    Select,
    Stmt,
    Store,
    Var,
    call,
)
from ...tir.structure import conjuncts, key_of
from ...tir.visit import children, nested, substitute, walk


class Use(NamedTuple):
    """A load or store of an element, under `conditions` and in `loops`, from outside."""

    buffer: Buffer
    writes: bool
    indices: tuple[Expr, ...]
    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]

    def access(self, shared: Container[Var]) -> Access:
        """The use where the loops in `shared` are at one iteration and the others sweep."""
        inner = {f.var: f.extent for f in self.loops if f.var not in shared}
        return Access([Range(i, 1) for i in self.indices], inner, self.conditions)

    @property
    def key(self) -> object:
        """Equal for uses of the same elements."""
        indices = tuple(map(key_of, self.indices))
        conditions = frozenset(map(key_of, self.conditions))
        return self.buffer, self.writes, indices, tuple(id(f.var) for f in self.loops), conditions


class Scope(NamedTuple):
    """What is around a statement: loops from outside, conditions, and values of variables."""

    loops: tuple[For, ...] = ()
    conditions: tuple[Expr, ...] = ()
    values: Mapping[Var, Expr] = {}

    def below(self, s: Stmt, child: Stmt) -> Scope:
        """The scope of a statement directly below `s`, which is in this one."""
        if type(s) is For:
            return self._replace(loops=(*self.loops, s))
        if type(s) is If:
            if s.then is s.other:  # one object, at two places
                return self
            cond = substitute(s.cond, self.values)
            return self.under(cond if child is s.then else call("not", cond))
        if type(s) is Let and not any(type(n) is Load for n in walk(s.value)):
            return self._replace(values={**self.values, s.var: substitute(s.value, self.values)})
        return self

    def under(self, condition: Expr) -> Scope:
        return self._replace(conditions=(*self.conditions, *conjuncts(condition)))

    def own_uses(self, s: Stmt) -> Iterator[Use]:
        """The uses by a statement itself, not those by statements in it."""
        for e in children(s):
            if isinstance(e, Expr):
                yield from self._loads(e)
        if type(s) is Store:
            yield self._use(s.buffer, True, s.indices)

    def _loads(self, e: Expr) -> Iterator[Use]:
        if type(e) is Select:
            cond = substitute(e.cond, self.values)
            yield from self._loads(e.cond)
            yield from self.under(cond)._loads(e.then)
            yield from self.under(call("not", cond))._loads(e.other)
            return
        for c in children(e):
            if isinstance(c, Expr):
                yield from self._loads(c)
        if type(e) is Load:
            yield self._use(e.buffer, False, e.indices)

    def _use(self, buffer: Buffer, writes: bool, indices: tuple[Expr, ...]) -> Use:
        places = tuple([substitute(i, self.values) for i in indices])
        return Use(buffer, writes, places, self.loops, self.conditions)


TOP = Scope()
"""The scope of what nothing is around."""


def uses_of(code: Stmt, scope: Scope = TOP) -> list[Use]:
    """The uses of buffers in a statement, each kind once, in the order of execution."""
    found: dict[object, Use] = {}

    def visit(s: Stmt, scope: Scope) -> None:
        for use in scope.own_uses(s):
            found.setdefault(use.key, use)
        for child in nested(s):
            visit(child, scope.below(s, child))

    visit(code, scope)
    return list(found.values())
