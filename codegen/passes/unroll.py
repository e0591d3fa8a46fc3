"""Unroll loops into sequences of copies of their bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...base.errors import BuildError
from ...tir.ir import (
    INDEX,
    Alloc,
    Binary,
    Broadcast,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Op,
    Ramp,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    const,
    seq,
)
from ...tir.polynomial import ONE, Poly, factors, wrapped
from ...tir.simplify import Simplifier
from ...tir.structure import tree_size
from ...tir.visit import children, nested, rewrite_children, walk, with_func_body
from .rewrite import fresh, loops, map_stmts, simplifier_of, statements

MAX_STORES = 8192
MAX_NODES = 1 << 19


def unroll(func: Func) -> Func:
    """Copy the body of each unrolled loop for each value of its variable.

    for i in unrolled(2): C[i] = A[i]   ->   C[0] = A[0]; C[1] = A[1]

    Raises `BuildError` if the result has more than 8192 stores, or more than 524288 operations
    and operands, which are emitted as often as they are used.
    """
    count = _counted(func.body, {})
    unrolled = {f.var for f in loops(func.body) if f.kind is ForKind.UNROLL}
    if count.stores > MAX_STORES and unrolled:
        raise BuildError(
            "unrolling gives {0} stores, more than {1}", count.stores, MAX_STORES, hint=_FEWER
        )
    if count.nodes > MAX_NODES:
        raise BuildError(
            "the code of {0} has {1} operations and operands, more than {2}",
            func.name, count.nodes, MAX_NODES,
            hint=f"{_FEWER}, or {_STAGES}" if unrolled else _STAGES,
        )  # fmt: skip
    if not unrolled:
        return func
    copier = _Copier(unrolled, simplifier_of(func))

    def visit(s: Stmt) -> Stmt:
        if type(s) is For and s.kind is ForKind.UNROLL:
            make = copier.stmt(s)
            return s if make is None else make()
        return map_stmts(s, visit)

    return with_func_body(func, visit(func.body))


_FEWER = "unroll fewer loops, or split them first"
_STAGES = "compute parts of a long expression in stages of their own"


class _Count(NamedTuple):
    """Stores after unrolling, and the nodes of expressions."""

    stores: int
    nodes: int


def _counted(s: Stmt, sizes: dict[Expr, int]) -> _Count:
    """What `s` has after unrolling; expressions count as often as they are used."""
    nodes = sum(tree_size(e, sizes) for e in children(s) if isinstance(e, Expr))
    below = [_counted(c, sizes) for c in nested(s)]
    stores = sum(c.stores for c in below) + (type(s) is Store)
    nodes += sum(c.nodes for c in below)
    if type(s) is For and s.kind is ForKind.UNROLL:
        assert isinstance(s.extent, int)
        return _Count(stores * s.extent, nodes * s.extent)
    return _Count(stores, nodes)


Make = Callable[[], Any]
"""Makes the copy of a node for the present values of the unrolled loops' variables."""


