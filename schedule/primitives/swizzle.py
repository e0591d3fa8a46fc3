"""Swizzled layouts: `swizzle`."""

from __future__ import annotations

from dataclasses import replace as _replace

from ...tir.ir import Func, Label
from ...tir.visit import substitute_func
from ..find import find_block
from ..primitive import primitive
from ..require import require
from .cached_copies import stored_at

MAX_PLACES = 1 << 12
"""How many elements of a dimension are put in another order, at most."""


@primitive
def swizzle(
    fn: Func, block: Label, buffer_index: int, axis: int, by: int, rows: int, width: int = 1
) -> tuple[Func, None]:
    """Permute the parts of each row of a buffer that a block writes, differently from row to row.

        B = alloc((64, 32), "float32")
          ->  B = alloc((64, 32), "float32", swizzle=(1, 0, 8, 4))   (axis=1, by=0, rows=8, width=4)

    Part p of `width` elements along `axis` is stored as part `p ^ (b % rows)`, where b is the index
    along `by` and `rows` is a power of two. Elements at the same index in `rows` neighbouring rows
    are then in as many banks or cache sets. No memory is lost if `rows * width` divides the
    dimension. Negative axes count from the end. Indices in the program do not change. The buffer
    must be internal to the function. Vectors along `axis` stay whole if they fit into a part.
    """
    found = find_block(fn, block)
    old = stored_at(fn, found, buffer_index)
    rank = len(old.shape)
    require(
        -rank <= axis < rank and -rank <= by < rank and axis % rank != by % rank,
        "axis {0} by axis {1}; expected two of the {2} dimensions of {3}",
        axis,
        by,
        rank,
        old.name,
        at=block,
    )
    require(
        rows >= 2 and rows & (rows - 1) == 0,
        "{0} rows; expected a power of two from 2 on",
        rows,
        at=block,
    )
    require(width >= 1, "parts of {0} elements; expected at least one", width, at=block)
    require(
        rows * width <= MAX_PLACES,
        "{0} rows in parts of {1} elements reorder {2} places; at most {3}",
        rows,
        width,
        rows * width,
        MAX_PLACES,
        at=block,
    )
    require(old.strides is None, "{0} has strides of its own, {1}", old.name, old.strides, at=block)
    require(
        old.scope != "register",
        "{0} lives in registers, which have no layout",
        old.name,
        at=block,
    )
    new = _replace(old, swizzle=(axis % rank, by % rank, rows, width))
    return substitute_func(fn, {old: new}), None
