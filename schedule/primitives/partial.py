"""Parallel reductions: `split_reduction`."""

from __future__ import annotations

from ...tir.ir import Dim, Func, IterKind, Label, Seq, Var
from ..block_queries import feeding
from ..find import find_block, find_loop, loops_above, path_to
from ..primitive import primitive
from ..require import require
from .annotate import parallel
from .loops import reorder, split
from .reduction import rfactor, sole_block


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