class _Copier:
    """Turns statements into functions that make their copies.

    A function is `None` for a part that is the same in all copies. Indices are polynomials, of
    which a copy only adds up the constant; equal parts of copies are one object.
    """

    def __init__(self, variables: set[Var], s: Simplifier) -> None:
        self.variables = variables
        self.values: dict[Var, int] = {}
        self.s = s

    def stmt(self, s: Stmt) -> Make | None:
        if type(s) is For and s.kind is ForKind.UNROLL:
            return self._unrolled(s)
        if type(s) is Store:
            return self._store(s)
        if type(s) is Seq:
            return self._seq(s)
        if type(s) is If:
            return self._if(s)
        return self._generic(s)

    def expr(self, e: Expr) -> Make | None:
        if type(e) is Const:
            return None
        if e.dtype == INDEX:
            return self._index(e)
        if type(e) is Ramp:
            return self._around(e, e.base, e.stride, lambda b: Ramp(b, e.stride, e.lanes, e.dtype))
        if type(e) is Broadcast:
            return self._around(e, e.value, None, lambda v: Broadcast(v, e.lanes, e.dtype))
        if type(e) is Load:
            (offset,) = e.indices
            return self._around(e, offset, e.mask, lambda i: Load(e.buffer, (i,), e.dtype, e.mask))
        if type(e) is Binary:
            return self._binary(e)
        return self._generic(e)

    def _unrolled(self, s: For) -> Make:
        assert isinstance(s.extent, int)
        body, values, var, extent = self.stmt(s.body), self.values, s.var, s.extent
        # Each copy has its own variables and buffers.
        binds = any(type(n) in (Let, Alloc, For) for n in statements(s.body))

        def make() -> Stmt:
            copies = []
            for i in range(extent):
                values[var] = i
                copy = s.body if body is None else body()
                copies.append(fresh(copy) if binds and i else copy)
            return seq(*copies)

        return make

    def _seq(self, s: Seq) -> Make | None:
        parts = [(c, self.stmt(c)) for c in s.stmts]
        if all(make is None for _, make in parts):
            return None
        return lambda: seq(*(c if make is None else make() for c, make in parts))

    def _if(self, s: If) -> Make | None:
        cond, then = self.expr(s.cond), self.stmt(s.then)
        other = None if s.other is None else self.stmt(s.other)
        if cond is None and then is None and other is None:
            return None

        def make() -> Stmt:
            c = s.cond if cond is None else cond()
            if type(c) is Const:
                if c.value:
                    return s.then if then is None else then()
                if s.other is None:
                    return Seq(())
                return s.other if other is None else other()
            new_then = s.then if then is None else then()
            return If(c, new_then, s.other if other is None else other())

        return make

    def _store(self, s: Store) -> Make | None:
        (offset,) = s.indices
        index, value = self.expr(offset), self.expr(s.value)
        mask = None if s.mask is None else self.expr(s.mask)
        if index is None and value is None and mask is None:
            return None
        return lambda: Store(
            s.buffer,
            s.indices if index is None else (index(),),
            s.value if value is None else value(),
            s.mask if mask is None else mask(),
        )

    def _index(self, e: Expr) -> Make | None:
        rest: Poly = {}
        steps: list[tuple[Var, int]] = []
        for key, c in self.s.poly(e).items():
            if type(key) is Var and key in self.variables:
                steps.append((key, c))
            elif self._depends(key):
                return self._generic(e)
            else:
                rest[key] = c
        if not steps and not self._names(e):
            return None  # `min(j * 4 + 12, 11)` is the same in all copies too, but names `j`
        start = rest.pop(ONE, 0)
        base = self.s.build(rest) if rest else None
        values, made = self.values, dict[int, Expr]()

        def make() -> Expr:
            offset = start
            for var, step in steps:
                offset += step * values[var]
            found = made.get(offset)
            if found is None:
                found = const(wrapped(offset)) if base is None else base + wrapped(offset)
                made[offset] = found
            return found

        return make

    def _around(
        self, e: Expr, child: Expr, other: Expr | None, build: Callable[[Any], Expr]
    ) -> Make | None:
        """A node of which only one child, as a rule, is not the same in all copies."""
        part = self.expr(child)
        if other is not None and self.expr(other) is not None:
            return self._generic(e)
        return None if part is None else _shared(part, build)

    def _binary(self, e: Binary) -> Make | None:
        a, b = self.expr(e.a), self.expr(e.b)
        if a is None and b is None:
            return None
        x, y, op, dtype = e.a, e.b, e.op, e.dtype

        def make() -> Expr:
            left, right = x if a is None else a(), y if b is None else b()
            if type(left) is Const and type(right) is Const and dtype == "bool":
                return self.s(Binary(op, left, right, dtype))
            if dtype == "bool" and op in (Op.AND, Op.OR):
                return _logic(op, left, right)
            return Binary(op, left, right, dtype)

        return make

    def _generic(self, n: Any) -> Make | None:
        """A node of any other type; conditions that become constant decide selects."""
        if self._is_variable(n):
            return lambda: const(self.values[n])
        parts = [self._part(c) for c in children(n)]
        if all(p is None for p in parts):
            return None

        def make() -> Any:
            given = iter(parts)

            def put(c: Any) -> Any:
                part = next(given)
                return c if part is None else part()

            new = rewrite_children(n, put)
            if type(new) is Select and type(new.cond) is Const:
                return new.then if new.cond.value else new.other
            return new

        return make

    def _part(self, c: Any) -> Make | None:
        if isinstance(c, Stmt):
            return self.stmt(c)
        if type(c) is Var:
            return self._generic(c)
        return self.expr(c) if isinstance(c, Expr) else None

    def _is_variable(self, n: Any) -> bool:
        return type(n) is Var and n in self.variables

    def _depends(self, key: Any) -> bool:
        return any(map(self._names, factors(key)))

    def _names(self, e: Expr) -> bool:
        """Whether an unrolled variable is in `e`, even if its value does not change it."""
        return any(self._is_variable(n) for n in walk(e))


def _shared(part: Make, build: Callable[[Any], Expr]) -> Make:
    """Makes one node for each part, which is kept so that its identity stays its own."""
    made: dict[int, tuple[Any, Expr]] = {}

    def make() -> Expr:
        p = part()
        found = made.get(id(p))
        if found is None or found[0] is not p:
            found = made[id(p)] = p, build(p)
        return found[1]

    return make


def _logic(op: Op, a: Expr, b: Expr) -> Expr:
    for x, y in ((a, b), (b, a)):
        if type(x) is Const:
            return y if bool(x.value) is (op is Op.AND) else x
    return Binary(op, a, b, "bool")
