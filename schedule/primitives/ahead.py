"""Transforming an input ahead of its use: `compute_ahead`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as _replace
from typing import Any

from ... import dtypes
from ...tir.ir import Binary, Buffer, Call, Cast, Const, Expr, Func, Label, Load, Op, Select, Store
from ...tir.structure import key_of
from ...tir.visit import children, rewrite_children, walk
from ..block_queries import with_regions
from ..edits import rewritten
from ..find import blocks_in, find_block, replace, replace_stmt
from ..primitive import primitive
from ..require import require
from .cached_copies import (
    copy_block,
    input_at,
    insert_top,
    require_written_before,
    top_position,
    written_elements,
)


@primitive
def compute_ahead(fn: Func, block: Label, read_buffer_index: int) -> tuple[Func, Label]:
    """Compute what `block` derives from each element of one input in a nest before it.

        for i, j, k: C[i, j] += max(A[i, k], 0) * B[k, j]
          ->  for c0, c1: A_ahead[c0, c1] = max(A[c0, c1], 0)
              for i, j, k: C[i, j] += A_ahead[i, k] * B[k, j]

    This is the largest expression of one element and constants; it must be the same wherever the
    block reads the input. `compute_inline` of the new block undoes the step, or, after `pack` or
    `cache_read`, moves the work to where the copy is made. `read_buffer_index` counts the buffers
    that the block reads and does not write. Returns the label of the new block.
    """
    found = find_block(fn, block)
    buffer = input_at(found, read_buffer_index)
    roots = [found.body] if found.init is None else [found.body, found.init]
    values = [e for root in roots for e in _largest(root, buffer)]
    forms = {key_of(_at(e, buffer, Const(0, buffer.dtype))) for e in values}
    require(
        len(forms) == 1 and type(values[0]) is not Load,
        "block {0} does not compute the same of each element of {1} that it reads",
        block.name,
        buffer.name,
        at=block,
        hint="cache_read copies elements as they are",
    )
    for role, hint in (("indices", "cache_index computes indices ahead"), ("divisors", None)):
        require(
            not any(n.buffer is buffer for root in roots for n in _elements_in(role, root)),
            "elements of {0} are {1} of block {2}; what is computed of them has no known range",
            buffer.name,
            role,
            block.name,
            at=block,
            hint=hint,
        )
    value = values[0]
    position = top_position(fn, block)
    require_written_before(fn, buffer, position, found)
    made = Buffer(f"{buffer.name}_ahead", buffer.shape, value.dtype)
    stmt, label = copy_block(made.name, buffer, made, written_elements(fn, buffer))
    (copy,) = blocks_in(stmt)
    (read,) = (n for n in walk(copy.body) if type(n) is Load)
    body = rewrite_children(copy.body, lambda n: _at(value, buffer, read) if n is read else n)
    stmt = replace_stmt(stmt, copy, with_regions(_replace(copy, body=body)))

    computed = set(values)

    def visit(n: Any) -> Any:
        if isinstance(n, Expr) and n in computed:
            (element, *_) = (m for m in walk(n) if type(m) is Load)
            return Load(made, element.indices, made.dtype)
        return n if type(n) is Buffer else rewrite_children(n, visit)

    new = rewritten(found, visit)
    return insert_top(replace(fn, found, new, made), position, stmt), label


def _largest(root: Any, buffer: Buffer) -> Iterator[Expr]:
    """The largest expressions in `root` of an element of `buffer` and numbers alone."""
    if isinstance(root, Expr) and _is_own(root, buffer) and _reads(root):
        places = {tuple(map(key_of, n.indices)) for n in walk(root) if type(n) is Load}
        if len(places) == 1:
            yield root
            return
    for child in children(root):
        if type(child) is not Buffer:
            yield from _largest(child, buffer)


def _elements_in(role: str, root: Any) -> Iterator[Load]:
    """The elements in `root` that are read as "indices" or as "divisors", which may not be zero."""
    for n in walk(root):
        exprs: tuple[Expr, ...] = ()
        if role == "indices" and (type(n) is Load or type(n) is Store):
            exprs = n.indices
        elif role == "divisors" and type(n) is Binary and n.op in (Op.FLOORDIV, Op.MOD):
            exprs = () if dtypes.is_float(n.dtype) else (n.b,)
        for e in exprs:
            yield from (m for m in walk(e) if type(m) is Load)


def _is_own(e: Expr, buffer: Buffer) -> bool:
    """Whether `e` can be computed of elements of `buffer` and numbers, whatever those are."""
    if type(e) is Load:
        return e.buffer is buffer
    if type(e) is Binary and e.op in (Op.FLOORDIV, Op.MOD) and type(e.b) is not Const:
        return False
    known = type(e) in (Binary, Call, Cast, Select, Const)
    return known and all(_is_own(c, buffer) for c in children(e) if isinstance(c, Expr))


def _reads(e: Any) -> bool:
    """Whether evaluating `e` reads memory; a select may guard an access out of bounds."""
    if type(e) is Select:
        return _reads(e.cond) or (_reads(e.then) and _reads(e.other))
    return type(e) is Load or any(_reads(c) for c in children(e) if isinstance(c, Expr))


def _at(e: Any, buffer: Buffer, element: Expr) -> Any:
    """`e` with `element` in place of its reads of `buffer`."""
    if type(e) is Load and e.buffer is buffer:
        return element
    return e if type(e) is Buffer else rewrite_children(e, lambda n: _at(n, buffer, element))
