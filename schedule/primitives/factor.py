"""Factoring a common factor out of a sum: `hoist_factor`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace as _replace

from ...tir.combiners import Place
from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Expr,
    Func,
    IterKind,
    Label,
    Load,
    Op,
    Store,
    Var,
    binary,
    load,
)
from ...tir.visit import substitute, walk
from ..available import require_still_concurrent
from ..block_queries import (
    free_vars,
    loop_name,
    require_not_inplace,
    require_unit,
)
from ..find import find_block, replace
from ..places import adding, spatial_nest
from ..primitive import primitive
from ..reduction_blocks import match_reduction, require_terms, starts_from_zero
from ..require import require, require_some
from .cached_copies import (
    insert_top,
    require_read_after,
    require_written_before,
    top_position,
    writing_iters,
    written_elements,
)

SUMS = ("float32", "float64")
"""The dtypes of sums that lose their factor: narrower floats would overflow where they did not."""


@primitive
def hoist_factor(fn: Func, block: Label) -> tuple[Func, Label]:
    """Hoist a factor that does not depend on the reduction out of a sum.

        for i, k: C[i] += A[i, k] * W[i]   ->   for i, k: C_sum[i] += A[i, k]
                                                for i: C[i] = C_sum[i] * W[i]

    Divisors count as factors. For sums of float32 and float64 that start from zero. The product is
    rounded once per sum instead of once per term. Near the largest number, a sum may overflow
    without its factor, or no longer overflow. An infinite factor gives NaN where the sum is zero
    (before: where a term is). Returns the label of the block that multiplies; the handle `block`
    stays with the sum.
    """
    found = find_block(fn, block)
    require_unit(fn, found)
    matched = require_some(
        match_reduction(found, "sum") if starts_from_zero(found) else None,
        "block {0} must be a sum that starts from zero",
        block,
    )
    buffer = matched.buffer
    require(
        buffer.dtype in SUMS,
        "block {0} sums {1}; expected {2}",
        block,
        buffer.dtype,
        " or ".join(SUMS),
        found=buffer.dtype,
        alternatives=SUMS,
    )
    require_terms(found)
    reduced = [i.var for i in found.iters if i.kind is IterKind.REDUCE]
    kept, moved = _taken(matched.value, set(reduced))
    kept = require_some(
        kept if moved else None,
        "no factor of the terms of block {0} is independent of {1} while another depends on it",
        block,
        lambda: ", ".join(v.name for v in reduced),
        hint="compute_inline puts a product that is computed before into the sum",
    )
    position = top_position(fn, block)
    _require_only_here(fn, found, buffer, [e for _, e in moved], position)
    iters = writing_iters(found, buffer)
    known = {i.var for i in iters}
    require(
        all(free_vars(e) <= known for _, e in moved),
        "the factor of block {0} depends on {1}, which its result does not",
        block,
        lambda: ", ".join(sorted({v.name for _, e in moved for v in free_vars(e) - known})),
    )
    elements = written_elements(fn, buffer)
    total = Buffer(f"{buffer.name}_sum", buffer.shape, buffer.dtype)
    assert isinstance(found.init, Store)
    summing = _replace(found, init=_replace(found.init, buffer=total))
    fn = replace(fn, found, adding(summing, Place(total, matched.indices), kept), total)

    at = dict(zip((i.var for i in iters), elements.variables, strict=True))
    value: Expr = load(total, elements.indices)
    for op, e in moved:
        value = binary(op, value, substitute(e, at))
    sizes = zip(elements.variables, elements.extents, strict=True)
    axes = [(loop_name(v), v, n) for v, n in sizes]
    label = Label(f"{buffer.name}_scaled")
    scaled = spatial_nest(label, axes, Store(buffer, elements.indices, value))
    fn = insert_top(fn, position + 1, scaled)
    require_still_concurrent(fn, (block,))
    return fn, label


def _taken(e: Expr, reduced: Collection[Var]) -> tuple[Expr | None, list[tuple[Op, Expr]]]:
    """The rest of a product without the factors independent of `reduced`, and these factors.

    The rest is `None` if nothing remains. The factors multiply it, or divide it, in turn.
    """
    if free_vars(e).isdisjoint(reduced):
        return None, [(Op.MUL, e)]
    if type(e) is Binary and e.op is Op.MUL:
        a, by_a = _taken(e.a, reduced)
        b, by_b = _taken(e.b, reduced)
        if a is None or b is None:
            return b if a is None else a, [*by_a, *by_b]
        return (e if a is e.a and b is e.b else binary(Op.MUL, a, b)), [*by_a, *by_b]
    if type(e) is Binary and e.op is Op.DIV and e.dtype == e.a.dtype:
        a, by_a = _taken(e.a, reduced)
        if a is not None and free_vars(e.b).isdisjoint(reduced):
            return a, [*by_a, (Op.DIV, e.b)]
        if a is not None:
            return (e if a is e.a else binary(Op.DIV, a, e.b)), by_a
    return e, []


def _require_only_here(
    fn: Func, block: Block, buffer: Buffer, factors: Collection[Expr], position: int
) -> None:
    """Require that the result is read only after the block, and its factors do not change."""
    label = block.label
    require_not_inplace(fn, buffer, label)
    require_read_after(fn, buffer, position, label)
    loaded = {n.buffer for e in factors for n in walk(e) if type(n) is Load}
    for b in sorted(loaded, key=lambda b: b.name):
        require_written_before(fn, b, position, block)
