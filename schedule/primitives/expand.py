"""Parallel reductions, and short ones as expressions: `split_reduction`, `expand_reduction`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as _replace
from itertools import product
from math import prod
from typing import Any

from ...tir.ir import (
    Block,
    Dim,
    Expr,
    For,
    Func,
    IterKind,
    Label,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
    const,
    load,
)
from ...tir.structure import key_of, same
from ...tir.visit import rewrite_children, substitute, with_body
from ..available import require_still_concurrent
from ..block_queries import feeding, free_vars, has_reduction, require_unit, with_regions
from ..find import find_block, find_loop, loops_above, path_to, perfect_nest, replace
from ..primitive import primitive
from ..reduction_blocks import match_reduction, require_terms
from ..require import require, require_some
from .annotate import parallel
from .loops import reorder, split
from .reduction import rfactor, sole_block

MAX_TERMS = 128


@primitive
def expand_reduction(fn: Func, block: Label) -> tuple[Func, None]:
    """Write all terms of a short reduction into one expression, which makes its block spatial.

        for i, k in 3:                     for i:
          with init: C[i] = 0        ->      C[i] = 0 + A[i] + A[i + 1] + A[i + 2]
          C[i] = C[i] + A[i + k]

    Terms are combined in the order in which the loops ran. The reduction must have one result and
    at most 128 terms. Each of its loops must be one of its iteration variables, feed no other, and
    contain nothing else.
    """
    found = find_block(fn, block)
    require_unit(fn, found)
    require(has_reduction(found), "block {0} is no reduction", block)
    matched = match_reduction(found)
    start = found.init if type(found.init) is Store else None
    matched = require_some(
        None if start is None else matched,
        "block {0} must be a reduction to one result that starts from a value",
        block,
    )
    reduced = [i for i in found.iters if i.kind is IterKind.REDUCE]
    bound = {i.value: i for i in reduced}
    feeds = Counter(v for i in found.iters for v in free_vars(i.value))
    loops = [s for s in loops_above(fn, block) if s.var in feeding(found, IterKind.REDUCE)]
    guard = set() if found.predicate is None else free_vars(found.predicate)
    plain = len(loops) == len(reduced) and all(
        s.var in bound
        and same(as_expr(bound[s.var].extent), as_expr(s.extent))
        and feeds[s.var] == 1
        and s.var not in guard
        for s in loops
    )
    alone = all(perfect_nest(s)[1] is found for s in loops)
    require(
        plain and alone,
        "the loops of the reduction of block {0} must be its iteration variables, one each, "
        "around it alone",
        block,
        hint="expand a reduction before its loops are split, fused or shared",
    )
    counts = [s.extent for s in loops if isinstance(s.extent, int)]
    require_terms(found)
    terms = prod(counts) if len(counts) == len(loops) else None
    require(
        terms is not None and terms <= MAX_TERMS,
        "the reduction of block {0} has {1} terms; at most {2} are expanded",
        block,
        "an open number of" if terms is None else terms,
        MAX_TERMS,
    )
    assert start is not None
    assert type(found.body) is Store
    old = key_of(load(matched.buffer, matched.indices))
    total: Expr = start.value
    for numbers in product(*map(range, counts)):
        values = {bound[s.var].var: const(n) for s, n in zip(loops, numbers, strict=True)}
        total = _replaced(substitute(found.body.value, values), old, total)
    body = _replace(found.body, value=total)
    iters = tuple(i for i in found.iters if i.kind is not IterKind.REDUCE)
    spatial = with_regions(_replace(found, iters=iters, body=body, init=None))
    if loops:
        fn = replace(fn, loops[0], _without(loops[0], {s.var for s in loops}, spatial))
    else:
        fn = replace(fn, found, spatial)
    require_still_concurrent(fn, (block,))
    return fn, None


def _replaced(e: Any, old: object, new: Expr) -> Any:
    """`e` with `new` in the place of the expressions whose key is `old`."""
    if isinstance(e, Expr) and key_of(e) == old:
        return new
    return rewrite_children(e, lambda n: _replaced(n, old, new)) if isinstance(e, Expr) else e


def _without(stmt: Stmt, dropped: set[Var], block: Block) -> Stmt:
    """The loops of a perfect nest around `block` without those `dropped`."""
    if type(stmt) is not For:
        return block
    body = _without(stmt.body, dropped, block)
    return body if stmt.var in dropped else with_body(stmt, body)


@primitive
def split_reduction(
    fn: Func, loop: Var, parts: Dim, factor_axis: int = 0, *, tree: bool = False
) -> tuple[Func, tuple[Label, Var]]:
    """Reduce `parts` contiguous parts of a reduction's `loop` in parallel, then combine them.

        for i, k in 64: C[i] += A[i, k]
          ->  for k_0 in parallel(4): for i: for k_1 in 16: C_rf[k_0, i] += A[i, k_0 * 16 + k_1]
              for i: for k_0 in 4: C[i] += C_rf[k_0, i]

    For long reductions into few elements, whose own loops have no parallelism. The partial results
    have their new dimension at `factor_axis`. With `tree` they are combined in pairs, as a tree, so
    that rounding errors grow with the logarithm of `parts`. Returns the label of the block that
    computes the partial results, and the parallel loop; the block's old handle stays with the last
    combination.
    """
    require(parts >= 2, "{0} parts; expected at least 2", parts, at=loop)
    require(
        not tree or isinstance(parts, int),
        "the number of parts, {0}, is open, and with it the height of the tree",
        parts,
        at=loop,
        hint="sample the number of parts without tree=True, or give it as a number",
    )
    target = find_loop(fn, loop)
    if not (isinstance(parts, int) and isinstance(target.extent, int)):
        require(
            target.extent % parts == 0,
            "{0} iterations cannot be split into {1} parts of equal length",
            target.extent,
            parts,
            at=loop,
            of_numbers=parts >= 2,
        )
    block = sole_block(target).label
    fn, (outer, _) = split(fn, loop, (parts, None))
    fn, partial = rfactor(fn, outer, factor_axis)
    path = path_to(fn, outer)
    first = max((n + 1 for n, s in enumerate(path) if type(s) is Seq), default=0)
    around = [s.var for s in loops_above(fn, outer) if any(s is x for x in path[first:])]
    fn, _ = reorder(fn, outer, *around)
    fn, _ = parallel(fn, outer)
    left = parts if tree else 2
    while isinstance(left, int) and left > 2:
        left = -(-left // 2)
        fn, (_, pair) = split(fn, _combining_loop(fn, block), (None, left))
        fn, _ = rfactor(fn, pair, factor_axis)
    return fn, (partial, outer)


def _combining_loop(fn: Func, block: Label) -> Var:
    """The loop over the partial results that `block` combines."""
    reduce = feeding(find_block(fn, block), IterKind.REDUCE)
    return next(s.var for s in loops_above(fn, block) if s.var in reduce)
