"""Nests over the same points as one nest, which stores several results.

    for i: S[i] = X[i] + Y[i]            for i:
    for i: R[i] = max(S[i], 0)     ->      s = X[i] + Y[i]
    for i: T[i] = S[i] * R[i]              r = max(s, 0)
                                           R[i] = r; T[i] = s * r

`S`, which nothing else reads, is no buffer any more. A value that is read at several places is
named, and so computed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any

from ..tir.ir import (
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    IterKind,
    Let,
    Load,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
    store,
)
from ..tir.names import unique
from ..tir.regions import infer_regions
from ..tir.visit import nested, rewrite_children, substitute, walk, with_body

MAX_TREE = 256
"""Operations and operands, those of values that are read twice counted twice, up to which the rules
inline what one result is computed from."""


@dataclass(frozen=True, eq=False)
class _Nest:
    """The loops around a block, and what it stores at its points, by buffer.

    There are no `values` of a reduction, and of stores elsewhere.
    """

    stmt: Stmt
    block: Block
    values: Mapping[Buffer, Expr]

    @cached_property
    def loads(self) -> Mapping[Buffer, Sequence[Load]]:
        found: dict[Buffer, list[Load]] = {}
        for n in walk(self.block):
            if type(n) is Load:
                found.setdefault(n.buffer, []).append(n)
        return found

    @property
    def extents(self) -> tuple[object, ...]:
        return tuple(i.extent for i in self.block.iters)

    def is_point(self, indices: Sequence[Expr]) -> bool:
        """Whether the indices are those of the point that the block is at."""
        iters = self.block.iters
        return len(indices) == len(iters) and all(
            at is i.var or (i.extent == 1 and type(at) is Const)
            for at, i in zip(indices, iters, strict=True)
        )


@dataclass(eq=False)
class _Home:
    """Nests that can be one, in order, and what has to run before them, near or far."""

    nests: list[_Nest]
    before: set[_Home] = field(default_factory=set)


def joined(func: Func) -> Func:
    """The program with those nests joined that store several of its results, or one of a large
    expression.

    Its statements are nests of one block each, as `te.func` makes them.
    """
    stmts = func.body.stmts if type(func.body) is Seq else (func.body,)
    nests = [_nest(stmt) for stmt in stmts]
    results = set(func.params)
    homes = [home for home in _homes(nests, results) if _is_worth_joining(home, results)]
    if not homes:
        return func
    numbers = {b: v for nest in nests for b, v in nest.values.items() if type(v) is Const}
    apart = {nest for home in homes for nest in home.nests}
    found = [nest for nest in nests if nest not in apart]
    found += [_one(home, results, numbers) for home in homes]
    found = _in_order(found, nests, results)
    used = {buffer for nest in found for buffer in nest.loads}
    allocs = tuple(b for b in func.allocs if b in used)
    return replace(func, allocs=allocs, body=seq(*(nest.stmt for nest in found)))


def _nest(stmt: Stmt) -> _Nest:
    block = stmt
    while type(block) is not Block:
        (block,) = nested(block)
    whole = _Nest(stmt, block, {})
    stores = block.body.stmts if type(block.body) is Seq else (block.body,)
    spatial = all(i.kind is IterKind.SPATIAL for i in block.iters)
    plain = all(type(s) is Store and whole.is_point(s.indices) for s in stores)
    if not spatial or not plain or block.init is not None:
        return whole
    return replace(whole, values={s.buffer: s.value for s in stores if type(s) is Store})


def _homes(nests: Sequence[_Nest], results: set[Any]) -> list[_Home]:
    """The nests in which each result is computed from values at the same point, joined as far as
    what is read of other nests is there before."""
    joinable = _joinable(nests, results)
    homes: list[_Home] = []
    home_of: dict[Buffer, _Home] = {}
    for nest in nests:
        sources = {home_of[b] for b in nest.loads if b in home_of}
        chosen = None
        for home in reversed(homes if nest in joinable else ()):
            first, others = home.nests[0], sources - {home}
            if (
                first in joinable
                and first.extents == nest.extents
                and not any(home in other.before for other in others)
                and _at_points(nest, home)
            ):
                chosen = home
                break
        if chosen is None:
            chosen = _Home([])
            homes.append(chosen)
        chosen.nests.append(nest)
        home_of.update(dict.fromkeys((r.buffer for r in nest.block.writes), chosen))
        before = sources.union(*(source.before for source in sources)) - {chosen}
        for home in homes:
            if home is chosen or chosen in home.before:
                home.before |= before
    return homes


def _joinable(nests: Sequence[_Nest], results: set[Any]) -> set[_Nest]:
    """The nests whose values are results, or are read at their points alone, by such nests."""
    found = set[_Nest]()
    readers: dict[Buffer, list[_Nest]] = {}
    for nest in reversed(nests):
        if nest.values and all(
            buffer in results
            or all(
                reader in found
                and reader.extents == nest.extents
                and all(reader.is_point(n.indices) for n in reader.loads[buffer])
                for reader in readers.get(buffer, ())
            )
            for buffer in nest.values
        ):
            found.add(nest)
        for buffer in nest.loads:
            readers.setdefault(buffer, []).append(nest)
    return found


def _at_points(nest: _Nest, home: _Home) -> bool:
    """Whether a nest reads the values of others at its own points alone."""
    return all(
        nest.is_point(n.indices)
        for other in home.nests
        for buffer in other.values
        for n in nest.loads.get(buffer, ())
    )


def _is_worth_joining(home: _Home, results: set[Any]) -> bool:
    """Whether nests store several results, or would be inlined to one large expression."""
    stored = [b for nest in home.nests for b in nest.values if b in results]
    if len(home.nests) == 1 or len(stored) != 1:
        return len(home.nests) > 1 and len(stored) > 1
    sizes: dict[Buffer, int] = {}
    for nest in home.nests:
        for buffer, value in nest.values.items():
            parts = list(walk(value))
            read = (sizes.get(n.buffer, 0) for n in parts if type(n) is Load)
            sizes[buffer] = len(parts) + sum(read)
    return sizes[stored[0]] > MAX_TREE


def _one(home: _Home, results: set[Any], numbers: Mapping[Buffer, Const]) -> _Nest:
    """The nest that computes what all nests of a home store of `results`."""
    *_, last = home.nests
    uses = Counter(
        n.buffer for nest in home.nests for n in walk(nest.block) if type(n) is Load
    ) + Counter(b for nest in home.nests for b in nest.values if b in results)
    known: dict[Buffer, Expr] = {}
    named: list[tuple[Var, Expr]] = []
    names = {i.var.name for i in last.block.iters}

    def visit(n: Any) -> Any:
        if type(n) is Load:
            found = known.get(n.buffer, numbers.get(n.buffer))
            if found is not None:
                return found
        return n if type(n) is Buffer else rewrite_children(n, visit)

    stores: list[Stmt] = []
    point = tuple(i.var for i in last.block.iters)
    for nest in home.nests:
        points = {a.var: b.var for a, b in zip(nest.block.iters, last.block.iters, strict=True)}
        for buffer, value in nest.values.items():
            value = visit(substitute(value, points))
            if uses[buffer] > 1 and type(value) not in (Var, Const):
                named.append((Var(unique(buffer.name, names), value.dtype), value))
                value = named[-1][0]
            known[buffer] = value
            if buffer in results:
                stores.append(store(buffer, point, value))
    body = seq(*stores)
    for var, value in reversed(named):
        body = Let(var, value, body)
    reads, writes = infer_regions(last.block.iters, body, None)
    block = replace(last.block, reads=reads, writes=writes, body=body)
    return _nest(_with_block(last.stmt, block))


def _with_block(stmt: Stmt, block: Block) -> Stmt:
    return with_body(stmt, _with_block(stmt.body, block)) if type(stmt) is For else block


def _in_order(found: list[_Nest], nests: Sequence[_Nest], results: set[Any]) -> list[_Nest]:
    """The nests, with those that compute what they read, in an order in which they can run."""
    writers = {r.buffer: nest for nest in nests for r in nest.block.writes}
    writers |= {r.buffer: nest for nest in found for r in nest.block.writes}
    needs: dict[_Nest, list[_Nest]] = {}
    pending = [nest for nest in found if any(r.buffer in results for r in nest.block.writes)]
    while pending:
        nest = pending.pop()
        if nest not in needs:
            sources = (writers[b] for b in nest.loads if b in writers)
            needs[nest] = [source for source in sources if source is not nest]
            pending += needs[nest]
    return [*TopologicalSorter(needs).static_order()]
