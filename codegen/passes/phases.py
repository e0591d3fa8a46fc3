"""Join the phases of launches: one nest of loops over blocks and threads around all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...base.errors import BuildError
from ...tir.equality import flat
from ...tir.ir import (
    Buffer,
    For,
    ForKind,
    Func,
    If,
    Op,
    Prefetch,
    Seq,
    Stmt,
    Var,
    binary,
    const,
    integers,
    seq,
)
from ...tir.structure import conjunction
from ...tir.visit import substitute, walk, with_func_body
from .launches import AXES
from .owned import require_owned
from .rewrite import decided, loops, map_exprs, map_stmts, simplifier_of

_NAMES = {axis: f"{axis[0]}{axis[-1]}" for axis in AXES}
"""Short names of axes: `bx` and `tx`."""


def bound(func: Func) -> Func:
    """`func`, in which each nest is bound to axes of a device. Raises `BuildError` otherwise."""
    for stmt in flat(func.body):
        nest = list(loops(stmt))
        for f in nest:
            if f.kind is ForKind.PARALLEL:
                raise BuildError(
                    "loop {0} is parallel, which loops of processors are",
                    f.var.name,
                    hint=f'bind it to an axis of the device: sch.bind({f.var.name}, "blockIdx.x")',
                )
        repeating = [f.var.name for f in nest if f.extent not in (0, 1)]
        if repeating and not any(f.kind is ForKind.THREAD for f in nest):
            raise BuildError(
                "the nest of loops {0} is bound to no axis of the device",
                ", ".join(repeating),
                hint=f'sch.bind({repeating[0]}, "blockIdx.x"), and threads likewise',
            )
    return func


def phases(func: Func) -> Func:
    """Give each launch one nest of loops over blocks and threads, around the code of a thread.

    for b in thread("blockIdx.x", 2):              for b in thread("blockIdx.x", 2):
        for k in 4:                                    for tx in thread("threadIdx.x", 8):
            for t in thread("threadIdx.x", 8):             for k in 4:
                S[t] = A[b, k, t]             ->               S[tx] = A[b, k, tx]
            for u in thread("threadIdx.x", 8):                 C[b, tx] = C[b, tx] + S[7 - tx]
                C[b, u] = C[b, u] + S[7 - u]               if tx == 0:
        D[b] = 1                                               D[b] = 1

    A statement that no loop over an axis is around runs where that is 0. Raises `BuildError` where
    blocks or threads would use elements of each other that they must not.
    """
    stmts = flat(decided(_without_hints(func.body)))
    _require_one_launch(func, stmts)
    launches = [_launch(stmt, func) for stmt in stmts]
    joined = with_func_body(func, seq(*launches))
    s = simplifier_of(joined)
    return with_func_body(joined, decided(map_exprs(joined.body, s)))


def _require_one_launch(func: Func, stmts: Sequence[Stmt]) -> None:
    """Require that what blocks and threads have for themselves is used in one launch each."""
    found: dict[Buffer, Stmt] = {}
    own = [b for b in func.allocs if b.scope != "global"]
    for stmt in stmts:
        used = {n for n in walk(stmt) if type(n) is Buffer}
        for b in own:
            if b in used and found.setdefault(b, stmt) is not stmt:
                raise BuildError(
                    "{0}, of scope {1}, is used by more than one launch",
                    b.name,
                    b.scope,
                    hint="statements are one launch where a loop is around them: move them into "
                    'the loops over blockIdx, or set_scope(.., "global")',
                )


def _without_hints(stmt: Stmt) -> Stmt:
    """`stmt` without prefetches, as other threads run while one waits for memory.

    Nor are there annotations of loops: they name instructions of processors.
    """
    if type(stmt) is Prefetch:
        return Seq(())
    if type(stmt) is For and stmt.annotations:
        stmt = replace(stmt, annotations=())
    return map_stmts(stmt, _without_hints)


def _launch(stmt: Stmt, func: Func) -> Stmt:
    nest: dict[str, list[For]] = {axis: [] for axis in AXES}
    for f in loops(stmt):
        if f.thread is not None:
            nest[f.thread].append(f)
    extents: dict[str, int] = {}
    for axis, bound_loops in nest.items():
        sizes = sorted(set(integers(f.extent for f in bound_loops)))
        if len(sizes) > 1:
            raise BuildError(
                "{0} has {1} iterations in one launch",
                axis,
                " and ".join(map(str, sizes)),
                hint="an axis has one extent: split the loops alike",
            )
        if sizes:
            extents[axis] = sizes[0]
    moving = [axis for axis in AXES if extents.get(axis, 1) > 1]
    variables = {
        axis: nest[axis][0].var if len(nest[axis]) == 1 else Var(_NAMES[axis]) for axis in moving
    }
    code = _code(stmt, frozenset(), variables)
    require_owned(stmt, code, func, {variables[a]: (a, extents[a]) for a in moving})
    if "threadIdx.x" not in moving:
        code = For(Var(_NAMES["threadIdx.x"]), 1, code, ForKind.THREAD, "threadIdx.x")
    for axis in reversed(moving):
        code = For(variables[axis], extents[axis], code, ForKind.THREAD, axis)
    return code


def _code(stmt: Stmt, around: frozenset[str], variables: Mapping[str, Var]) -> Stmt:
    """What a thread runs of `stmt`, which is in loops over the axes `around`."""
    if not any(f.thread is not None for f in loops(stmt)):
        return _where_zero(stmt, [v for axis, v in variables.items() if axis not in around])
    if type(stmt) is For and stmt.thread is not None:
        body = _code(stmt.body, around | {stmt.thread}, variables)
        return substitute(body, {stmt.var: variables.get(stmt.thread, const(0))})
    if type(stmt) is For and stmt.extent == 1:
        return _code(substitute(stmt.body, {stmt.var: const(0)}), around, variables)
    if type(stmt) is Seq:
        return seq(*[_code(s, around, variables) for s in _runs(stmt)])
    return map_stmts(stmt, lambda s: _code(s, around, variables))


def _runs(stmt: Seq) -> list[Stmt]:
    """The statements of a sequence, those next to each other together that have no loops bound."""
    found: list[Stmt] = []
    plain = False
    for s in flat(stmt):
        before, plain = plain, not any(f.thread is not None for f in loops(s))
        if before and plain:
            found[-1] = seq(found[-1], s)
        else:
            found.append(s)
    return found


def _where_zero(stmt: Stmt, axes: list[Var]) -> Stmt:
    condition = conjunction([binary(Op.EQ, v, const(0)) for v in axes])
    return stmt if condition is None else If(condition, stmt)
