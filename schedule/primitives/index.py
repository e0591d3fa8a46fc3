"""Precomputed indices: `cache_index`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as _replace
from typing import Any

from ...tir.bounds import bound
from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Dim,
    Expr,
    Func,
    Label,
    Load,
    Op,
    Store,
    Var,
    as_expr,
    cast,
    load,
    product,
)
from ...tir.structure import key_of
from ...tir.visit import rewrite_children, substitute, walk
from ..block_queries import Ranges, free_vars, region_buffers, writers_of
from ..edits import rewritten, spatial_nest
from ..find import find_block, replace
from ..places import domain, moving
from ..primitive import primitive
from ..require import current_space, require
from .cached_copies import insert_top, require_scope, top_position
from .reindex import all_written

NUMBERS = 1 << 26
"""At most how many indices one buffer holds."""
NARROW = 1 << 31


@primitive
def cache_index(
    fn: Func, block: Label, storage_scope: str, cse_thresh: int = 0
) -> tuple[Func, tuple[Label, ...]]:
    """Precompute the indices at which `block` reads, in nests before it.

        for i, j: B[i, j] = A[i * 3 // 7, j]   ->   for c0: index[c0] = c0 * 3 // 7
                                                    for i, j: B[i, j] = A[index[i], j]

    An index is precomputed if it is more than a variable, occurs more than `cse_thresh` times in
    the block, depends on iteration variables only, and is known to be within a buffer that was
    written before. Returns the labels of the blocks that compute the indices.
    """
    require_scope(storage_scope)
    require(cse_thresh >= 0, "cse_thresh is {0}; expected at least 0", cse_thresh, at=block)
    found = find_block(fn, block)
    _require_no_choice(found)
    ranges = domain(found.iters)
    position = top_position(fn, block)
    counts: Counter[object] = Counter()
    exprs: dict[object, Expr] = {}
    places: set[tuple[Load, int]] = set()
    for n in _loads(found):
        if not _is_settled(fn, n.buffer, position):
            continue
        for d, (e, size) in enumerate(zip(n.indices, n.buffer.shape, strict=True)):
            if _is_computed(e, found) and _is_within(e, size, ranges):
                places.add((n, d))
                exprs.setdefault(key_of(e), e)
                counts[key_of(e)] += 1
    chosen = [e for key, e in exprs.items() if counts[key] > cse_thresh]
    require(
        bool(chosen),
        "block {0} computes no index more than {1} times that could be computed ahead",
        block.name,
        cse_thresh,
        at=block,
        hint="indices that need a condition to be in bounds stay, as do plain variables",
    )
    labels: list[Label] = []
    loads: dict[object, Expr] = {}
    for e in chosen:
        iters = moving(found, (e,))
        name = f"{block.name}_index" + (f"_{len(labels)}" if labels else "")
        shape = tuple(i.extent for i in iters)
        require(
            product(shape) <= NUMBERS,
            "there are {0} values of index {1}; at most {2}",
            lambda shape=shape: product(shape),
            e,
            NUMBERS,
            at=block,
        )
        low, high = bound(e, ranges)
        assert isinstance(low, int)
        assert isinstance(high, int)
        dtype = "int32" if high < NARROW else "int64"
        buffer = Buffer(name, shape, dtype, scope=storage_scope, value_range=(low, high + 1))
        label = Label(name)
        variables = {i.var: Var(f"v{n}") for n, i in enumerate(iters)}
        axes = [(f"c{n}", variables[i.var], i.extent) for n, i in enumerate(iters)]
        body = Store(buffer, tuple(variables.values()), cast(dtype, substitute(e, variables)))
        fn = insert_top(fn, position + len(labels), spatial_nest(label, axes, body))
        fn = _replace(fn, allocs=(*fn.allocs, buffer))
        loads[key_of(e)] = cast("int64", load(buffer, tuple(i.var for i in iters)))
        labels.append(label)
    return _with_loads(fn, found, loads, places), tuple(labels)


def _require_no_choice(block: Block) -> None:
    """Require that decisions do not change whether an index is precomputed and in its buffer."""
    space = current_space()
    if space is None:
        return
    sizes: list[Dim] = [i.extent for i in block.iters]
    for n in _loads(block):
        sizes += [*n.indices, *n.buffer.shape]
    used = {v for size in sizes for v in free_vars(as_expr(size))}
    require(
        not used & space.bounds.keys(),
        "the indices of block {0} depend on decisions that are open: {1}",
        block.label.name,
        lambda: ", ".join(sorted(v.name for v in used & space.bounds.keys())),
        at=block.label,
        hint="compute them ahead before the steps that use these decisions",
    )


def _loads(block: Block) -> list[Load]:
    """The loads of a block from buffers that it does not write."""
    own = region_buffers(block.writes)
    roots = [block.body] if block.init is None else [block.init, block.body]
    return [n for r in roots for n in walk(r) if type(n) is Load and n.buffer not in own]


def _is_settled(fn: Func, buffer: Buffer, position: int) -> bool:
    """Whether all elements of `buffer` have their values before the statement at `position`."""
    earlier = all(top_position(fn, w.label) < position for w in writers_of(fn, buffer))
    return earlier and all_written(fn, buffer)


def _is_computed(e: Expr, block: Block) -> bool:
    """Whether an index is arithmetic on iteration variables that cannot fail."""
    if type(e) is Var or type(e) is Const or not free_vars(e) <= {i.var for i in block.iters}:
        return False
    for n in walk(e):
        if type(n) is Load:
            return False
        if type(n) is Binary and n.op in (Op.FLOORDIV, Op.MOD) and not _is_divisor(n.b):
            return False
    return True


def _is_divisor(e: Expr) -> bool:
    return type(e) is Const and e.value != 0


def _is_within(e: Expr, size: object, ranges: Ranges) -> bool:
    low, high = bound(e, ranges)
    return (
        isinstance(low, int)
        and isinstance(high, int)
        and isinstance(size, int)
        and 0 <= low <= high < size
    )


def _with_loads(
    fn: Func, block: Block, loads: dict[object, Expr], places: set[tuple[Load, int]]
) -> Func:
    """`fn` in which `block` takes the indices at `places` from `loads`, where they are keys."""

    def index(n: Load, d: int) -> Expr:
        key = key_of(n.indices[d])
        if (n, d) in places and key in loads:
            return loads[key]
        found: Expr = visit(n.indices[d])
        return found

    def visit(n: Any) -> Any:
        if type(n) is Buffer:
            return n
        if type(n) is Load:
            indices = tuple(index(n, d) for d in range(len(n.indices)))
            return Load(n.buffer, indices, n.dtype, None if n.mask is None else visit(n.mask))
        return rewrite_children(n, visit)

    new = rewritten(block, visit)
    return replace(fn, block, new)
