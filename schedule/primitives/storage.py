"""Aligned strides: `storage_align`."""

from __future__ import annotations

from dataclasses import replace as _replace

from ...tir.ir import Func, Label
from ...tir.visit import substitute_func
from ..find import find_block
from ..primitive import primitive
from ..require import require
from .cached_copies import stored_at

MAX_FACTOR = 1 << 16


@primitive
def storage_align(
    fn: Func, block: Label, buffer_index: int, axis: int, factor: int, offset: int
) -> tuple[Func, None]:
    """Pad a buffer that a block writes, so that a stride is a multiple of `factor` plus `offset`.

        B = alloc((64, 64), "float32")   ->   B = alloc((64, 64), "float32", align=((0, 32, 1),))

    `axis` is the dimension whose stride is padded (negative: from the end), not the last. Here rows
    are 65 elements apart, so that the elements of a column are in different banks or cache sets.
    The buffer must be internal to the function. When it shrinks, as to the part that one iteration
    of a loop needs, its strides are aligned anew.
    """
    found = find_block(fn, block)
    old = stored_at(fn, found, buffer_index)
    rank = len(old.shape)
    require(
        -rank <= axis < rank,
        "{0} has {1} dimensions; there is no axis {2}",
        old.name,
        rank,
        axis,
        at=block,
    )
    place = axis % rank
    require(
        place < rank - 1,
        "axis {0} is the last one of {1}, whose elements lie side by side",
        axis,
        old.name,
        at=block,
        hint="align the stride of an axis before it",
    )
    require(
        1 <= factor <= MAX_FACTOR,
        "the factor is {0}; expected 1 to {1}",
        factor,
        MAX_FACTOR,
        at=block,
    )
    require(
        0 <= offset < factor,
        "the offset is {0}; expected 0 to {1}, less than the factor",
        offset,
        factor - 1,
        at=block,
    )
    require(
        old.strides is None,
        "{0} has strides of its own, {1}",
        old.name,
        old.strides,
        at=block,
    )
    require(
        old.scope != "register",
        "{0} lives in registers, which have no strides",
        old.name,
        at=block,
    )
    others = tuple(a for a in old.align if a[0] != place)
    new = _replace(old, align=tuple(sorted((*others, (place, factor, offset)))))
    return substitute_func(fn, {old: new}), None
