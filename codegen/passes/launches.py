"""Launches of a lowered program: what of a statement is blocks, shared memory, threads and code.

How code of threads uses buffers: elements, loops and conditions around each access.

Whether an element tells which thread uses it: indices as numbers whose digits are threads.

Which values may differ between the threads of a launch: where they may wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple

from ...tir.dependence import Access
from ...tir.equality import flat
from ...tir.ir import (
    WARP,
    Alloc,
    BarrierScope,
    Buffer,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Op,
    Range,
    Select,
    Stmt,
    Store,
    Var,
    call,
    seq,
)
from ...tir.polynomial import ONE, Key, Poly, constant, factors
from ...tir.simplify import Simplifier
from ...tir.structure import conjuncts, key_of
from ...tir.visit import children, nested, substitute, walk, with_func_body
from .rewrite import allocated, statements

BLOCK_AXES = ("blockIdx.z", "blockIdx.y", "blockIdx.x")
THREAD_AXES = ("threadIdx.z", "threadIdx.y", "threadIdx.x")
AXES = (*BLOCK_AXES, *THREAD_AXES)
"""The axes of a launch, from outside; threads next to each other differ in the last one."""


class Launch(NamedTuple):
    """The loops over blocks and threads of a launch, from outside, and the code of a thread."""

    blocks: tuple[For, ...]
    shared: tuple[Buffer, ...]
    threads: tuple[For, ...]
    code: Stmt

    @property
    def axes(self) -> tuple[For, ...]:
        return (*self.blocks, *self.threads)

    @property
    def thread_count(self) -> int:
        return prod(_extent(f) for f in self.threads)

    def extent(self, axis: str) -> int:
        """The iterations of an axis; 1 of one that has no loop."""
        return next((_extent(f) for f in self.axes if f.thread == axis), 1)

    def extents(self, unit: str) -> tuple[int, int, int]:
        """The extents of `blockIdx` or `threadIdx`, in x, y and z."""
        x, y, z = (self.extent(f"{unit}.{axis}") for axis in "xyz")
        return x, y, z

    def statement(self) -> Stmt:
        body = self.code
        for f in reversed(self.threads):
            body = replace(f, body=body)
        body = allocated(self.shared, body)
        for f in reversed(self.blocks):
            body = replace(f, body=body)
        return body


def launch_of(stmt: Stmt) -> Launch:
    """The launch that a statement at the top of a lowered program is."""
    blocks, shared, threads = list[For](), list[Buffer](), list[For]()
    while True:
        if type(stmt) is For and stmt.kind is ForKind.THREAD:
            (blocks if stmt.thread in BLOCK_AXES else threads).append(stmt)
            stmt = stmt.body
        elif type(stmt) is Alloc and stmt.buffer.scope == "shared" and not threads:
            shared.append(stmt.buffer)
            stmt = stmt.body
        else:
            return Launch(tuple(blocks), tuple(shared), tuple(threads), stmt)


def launches_of(func: Func) -> tuple[Launch, ...]:
    """The launches of a lowered program, in order."""
    return tuple(map(launch_of, flat(func.body)))


def map_launches(func: Func, f: Callable[[Launch], Launch]) -> Func:
    """`func` with `f` applied to its launches."""

    def visit(stmt: Stmt) -> Stmt:
        old = launch_of(stmt)
        new = f(old)
        return stmt if new is old else new.statement()

    stmts = flat(func.body)
    new = [visit(stmt) for stmt in stmts]
    same = all(a is b for a, b in zip(stmts, new, strict=True))
    return func if same else with_func_body(func, seq(*new))


def with_code(launch: Launch, code: Stmt) -> Launch:
    """`launch` with other code; the same launch if it is the same code."""
    return launch if code is launch.code else launch._replace(code=code)


def _extent(f: For) -> int:
    assert isinstance(f.extent, int), "lowered programs are concrete"
    return f.extent


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


def tells_apart(
    a: Use, b: Use, crossed: Collection[Var], fixed: Collection[Var], s: Simplifier
) -> bool:
    """Whether two uses of one element are surely at the same values of the variables `crossed`.

    Those of `fixed` are the same in both anyway; all other variables may differ. Decided by simple
    structure: both indices have the same digits in `crossed`, and what else is in them is less than
    the lowest one.
    """
    known: set[Expr] = set()
    for x, y in zip(a.indices, b.indices, strict=True):
        known |= _digits(s.poly(x), s.poly(y), crossed, fixed, s)
    return all(_is_told(v, known, s) for v in crossed)


def _digits(
    p: Poly, q: Poly, crossed: Collection[Var], fixed: Collection[Var], s: Simplifier
) -> set[Expr]:
    """The atoms in `crossed` that are equal where two indices are."""
    one, other = _parts(p, crossed, fixed), _parts(q, crossed, fixed)
    if one is None or other is None:
        return set()
    (digits, same, rest), (others, also_same, other_rest) = one, other
    if digits != others or same != also_same or not (s.fits(p) and s.fits(q)):
        return set()
    (low, high), (least, most) = s.interval(rest), s.interval(other_rest)
    below = max(high, most) - min(low, least)
    found: set[Expr] = set()
    for key, step in sorted(digits.items(), key=lambda item: abs(item[1])):
        if isinstance(key, tuple) or abs(step) <= below:
            return set()
        low, high = s.ends(key)
        below += abs(step) * (high - low)
        found.add(key)
    return found


def _parts(
    p: Poly, crossed: Collection[Var], fixed: Collection[Var]
) -> tuple[Poly, Poly, Poly] | None:
    """The terms of an index in `crossed`, those in `fixed`, and others; `None` for mixed ones."""
    digits: Poly = {}
    same: Poly = {}
    rest: Poly = {}
    for key, c in p.items():
        variables = {n for f in factors(key) for n in walk(f) if type(n) is Var}
        if key is ONE or variables.isdisjoint(crossed):
            part = same if key is not ONE and variables <= set(fixed) else rest
        elif variables <= set(crossed):
            part = digits
        else:
            return None
        part[key] = c
    return digits, same, rest


def _is_told(v: Var, known: set[Expr], s: Simplifier) -> bool:
    """Whether a variable is known by some of its quotients and remainders.

    With x // m known, which is v for m = 1, so are x // m % c and x // (m * c), and the other way.
    """
    factor = _lowest(v, known, s)
    while factor > 1:
        lower = _steps(v, factor, known, s)
        if not lower:
            return False
        factor = min(lower)
    return factor == 1


def _lowest(v: Var, known: set[Expr], s: Simplifier) -> int:
    """The least m for which `v // m` is known; that of a quotient that is always 0 if none is."""
    if v in known:
        return 1
    quotients = [m for e in known if (m := _quotient(v, e, s)) is not None]
    return min(quotients, default=s.ends(v)[1] + 1)


def _quotient(v: Var, e: Key, s: Simplifier) -> int | None:
    """The m for which an atom is `v // m`."""
    if e is v:
        return 1
    definition = s.definitions.get(e) if isinstance(e, Expr) else None
    if definition is None or definition[0] is not Op.FLOORDIV or definition[1] != {v: 1}:
        return None
    return constant(definition[2])


def _steps(v: Var, factor: int, known: set[Expr], s: Simplifier) -> list[int]:
    """The m below `factor` for which `v // m` is known, since `v // factor` is: by `v // m % c`.

    `v // (m * c)` is known too, either as a quotient of `v // factor` or because it is 0.
    """
    found = list[int]()
    for e in known:
        definition = s.definitions.get(e)
        if definition is None or definition[0] is not Op.MOD or len(definition[1]) != 1:
            continue
        ((inner, one),) = definition[1].items()
        m, c = _quotient(v, inner, s), constant(definition[2])
        if one != 1 or m is None or c is None or m >= factor:
            continue
        if m * c % factor == 0 or m * c > s.ends(v)[1]:
            found.append(m)
    return found


class Varying:
    """The variables of a launch whose values may differ between the threads of a block or a warp.

    They are threads' numbers, and names of values that depend on these or on memory. All threads
    run a loop equally often and are in the same iteration of it, so that its variable is not one.
    """

    def __init__(self, launch: Launch) -> None:
        numbers = {f.var for f in launch.threads if f.extent != 1}
        row = launch.threads[-1:]
        rows_are_warps = all(isinstance(f.extent, int) and f.extent % WARP == 0 for f in row)
        in_warp = numbers & {f.var for f in row} if rows_are_warps else numbers
        self._variables = {BarrierScope.BLOCK: set(numbers), BarrierScope.WARP: set(in_warp)}
        lets = [s for s in statements(launch.code) if type(s) is Let]  # those around others first
        for scope, variables in self._variables.items():
            for s in lets:
                if self(s.value, scope):
                    variables.add(s.var)

    def __call__(self, e: Expr, scope: BarrierScope = BarrierScope.BLOCK) -> bool:
        """Whether threads of one block, or of one warp, may have different values of `e`."""
        variables = self._variables[scope]
        return any(type(n) is Load or n in variables for n in walk(e))
