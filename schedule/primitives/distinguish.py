"""Places at which a block reads one buffer, told apart: `distinguish_reads`."""

from __future__ import annotations

from dataclasses import replace as _replace
from typing import Any

from ...tir.ir import Buffer, Expr, Func, Label, Load
from ...tir.structure import key_of
from ...tir.visit import rewrite_children
from ..blocks import with_regions
from ..find import find_block, replace
from ..primitive import primitive
from ..require import require
from .cache import (
    copy_block,
    input_at,
    insert_top,
    loads_of,
    require_written_before,
    top_position,
    written_elements,
)


@primitive
def distinguish_reads(
    fn: Func, block: Label, read_buffer_index: int
) -> tuple[Func, tuple[Label, ...]]:
    """Let `block` read a copy of its input at each place but the first; nests before it copy.

        for i, j, k: C[i, j] += A[k, i] * A[k, j]
          ->  for c0, c1: A_copy[c0, c1] = A[c0, c1]
              for i, j, k: C[i, j] += A[k, i] * A_copy[k, j]

    Steps that are about one input, such as `pack`, are then about one place. `compute_inline` of a
    copying block undoes it. `read_buffer_index` counts the buffers that the block reads, without
    those it writes. Gives the labels of the copying blocks.
    """
    found = find_block(fn, block)
    buffer = input_at(found, read_buffer_index)
    others = list(dict.fromkeys(_place(n.indices) for n in loads_of(found, buffer)))[1:]
    require(
        bool(others),
        "block {0} reads {1} at one place alone",
        block.name,
        buffer.name,
        at=block,
        hint="cache_read makes a copy for all places",
    )
    position = top_position(fn, block)
    require_written_before(fn, buffer, position, found)
    elements = [written_elements(fn, buffer) for _ in others]
    copies: dict[object, Buffer] = {}
    labels = []
    for n, place in enumerate(others):
        name = f"{buffer.name}_copy" + (f"_{n}" if n else "")
        copies[place] = Buffer(name, buffer.shape, buffer.dtype, value_range=buffer.value_range)
        stmt, label = copy_block(name, buffer, copies[place], elements[n])
        fn = insert_top(fn, position + n, stmt)
        labels.append(label)

    def visit(n: Any) -> Any:
        if type(n) is Buffer:
            return n
        n = rewrite_children(n, visit)
        if type(n) is Load and n.buffer is buffer and (copy := copies.get(_place(n.indices))):
            return _replace(n, buffer=copy)
        return n

    init = None if found.init is None else visit(found.init)
    new = with_regions(_replace(found, body=visit(found.body), init=init))
    return replace(fn, found, new, *copies.values()), tuple(labels)


def _place(indices: tuple[Expr, ...]) -> tuple[object, ...]:
    return tuple(map(key_of, indices))
