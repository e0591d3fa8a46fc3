"""Loop structure: `split`, `fuse`, `reorder`, `tile`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from ...base.errors import ScheduleError
from ...tir.ir import (
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    Label,
    Op,
    Stmt,
    Var,
    as_expr,
    binary,
    ceildiv,
    product,
)
from ...tir.visit import nested
from ..available import concurrent_loops, require_still_concurrent
from ..block_queries import loop_ranges, nest_like
from ..facts import last
from ..find import find_path, loop_path, path_to, rebuild
from ..legality import require_permutable
from ..loop_names import fused_name
from ..placement import require_settled
from ..primitive import primitive
from ..rebind import rebound
from ..require import HandleName, certain, require

MAX_PARTS = 16
PADDING = 64
"""At most how many times as many iterations a split loop may have."""
MAX_DEPTH = 64
"""How many statements may be around each other."""


@primitive
def split(
    fn: Func, loop: Var, factors: Sequence[Dim | None], *, perfect: bool = False
) -> tuple[Func, tuple[Var, ...]]:
    """Split a loop into nested loops of `factors` iterations, outermost first.

        for i in 16: A[i]   ->   for i_0 in 4: for i_1 in 4: A[i_0 * 4 + i_1]

    One factor may be `None` and is inferred. If the factors cover more than the extent, the blocks
    below get the predicate that the index is within it; `perfect=True` refuses that.
    """
    path, old = loop_path(fn, loop)
    require_serial(old, "split it")
    require_unmarked(old)
    extent = old.extent
    require(
        1 <= len(factors) <= MAX_PARTS,
        "{0} factors; expected 1 to {1}",
        len(factors),
        MAX_PARTS,
        at=loop,
    )
    require_depth(len(path) + len(factors) + height(old.body), loop)
    given = [f for f in factors if f is not None]
    require(
        len(given) >= len(factors) - 1,
        "at most one factor may be None, found {0}",
        list(factors),
        at=loop,
        hint="the one that is None follows from the others: factors=[None, 8]",
    )
    for f in given:
        require(f >= 1, "factor {0} is not positive", f, at=loop, found=f, expected="at least 1")
    inner = product(given)
    if perfect:
        require_settled(old)
    if isinstance(extent, int):
        most = PADDING * max(extent, 64)
        require(
            inner <= most,
            "the factors multiply to {0}; at most {1} for a loop of {2} iterations",
            inner,
            most,
            extent,
            at=loop,
        )
    if len(given) < len(factors):
        exact = certain(extent % inner == 0)
        if perfect and not exact:
            require(
                extent % inner == 0,
                "factor {0} does not divide extent {1}",
                inner,
                extent,
                at=loop,
                found=inner,
                expected=lambda: f"a divisor of {extent}",
            )
            exact = True
        missing = extent // inner if exact else ceildiv(extent, inner)
        sizes: list[Dim] = [missing if f is None else f for f in factors]
    else:
        sizes = given
        exact = certain(inner == extent)
        if perfect and not exact:
            require(
                inner == extent,
                "the factors multiply to {0}, the extent is {1}",
                inner,
                extent,
                at=loop,
                hint="put None for one of the factors, or leave out perfect=True",
                found=inner,
                expected=extent,
            )
            exact = True
        if not exact:
            require(
                inner >= extent,
                "the factors multiply to {0}, less than the extent {1}",
                inner,
                extent,
                at=loop,
                hint="put None for the outermost factor",
                found=inner,
                expected=lambda: f"at least {extent}",
            )
    names = [Var(f"{loop.name}_{k}") for k in range(len(sizes))]
    index: Expr = names[0]
    stride = product(sizes[1:])
    index = index * stride
    for k in range(1, len(sizes)):
        stride = product(sizes[k + 1 :])
        index = index + names[k] * stride
    guard = None if exact else binary(Op.LT, index, as_expr(extent))
    ranges = _ranges(path, zip(names, sizes, strict=True))
    body = rebound(old.body, {loop: index}, guard, ranges)
    for var, size in zip(reversed(names), reversed(sizes), strict=True):
        body = For(var, size, body)
    return rebuild(fn, path, body), tuple(names)


@primitive
def fuse(fn: Func, *loops: Var) -> tuple[Func, Var]:
    """Fuse perfectly nested loops, outermost first, into one.

    for i in 4: for j in 8: A[i, j]   ->   for i_j_fused in 32: A[i_j_fused // 8, i_j_fused % 8]
    """
    require(len(loops) >= 1, "fuse takes at least one loop")
    _require_once(loops)
    path = path_to(fn, loops[0])
    nest = _nested_below(path, loops, "fuse")
    kind = nest[0].kind
    for n in nest:
        require(
            n.kind is kind,
            "{0} is {1} and {2} is {3}; loops to fuse must be of one kind",
            nest[0].var.name,
            kind.value,
            n.var,
            n.kind.value,
        )
        require_unmarked(n)
    if len(nest) == 1:
        return fn, loops[0]
    fused = Var(fused_name([v.name for v in loops]))
    extent = product([n.extent for n in nest])
    ranges = _ranges(path, [(fused, extent)])
    values: dict[Var, Expr] = {}
    stride: Dim = 1
    for n in reversed(nest):
        size = max(n.extent, 1) if isinstance(n.extent, int) else n.extent  # nothing divides by 0
        value: Expr = binary(Op.FLOORDIV, fused, as_expr(stride))
        if n is not nest[0]:
            value = binary(Op.MOD, value, as_expr(size))
        values[n.var] = value
        stride = size * stride
    body = rebound(nest[-1].body, values, None, ranges)
    return rebuild(fn, path, For(fused, extent, body, kind)), fused


@primitive
def reorder(fn: Func, *loops: Var) -> tuple[Func, None]:
    """Reorder loops of one perfectly nested chain; loops that are not given keep their positions.

    for i: for j: for k: ...   --reorder(k, i)-->   for k: for j: for i: ...
    """
    require(len(loops) >= 1, "reorder takes at least one loop")
    _require_once(loops)
    path = _path_through(fn, loops)
    wanted = set(loops)
    places = [k for k, s in enumerate(path) if type(s) is For and s.var in wanted]
    top = places[0]
    nest = _chain(path[top : places[-1] + 1])
    moved = {n.var: n for n in nest if n.var in wanted}
    if all(a is b for a, b in zip(moved, loops, strict=True)):
        return fn, None
    order = iter(loops)
    chain = [moved[next(order)] if n.var in wanted else n for n in nest]
    require_permutable(path[:top], nest, chain, nest[-1].body)
    fn = rebuild(fn, path[: top + 1], nest_like(chain, nest[-1].body))
    if concurrent := concurrent_loops(chain[:-1]):
        # What was computed anew in each iteration of a loop around is so within one of them now.
        require_still_concurrent(fn, concurrent)
    return fn, None


@primitive
def tile(
    fn: Func, target: Label | Sequence[Var], factors: Sequence[Dim]
) -> tuple[Func, tuple[Var, ...]]:
    """Split nested loops by `factors` and reorder the tiles' loops inside.

        tile((i, j), (8, 64)):   for i: for j: ...   ->   for i_0: for j_0: for i_1: for j_1: ...

    `target` is as many perfectly nested loops as there are factors, or a block, whose outermost
    loops are tiled.
    """
    if isinstance(target, Label):
        above = [s.var for s in path_to(fn, target) if type(s) is For]
        require(
            len(factors) <= len(above),
            "{0} factors, but block {1} is in {2} loops",
            len(factors),
            target,
            len(above),
        )
        target = above[: len(factors)]
    require(
        len(target) == len(factors) >= 1,
        "{0} loops and {1} factors; expected one of each at least, and as many of both",
        len(target),
        len(factors),
    )
    outer: list[Var] = []
    inner: list[Var] = []
    for loop, factor in zip(target, factors, strict=True):
        fn, (o, i) = split(fn, loop, (None, factor))
        outer.append(o)
        inner.append(i)
    fn, _ = reorder(fn, *outer, *inner)
    return fn, (*outer, *inner)


def require_serial(loop: For, step: str) -> None:
    """Require that a loop is serial still; `step` says what else comes before."""
    require(
        loop.kind is ForKind.SERIAL,
        "loop {0} is {1} already; {2} before that",
        loop.var,
        loop.kind.value,
        step,
    )


def require_unmarked(loop: For) -> None:
    """Require that a loop has neither a thread axis nor annotations, which would be lost."""
    require(loop.kind is not ForKind.THREAD, "loop {0} is bound to a thread axis", loop.var)
    require(
        not loop.annotations,
        "loop {0} is annotated with {1}, which would be lost",
        loop.var,
        lambda: ", ".join(k for k, _ in loop.annotations),
    )


def require_depth(depth: int, at: Var | Label) -> None:
    """Require that `depth` statements may be around each other."""
    require(depth <= MAX_DEPTH, "loops would nest {0} deep; at most {1}", depth, MAX_DEPTH, at=at)


def _require_once(loops: Sequence[Var]) -> None:
    for k, v in enumerate(loops):
        require(
            v not in set(loops[:k]),
            "loop {0} is named twice",
            v,
            hint="name each loop once, in the new order; those that are not named keep their place",
        )


def _nested_below(path: tuple[Stmt, ...], loops: Sequence[Var], what: str) -> list[For]:
    """The loops as a perfect nest, the first at the end of `path`."""
    stmt: Stmt = path[-1]
    nest: list[For] = []
    for v in loops:
        if type(stmt) is not For or stmt.var is not v:
            path_to(Func("", (), (), path[0]), v)
            raise ScheduleError(
                "loop {0} is not directly inside loop {1}; {2} takes perfectly nested loops",
                HandleName(v),
                HandleName(nest[-1].var),
                what,
                at=v,
                found=v,
                expected=partial(_next, nest[-1]),
            )
        nest.append(stmt)
        stmt = stmt.body
    return nest


def _next(loop: For) -> list[Var]:
    """The loop directly inside, if there is one."""
    return [loop.body.var] if type(loop.body) is For else []


def _path_through(fn: Func, loops: Sequence[Var]) -> tuple[Stmt, ...]:
    """The path to the innermost of `loops`, which contains all of them."""
    path = path_to(fn, loops[0])
    for v in loops[1:]:
        if any(type(s) is For and s.var is v for s in path):
            continue
        below = find_path(path[-1], v)
        if below is None:
            path_to(fn, v)
            raise ScheduleError(
                "loop {0} is not nested with loop {1}",
                HandleName(v),
                HandleName(loops[0]),
                at=v,
            )
        path += below[1:]
    return path


def _chain(stmts: Sequence[Stmt]) -> list[For]:
    """The statements as loops, each directly in the one before."""
    chain: list[For] = []
    for s in stmts:
        if type(s) is not For:
            raise ScheduleError(
                "there are other statements in loop {0}; the loops must be perfectly nested",
                chain[-1].var.name,
                at=chain[-1].var,
            )
        chain.append(s)
    return chain


def _ranges(path: tuple[Stmt, ...], new: Iterable[tuple[Var, Dim]]) -> dict[Var, tuple[Dim, Dim]]:
    """Ranges of the loops above the end of `path`, and of `new` ones given by extent."""
    ranges = loop_ranges(path[:-1])
    for var, extent in new:
        ranges[var] = (0, last(extent))
    return ranges


def height(stmt: Stmt) -> int:
    """How many loops nest below, at most."""
    return (type(stmt) is For) + max(map(height, nested(stmt)), default=0)
