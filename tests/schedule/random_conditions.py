"""Conditions in random programs, as people write them around blocks, and loops over triangles."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from tilewright.base import dtypes
from tilewright.base.errors import VerifyError
from tilewright.schedule.block_queries import (
    Ranges,
    loop_ranges,
    with_regions,
    writers_of,
)
from tilewright.schedule.find import blocks_in, loops_above, path_to, rebuild
from tilewright.schedule.places import copied
from tilewright.tir.ir import (
    Block,
    Buffer,
    Func,
    If,
    IterKind,
    Label,
    Select,
    Stmt,
    Store,
    load,
    seq,
)
from tilewright.tir.nests import conditional, read_by
from tilewright.tir.verify import verify
from tilewright.tir.visit import substitute

from .random_stages import Pick


def with_conditions(func: Func, pick: Pick) -> Func:
    """`func` with choices made by `if` instead of `select`, and some stores or terms left out.

    A change after which it cannot be shown what is written is not made.
    """
    for block in list(blocks_in(func.body)):
        if isinstance(block.body, Store) and isinstance(block.body.value, Select) and pick(4):
            new = _branches(func, block, block.body, block.body.value, pick)
        elif pick(2):
            new = _left_out(func, block, pick)
        else:
            continue
        with suppress(VerifyError):
            verify(new)
            func = new
    return func


def _branches(func: Func, block: Block, store: Store, value: Select, pick: Pick) -> Func:
    """A choice as one block, as one of each branch, or as one for all elements and another."""
    if store.buffer in read_by(value.cond):
        return func
    then, other = replace(store, value=value.then), replace(store, value=value.other)
    way = pick(3)
    if way == 0:
        return _with(func, block, with_regions(replace(block, body=If(value.cond, then, other))))
    first, second = (
        copied(with_regions(replace(block, body=s)), Label(f"{block.label.name}_{k}"), {})
        for k, s in enumerate((then, other))
    )
    cond = substitute(value.cond, {i.var: i.value for i in block.iters})
    ranges = _ranges(func, block)
    if way == 1 or store.buffer in {r.buffer for r in first.reads}:
        return _with(func, block, conditional(cond, first, second, ranges))
    return _with(func, block, seq(second, conditional(cond, first, None, ranges)))


def _left_out(func: Func, block: Block, pick: Pick) -> Func:
    """Elements of a result that nothing reads, or terms of a reduction, where data says so."""
    kind = IterKind.REDUCE if pick(2) and block.init is not None else IterKind.SPATIAL
    chosen = [i for i in block.iters if i.kind is kind]
    if kind is IterKind.SPATIAL and not _is_result(func, block):
        return func
    asked = [p for p in func.params if isinstance(p, Buffer) and not writers_of(func, p)]
    fitting = [p for p in asked if len(p.shape) == 1 and not dtypes.is_bool(p.dtype)]
    if not chosen:
        return func
    i = chosen[pick(len(chosen))]
    j = chosen[pick(len(chosen))]
    at = i.extent - 1 - i.value if pick(2) else i.value
    if pick(3) == 0 or not fitting or 0 in fitting[0].shape:
        bound = (i.value < 3, i.value < j.value, i.value + j.value < 6)[pick(3)]
        if kind is IterKind.REDUCE:  # the first iteration is one
            bound = bound | (i.value <= 0) if i is j else i.value < 3
        return _with(func, block, conditional(bound, block, None, _ranges(func, block)))
    if kind is IterKind.SPATIAL and block.init is not None:
        return func  # whether an init was run is then for data to say, which no check can follow
    data = fitting[pick(len(fitting))]
    cond = load(data, (at % data.shape[0],)) > 1
    return _with(func, block, conditional(cond, block, None, _ranges(func, block)))


def _is_result(func: Func, block: Block) -> bool:
    """Whether a block alone writes results, which no block reads."""
    stored = {r.buffer for r in block.writes}
    return (
        stored.issubset(set(func.params) - set(func.inplace))
        and all(len(writers_of(func, b)) == 1 for b in stored)
        and not any(
            r.buffer in stored for b in blocks_in(func.body) for r in b.reads if b is not block
        )
    )


def _ranges(func: Func, block: Block) -> Ranges:
    return loop_ranges(loops_above(func, block.label))


def _with(func: Func, block: Block, new: Stmt) -> Func:
    return rebuild(func, path_to(func, block.label), new)
