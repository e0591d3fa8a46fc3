"""Bodies of blocks that have loops and conditions of their own, as scripts make them.

A block may hold all that is computed in turn: loops side by side, and triangles, whose conditions
leave a part of the iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...schedule.tensorizable import instruction_of
from ...tir.bounds import variables
from ...tir.evaluate import evaluate
from ...tir.ir import Block, Expr, For, If, Let, Load, Seq, Stmt, Store
from ...tir.visit import nested, walk, with_body

_POINTS = 1 << 12
"""Iterations that say how often conditions hold, at most."""


def parts(block: Block) -> tuple[Block, ...]:
    """A block; or what stands for it where loops of its body are side by side: a block for each.

        block b: x = A[0]; for i: B[i] = x; for j: C[j] = x
          ->  block b: x = A[0]  block b: for i: B[i] = x  block b: for j: C[j] = x

    They are for counting: what one computes, others may read.
    """
    if instruction_of(block) is not None or not _has_loops_side_by_side(block.body):
        return (block,)
    found = []
    for body in _nests(block.body):
        loaded = {n.buffer for n in walk(body) if type(n) is Load}
        stored = {n.buffer for n in walk(body) if type(n) is Store}
        if loaded or stored:
            reads = tuple([r for r in block.reads if r.buffer in loaded])
            writes = tuple([r for r in block.writes if r.buffer in stored])
            found.append(Block(block.label, block.iters, reads, writes, body))
    return tuple(found)


def share_that_runs(block: Block, tile: Sequence[For]) -> float:
    """The share of the iterations of a block, and of the loops in it, that its conditions leave.

    Triangles, say: those of numbers of these iterations alone, around all that the block computes.
    """
    extents = {i.var: i.extent for i in block.iters} | {s.var: s.extent for s in tile}
    known = {var: n for var, n in extents.items() if isinstance(n, int)}
    asked = [
        c
        for c in _conditions(block.body)
        if variables(c) <= known.keys() and not any(type(n) is Load for n in walk(c))
    ]
    used = [v for v in known if any(v in variables(c) for c in asked)]
    if not used or not all(known[v] for v in used):
        return 1.0
    each = max(2, round(_POINTS ** (1 / len(used))))
    points = [np.unique(np.linspace(0, known[v] - 1, min(each, known[v])).round()) for v in used]
    grid = [column.ravel().astype(np.int64) for column in np.meshgrid(*points, indexing="ij")]
    at = dict(zip(used, grid, strict=True))
    holds = np.ones(len(grid[0]), dtype=np.bool_)
    for condition in asked:
        holds &= evaluate(condition, at) != 0
    return max(float(holds.mean()), 1 / len(holds))


def _has_loops_side_by_side(stmt: Stmt) -> bool:
    below = nested(stmt)
    having = [s for s in below if any(type(n) is For for n in walk(s))]
    return len(having) > 1 or any(map(_has_loops_side_by_side, having))


def _nests(stmt: Stmt, around: tuple[For | If, ...] = ()) -> Iterator[Stmt]:
    """What runs in each nest of loops of `stmt`, with the loops and conditions `around` it."""
    here: list[Stmt] = []
    inside: list[Iterator[Stmt]] = []
    below = [stmt]
    while below:
        s = below.pop()
        if not any(type(n) is For for n in walk(s)):
            here.append(s)
        elif type(s) is For:
            inside.append(_nests(s.body, (*around, s)))
        elif type(s) is If and s.other is None:
            inside.append(_nests(s.then, (*around, s)))
        else:
            if type(s) is Let:
                here.append(Let(s.var, s.value, Seq(())))
            below.extend(reversed(nested(s)))
    if here:
        body = here[0] if len(here) == 1 else Seq(tuple(here))
        for outer in reversed(around):
            body = If(outer.cond, body) if isinstance(outer, If) else with_body(outer, body)
        yield body
    for nests in inside:
        yield from nests


def _conditions(stmt: Stmt) -> Iterator[Expr]:
    """The conditions around all that a statement does, which has no other branch."""
    while True:
        if type(stmt) is If and stmt.other is None:
            yield stmt.cond
            stmt = stmt.then
        elif type(stmt) in (For, Let):
            (stmt,) = nested(stmt)
        else:
            return
