"""Terms of a reduction that a condition leaves out: `select_terms`."""

from __future__ import annotations

from dataclasses import replace as _replace

from ...base import dtypes
from ...tir.combiners import Combiner
from ...tir.ir import Const, Func, Label, Store, const, load, select
from ...tir.structure import same
from ..available import require_still_concurrent
from ..block_queries import has_reduction, with_regions
from ..find import find_block, replace
from ..primitive import primitive
from ..reduction_blocks import match_reduction, without_conditions
from ..require import require, require_some


@primitive
def select_terms(fn: Func, block: Label) -> tuple[Func, None]:
    """Combine the neutral value where a condition leaves out a term of a reduction.

        with init: C[i] = 0                         with init: C[i] = 0
        if M[i, k]: C[i] = C[i] + A[i, k]    ->     C[i] = C[i] + select(M[i, k], A[i, k], -0.0)

    That is the form in which reductions are tiled and vectorized. The block must be a reduction to
    one result, with an init for each element that it updates, and its body one update under
    conditions. What the conditions guard is still evaluated only where they hold. The neutral value
    of a sum of floats is -0.0, which changes no other.
    """
    found = find_block(fn, block)
    require(has_reduction(found), "block {0} is no reduction", block)
    conditions, body = without_conditions(found.body)
    require(bool(conditions), "no condition is around the update of block {0}", block)
    start = found.init
    matched = match_reduction(_replace(found, body=body))
    matched = require_some(
        matched if type(start) is Store else None,
        "block {0} must be a reduction to one result that starts from a value",
        block,
    )
    assert type(start) is Store
    require(
        all(map(same, start.indices, matched.indices)),
        "block {0} must start at the elements that it updates",
        block,
    )
    value, neutral = matched.value, _neutral(matched.combiner, matched.value.dtype)
    for condition in reversed(conditions):
        value = select(condition, value, neutral)
    old = load(matched.buffer, matched.indices)
    (combined,) = matched.combiner.combine((old,), (value,))
    new = _replace(found, body=Store(matched.buffer, matched.indices, combined))
    fn = replace(fn, found, with_regions(new))
    require_still_concurrent(fn, (block,))
    return fn, None


def _neutral(combiner: Combiner, dtype: str) -> Const:
    """What `combiner` changes no value with, not even the sign of zero."""
    if combiner.name == "sum" and dtypes.is_float(dtype):
        return const(-0.0, dtype)
    return combiner.identity((dtype,))[0]
