"""The profile of a scheduled program, as columns of integers: loops, accesses, their strides.

One function reads a program, symbolic or concrete, into dimensions (`Dim`). For a sketch they are
expressions over its decisions, which `columns` evaluates for a whole matrix of candidates; for a
concrete program they are the same numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...base import dtypes
from ...codegen.constant_operands import computed_ahead, take_ahead
from ...schedule.block_queries import region_buffers
from ...schedule.facts import last
from ...schedule.find import nests_in
from ...schedule.tensorizable import instruction_of
from ...tir.bounds import variables
from ...tir.digits import Joined, joined
from ...tir.instruction import Instruction
from ...tir.instruction_set import find_instruction
from ...tir.ir import (
    INDEX,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    Label,
    Load,
    Op,
    Prefetch,
    Select,
    Store,
    Var,
    as_dim,
    as_expr,
    binary,
    ceildiv,
    product,
)
from ...tir.piecewise import unclamped
from ...tir.polynomial import ONE, Key, factors
from ...tir.simplify import Simplifier
from ...tir.structure import key_of
from ...tir.visit import children, substitute, walk
from ..rules.access_patterns import EXPENSIVE
from .bodies import parts, share_that_runs
from .memo import Memo

Ints = npt.NDArray[np.int64]

PRODUCTS = frozenset({"int32", "uint32"})
ARITHMETIC = frozenset({*PRODUCTS, *(d for d in dtypes.SCALARS if dtypes.is_float(d))})
"""The dtypes whose arithmetic counts; other arithmetic is mostly of indices."""


@dataclass(frozen=True)
class Term:
    """The part of a loop in an index: `step` for each of `values` values, of which each stays for
    `period` iterations (quotients of a fused loop; otherwise 1)."""

    loop: int
    step: Dim
    values: Dim
    period: Dim


@dataclass(frozen=True)
class StridedAccess:
    """A buffer access: for each joined dimension its size and the terms of its index.

    `start` has of each index what no loop moves. `shared` says how many loops, the outermost ones,
    are also around an earlier visit that accesses the buffer from there on.
    """

    buffer: Buffer
    stores: bool
    sizes: tuple[Dim, ...]
    terms: tuple[tuple[Term, ...], ...]
    start: tuple[object, ...]
    shared: int = 0


@dataclass(frozen=True)
class Domain:
    """The iterations of a block's variable, and the terms that count them, tiles and tails.

    The variable is the sum of the terms if they are `exact`.
    """

    size: Dim
    terms: tuple[Term, ...]
    exact: bool


class Operation(NamedTuple):
    """The operation of an expression on its operands: its node, and the `op` of a binary one.

    The result is of `dtype`, and the operand of a cast of `source`.
    """

    node: type[Expr]
    op: Op | None
    dtype: str
    source: str


@dataclass(frozen=True, eq=False)
class Visit:
    """A block with the loops around it, outermost first, and what one visit of it computes.

    `domains` are those of variables that several loops count. `computed` counts the operations,
    each with the number of the access that it is computed from alone, if there is one: what a
    vector of that holds is computed once. `operations` are all of them but casts, and `expensive`
    the calls that are not among them. One iteration of the loops above the vectors is one
    `instruction`, where it runs as one. `loops` are those around the `block` itself. Of the
    iterations of all, its conditions leave the share `runs`. Visits compare by identity, as nodes
    do: programs that are read with one memo have them in common.
    """

    name: str
    extents: tuple[Dim, ...]
    kinds: tuple[ForKind, ...]
    reduces: tuple[bool, ...]
    accesses: tuple[StridedAccess, ...]
    domains: tuple[Domain, ...]
    operations: int
    computed: Mapping[tuple[Operation, int | None], int]
    expensive: int
    accumulates: bool
    dtype: str
    block: Block
    loops: tuple[For, ...]
    instruction: Instruction | None = None
    runs: float = 1.0


@dataclass(frozen=True)
class Profile:
    """The visits of a program, whose dimensions are over the variables with `bounds`.

    `bytes` are those of all that outlives a call, and of internal buffers that are not made anew in
    some loop. `memo` is that of programs that are read like this one.
    """

    visits: tuple[Visit, ...]
    bytes: Dim
    bounds: Mapping[Var, tuple[int, int]]
    memo: Memo

    @property
    def nests(self) -> Mapping[Var | Label, tuple[Visit, ...]]:
        """The visits in program order by their outermost loop, or by their block if it has none."""
        nests: dict[Var | Label, tuple[Visit, ...]] = {}
        for visit in self.visits:
            top = visit.loops[0].var if visit.loops else visit.block.label
            nests[top] = (*nests.get(top, ()), visit)
        return nests


def profile(
    func: Func,
    bounds: Mapping[Var, tuple[int, int]] | None = None,
    memo: Memo | None = None,
) -> Profile:
    """Read a scheduled program; `bounds` has the ranges of its decisions, in order.

    What is computed ahead of the calls is left out, and so are hints and what never runs. A `memo`
    is for programs that have blocks in common.
    """
    ranges: dict[Var, tuple[Dim, Dim]] = dict(bounds or {})
    func = take_ahead(func, computed_ahead(func))
    around: dict[Block, tuple[For, ...]] = {}
    for b, loops in nests_in(func.body):
        runs = all(not isinstance(s.extent, int) or s.extent > 0 for s in loops)
        if type(b.body) is not Prefetch and runs:
            around[b] = loops
    memo = Memo() if memo is None else memo
    around = {
        part: loops
        for b, loops in around.items()
        for part in memo.kept((parts, b), partial(parts, b))
    }
    private = _private(func, around)
    alone = []
    for b, loops in around.items():
        depths = tuple([private.get(r.buffer, 0) for r in (*b.reads, *b.writes)])
        key = (_visit, b, depths, *((s.var, s.extent, s.kind, s.thread) for s in loops))
        alone.append(memo.kept(key, partial(_visit, b, loops, ranges, private)))
    visits = _sharing(alone, list(around.values()), memo)
    return Profile(visits, _bytes(func, private), dict(bounds or {}), memo)


def _bytes(func: Func, private: Mapping[Buffer, int]) -> Dim:
    lasting = [p for p in func.params if isinstance(p, Buffer)]
    lasting += [b for b in func.allocs if private.get(b, 0) == 0 and b.scope != "register"]
    total: Dim = 0
    for b in lasting:
        total = total + product(b.shape) * dtypes.nbytes(b.dtype)
    return total


def _private(func: Func, around: Mapping[Block, Sequence[For]]) -> dict[Buffer, int]:
    """For each internal buffer, how many loops are around all its uses: it is made inside them."""
    produced = {b for block in around for b in region_buffers(block.writes)} & set(func.allocs)
    shared: dict[Buffer, Sequence[For]] = {}
    for block, loops in around.items():
        for buffer in region_buffers((*block.reads, *block.writes)) & produced:
            shared[buffer] = _common(shared.get(buffer, loops), loops)
    return {buffer: len(loops) for buffer, loops in shared.items()}


def _visit(
    block: Block,
    around: Sequence[For],
    outer: dict[Var, tuple[Dim, Dim]],
    private: Mapping[Buffer, int],
) -> Visit:
    tile = _tile(block)
    loops = [*around, *tile]
    ranges = dict(outer)
    for loop in loops:
        ranges[loop.var] = (0, last(loop.extent))
    values = {i.var: i.value for i in block.iters}
    reduce: set[Var] = set()
    for i in block.iters:
        if i.kind.value == "reduce":
            reduce |= {n for n in walk(i.value) if type(n) is Var}
    if tile:
        stores = [n for n in walk(block.body) if type(n) is Store]
        stored = {v for n in stores for e in n.indices for v in walk(e) if type(v) is Var}
        reduce |= {s.var for s in tile if s.var not in stored}
    simplifier = Simplifier(ranges)
    nest = _Loops(loops)
    accesses: dict[object, StridedAccess] = {}
    operations = expensive = 0
    computed: Counter[tuple[Operation, object]] = Counter()
    dtype = "float32"
    joint = _joint(block)
    fixed = _Fixed(block, loops)
    for n in walk(block.body):
        kind = type(n)
        if kind is Load or kind is Store:
            key = _key(n)
            if key not in accesses:
                at = joined(n.buffer, n.indices)
                indices = [simplifier(substitute(unclamped(e).bare, values)) for e in at.indices]
                at = at._replace(indices=tuple(indices))
                first = private.get(n.buffer, 0)
                accesses[key] = _access(n.buffer, kind is Store, at, nest, first, simplifier)
            if kind is Store:
                dtype = n.buffer.dtype
        elif kind is Call and n.fn in EXPENSIVE:
            expensive += not fixed(n)
        elif n not in joint and (operation := _operation(n)) and not fixed(n):
            read = _read_alone(n)
            alone = None if read is None or read.buffer.scope == "register" else _key(read)
            computed[operation, alone] += 1
            # A product of 32-bit integers takes the time of two operations.
            double = operation.op is Op.MUL and operation.dtype in PRODUCTS
            operations += kind is not Cast and (2 if double else 1)
    written = {a.buffer for a in accesses.values() if a.stores}
    accumulates = any(not a.stores and a.buffer in written for a in accesses.values())
    places: dict[object, int | None] = {key: n for n, key in enumerate(accesses)} | {None: None}
    instruction = instruction_of(block)
    if instruction is not None:
        operations = 1 + accumulates
        computed.clear()
        dtype = min((a.buffer.dtype for a in accesses.values()), key=dtypes.nbytes)
    return Visit(
        block.label.name,
        tuple(s.extent for s in loops),
        tuple(s.kind for s in loops),
        tuple(s.var in reduce for s in loops),
        tuple(accesses.values()),
        tuple(_domains(block, nest, simplifier)),
        operations,
        {(operation, places[key]): count for (operation, key), count in computed.items()},
        expensive,
        accumulates,
        dtype,
        block,
        tuple(around),
        None if instruction is None else find_instruction(instruction),
        share_that_runs(block, tile),
    )


def _sharing(
    visits: Sequence[Visit], around: Sequence[Sequence[For]], memo: Memo
) -> tuple[Visit, ...]:
    """The visits with what their accesses share with earlier ones; `around` has the loops."""
    # By the outermost loop: without that, loops have nothing in common.
    touched: dict[tuple[object, ...], list[Sequence[For]]] = {}
    sharing = []
    for visit, loops in zip(visits, around, strict=True):
        shared = []
        for a in visit.accesses:
            earlier = touched.get((*loops[:1], a.buffer, a.start), ())
            shared.append(max((len(_common(loops, other)) for other in earlier), default=0))
        if any(shared):
            key = (_with_shared, visit, *shared)
            visit = memo.kept(key, partial(_with_shared, visit, shared))
        sharing.append(visit)
        for a in visit.accesses:
            touched.setdefault((*loops[:1], a.buffer, a.start), []).append(loops)
    return tuple(sharing)


def _with_shared(visit: Visit, shared: Sequence[int]) -> Visit:
    accesses = zip(visit.accesses, shared, strict=True)
    return replace(visit, accesses=tuple([replace(a, shared=n) for a, n in accesses]))


def _common(a: Sequence[For], b: Sequence[For]) -> Sequence[For]:
    """The outermost loops that are around both."""
    return [x for x, _ in takewhile(lambda pair: pair[0] is pair[1], zip(a, b, strict=False))]


def _key(n: Load | Store) -> object:
    return (n.buffer, type(n) is Store, *map(key_of, n.indices))


def _read_alone(e: Expr) -> Load | None:
    """The access that `e` is computed from, with numbers, if there is one alone."""
    loads = {}
    below: list[Any] = [e]
    while below:
        n = below.pop()
        if type(n) is Load:
            loads[_key(n)] = n
        elif type(n) is Var:
            return None
        else:
            below += children(n)
    return next(iter(loads.values())) if len(loads) == 1 else None


def _operation(e: Any) -> Operation | None:
    """The operation of an expression, its operands left aside; `None` for an index."""
    match e:
        case Binary(op=op, dtype=dtype) if dtype in ARITHMETIC:
            return Operation(Binary, op, dtype, dtype)
        case Cast(dtype=dtype, value=value) if dtype != INDEX:
            return Operation(Cast, None, dtype, value.dtype)
        case Select() | Call():
            return Operation(type(e), None, e.dtype, e.dtype)
        case _:
            return None


class _Fixed:
    """Whether an expression costs nothing where it stands.

    It was computed before the innermost loop that is around straight code, or just before.
    """

    def __init__(self, block: Block, loops: Sequence[For]) -> None:
        inside = {s.var for s in loops[max(straight_code([s.kind for s in loops]) - 1, 0) :]}
        self._moving = {
            i.var for i in block.iters if any(type(n) is Var and n in inside for n in walk(i.value))
        } | inside
        self._written = region_buffers(block.writes)
        self._known: set[object] = set()

    def __call__(self, e: Expr) -> bool:
        key = key_of(e)
        if key in self._known:
            return True
        self._known.add(key)
        return not any(
            (type(n) is Var and n in self._moving)
            or (type(n) is Load and n.buffer in self._written)
            for n in walk(e)
        )


def straight_code(kinds: Sequence[ForKind]) -> int:
    """The loop from which on all are unrolled or vectors: the body that becomes straight code."""
    level = len(kinds)
    while level > 0 and kinds[level - 1] in (ForKind.UNROLL, ForKind.VECTOR):
        level -= 1
    return level


def _joint(block: Block) -> set[Expr]:
    """Selects right inside of one that has the same other side: their conditions are one mask.

    Which of them hold always, and are left out, depends on the decisions.
    """
    selects = [n for n in walk(block.body) if type(n) is Select]
    return {
        n.then
        for n in selects
        if type(n.then) is Select and key_of(n.then.other) == key_of(n.other)
    }


class _Loops:
    """Loops, outermost first, and which parts of indices they move."""

    def __init__(self, loops: Sequence[For]) -> None:
        self.loops = loops
        self.place = {loop.var: n for n, loop in enumerate(loops)}
        self._known: dict[Expr, bool] = {}
        self._decided: dict[Expr, bool] = {}

    def moves(self, atom: Expr) -> bool:
        """Whether a loop moves an atom."""
        moved = self._known.get(atom)
        if moved is None:
            moved = self._known[atom] = not variables(atom).isdisjoint(self.place)
        return moved

    def decided(self, n: Dim, s: Simplifier) -> bool:
        """Whether a number is over decisions only: what is loaded or passed is not known here."""
        if isinstance(n, int):
            return True
        known = self._decided.get(n)
        if known is None:
            known = self._decided[n] = not any(
                type(x) is Load or (type(x) is Var and x not in s.ranges) for x in walk(n)
            )
        return known

    def moving(self, key: Key) -> list[Expr]:
        """The atoms of a product that the loops move."""
        return [a for a in factors(key) if self.moves(a)]


def _domains(block: Block, around: _Loops, s: Simplifier) -> Iterator[Domain]:
    for i in block.iters:
        value = s(i.value)
        terms = tuple(_terms(value, i.extent, around, s))
        if len(terms) > 1 or any(t.values is not i.extent for t in terms):
            yield Domain(i.extent, terms, _is_sum(value, around, s))


def _tile(block: Block) -> list[For]:
    """The loops in a block's body. Those of an instruction are the lanes of its narrowest operand,
    what is next to each other in it first."""
    if type(block.body) is Store:
        return []
    loops = [n for n in walk(block.body) if type(n) is For]
    if instruction_of(block) is None:
        return loops
    return [replace(s, kind=ForKind.VECTOR) for s in reversed(loops)]


def _access(
    buffer: Buffer, stores: bool, at: Joined, around: _Loops, first: int, s: Simplifier
) -> StridedAccess:
    """The access as loops from number `first` on move it."""
    terms = tuple(
        tuple(t for t in _terms(e, size, around, s) if t.loop >= first)
        for e, size in zip(at.indices, at.shape, strict=True)
    )
    start = tuple(_fixed_part(e, around, s) for e in at.indices)
    return StridedAccess(buffer, stores, at.shape, terms, start)


def _fixed_part(e: Expr, around: _Loops, s: Simplifier) -> object:
    return frozenset(
        (frozenset(Counter(map(key_of, factors(key))).items()), c)
        for key, c in s.poly(e).items()
        if key is ONE or not around.moving(key)
    )


def _is_sum(e: Expr, around: _Loops, s: Simplifier) -> bool:
    """Whether all terms of an index are understood: multiples of loop variables or quotients."""
    for key in s.poly(e):
        moving = around.moving(key)
        if len(moving) > 1 or any(_values(a, around) is None for a in moving):
            return False
    return True


def _terms(e: Expr, size: Dim, around: _Loops, s: Simplifier) -> Iterator[Term]:
    """The terms of an index. What is not understood may take every value of the dimension."""
    place = around.place
    for key, c in s.poly(e).items():
        moving = around.moving(key)
        if not moving:
            continue
        values = _values(moving[0], around) if len(moving) == 1 else None
        step = product([c, *(as_dim(a) for a in factors(key) if not around.moves(a))])
        if values is not None and all(around.decided(n, s) for n in (step, *values)):
            yield Term(values[0], step, values[1], values[2])
            continue
        for n in {place[v] for a in moving for v in variables(a) if v in place}:
            yield Term(n, 1, size, 1)


def _values(atom: Expr, around: _Loops) -> tuple[int, Dim, Dim] | None:
    """The loop, number of values and period of a loop variable or of a quotient of one."""
    if type(atom) is Var:
        n = around.place[atom]
        return n, around.loops[n].extent, 1
    if type(atom) is not Binary or around.moves(atom.b):
        return None
    inner = _values(atom.a, around)
    if inner is None or atom.op not in (Op.FLOORDIV, Op.MOD):
        return None
    loop, values, period = inner
    by = as_dim(atom.b)
    if atom.op is Op.FLOORDIV:
        return loop, ceildiv(values, by), period * by
    return loop, as_dim(binary(Op.MIN, as_expr(values), as_expr(by))), period
