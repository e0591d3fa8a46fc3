"""Inlining: `compute_inline` and `reverse_compute_inline`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace as _replace
from typing import Any

from ...tir.ir import (
    Block,
    Buffer,
    Const,
    Expr,
    Func,
    IterKind,
    Label,
    Load,
    Region,
    Select,
    Stmt,
    Store,
    Var,
    const,
    seq,
)
from ...tir.joined import two_digits
from ...tir.visit import rewrite_children, substitute, walk
from ..available import require_available, require_readers_served, require_still_concurrent
from ..block_queries import (
    has_reduction,
    order_of,
    readers_of,
    region_buffers,
    require_internal,
    require_unit,
    require_whole_domain,
    with_regions,
    without_block,
    without_buffers,
    writers_of,
)
from ..find import find_block, replace, statements
from ..primitive import primitive
from ..require import require, require_some
from .cached_copies import loads_of

MAX_SIZE = 4096
"""The number of nodes that a block may grow to."""


@primitive
def compute_inline(fn: Func, block: Label) -> tuple[Func, None]:
    """Inline `block` into its consumers, and drop its buffer.

        for i: B[i] = A[i] + 1   ->   for i: C[i] = (A[i] + 1) * 2
        for i: C[i] = B[i] * 2

    The block must be spatial, and store to one or several internal buffers at its plain iteration
    variables.
    """
    producer = find_block(fn, block)
    require_unit(fn, producer)
    require_internal(fn, producer)
    stores = {s.buffer: s for s in _stores(producer)}
    variables = {b: _plain_indices(producer, s) for b, s in stores.items()}
    # Nothing reads what is never computed; its indices need not make sense elsewhere.
    empty = any(isinstance(i.extent, int) and i.extent == 0 for i in producer.iters)
    values = {b: const(0, b.dtype) if empty else s.value for b, s in stores.items()}
    consumers = readers_of(fn, set(stores), but=block)
    require(bool(consumers), "block {0} has no consumer", block)
    _require_unchanged(fn, producer, producer.reads, consumers)

    def inlined(n: Any) -> Any:
        if type(n) is Load and n.buffer in stores:
            indices = tuple(inlined(e) for e in n.indices)
            mapping = dict(zip(variables[n.buffer], indices, strict=True))
            return _chosen(substitute(values[n.buffer], mapping))
        return n if type(n) is Buffer else rewrite_children(n, inlined)

    for c in consumers:
        body = inlined(c.body)
        init = None if c.init is None else inlined(c.init)
        _require_moderate(body, c.label)
        fn = replace(fn, find_block(fn, c.label), with_regions(_replace(c, body=body, init=init)))
    fn = _without(fn, producer, *stores)
    for c in consumers:
        require_available(fn, c.label)
    sources = [w.label for r in producer.reads for w in writers_of(fn, r.buffer)]
    require_still_concurrent(fn, sources)
    return fn, None


def _chosen(n: Any) -> Any:
    """An expression without the selections whose condition has become a constant."""
    if type(n) is Select and type(n.cond) is Const:
        return _chosen(n.then if n.cond.value else n.other)
    return n if type(n) is Buffer else rewrite_children(n, _chosen)


def _require_unchanged(
    fn: Func, first: Block, regions: Iterable[Region], later: Sequence[Block]
) -> None:
    """Require that the contents of `regions` at `first` are the same when `later` blocks run."""
    order = order_of(fn)
    last = max(order[b.label] for b in later)
    for buffer in sorted(region_buffers(regions), key=lambda b: b.name):
        for w in writers_of(fn, buffer):
            require(
                not order[first.label] < order[w.label] <= last,
                "block {0} overwrites {1}, which block {2} reads",
                w.label,
                buffer.name,
                first.label.name,
            )


def _require_moderate(body: Stmt, label: Label) -> None:
    count = sum(1 for _ in walk(body))
    require(
        count <= MAX_SIZE,
        "block {0} would grow to {1} terms; at most {2}",
        label,
        count,
        MAX_SIZE,
    )


@primitive
def reverse_compute_inline(fn: Func, block: Label) -> tuple[Func, None]:
    """Inline `block` into its producer, which then stores the block's result.

        for i: B[i] = A[i] + 1   ->   for i: C[i] = (A[i] + 1) * 2
        for i: C[i] = B[i] * 2

    The buffer between them is dropped. The block must be spatial and read one internal buffer, once
    per element, at its plain iteration variables. The buffer's only producer must be spatial too,
    and store at its own iteration variables or at fused pairs of them (`h * 8 + l`).
    """
    consumer = find_block(fn, block)
    require_unit(fn, consumer)
    stores = _stores(consumer, "reverse_compute_at")
    produced = [
        (b, writers_of(fn, b))
        for b in sorted(region_buffers(consumer.reads), key=lambda b: b.name)
        if b in fn.allocs and writers_of(fn, b)
    ]
    require(
        len(produced) == 1 and len(produced[0][1]) == 1,
        "block {0} must read the result of one block, found {1}",
        block,
        lambda: ", ".join(w.label.name for _, ws in produced for w in ws) or "none",
    )
    buffer, (producer,) = produced[0]
    require_unit(fn, producer)
    require(
        not has_reduction(producer),
        "block {0} is a reduction, which its consumer cannot be part of",
        producer.label,
        hint="reverse_compute_at moves the consumer next to it; "
        "fuse_reduction_epilogue folds an added term into the init",
    )
    require(
        len(readers_of(fn, {buffer})) == 1,
        "{0} is read by other blocks too",
        buffer.name,
        at=producer.label,
    )
    reads = loads_of(consumer, buffer)
    places = [_plain(consumer, r.indices) for r in reads]
    variables = require_some(
        places[0] if len(set(places)) == 1 else None,
        "block {0} must read {1} at its plain iteration variables",
        block,
        buffer.name,
    )
    require_whole_domain(consumer, variables, buffer)
    used = {n for s in stores for e in (*s.indices, s.value) for n in walk(e) if type(n) is Var}
    require(
        used & {i.var for i in consumer.iters} <= set(variables),
        "block {0} stores at iteration variables that do not index {1}",
        block,
        buffer.name,
    )
    others = [r for r in consumer.reads if r.buffer is not buffer]
    _require_unchanged(fn, producer, others, [consumer])
    order = order_of(fn)
    for r in readers_of(fn, region_buffers(consumer.writes)):
        require(
            order[r.label] > order[block],
            "block {0} reads what block {1} overwrites",
            r.label,
            block.name,
        )
    sources = _stores(producer)
    source = next(s for s in sources if s.buffer is buffer)
    _require_each_once(producer, source)
    mapping = dict(zip(variables, source.indices, strict=True))

    def inlined(n: Any) -> Any:
        if type(n) is Load and n.buffer is buffer:
            return source.value
        if type(n) is Var:
            return mapping.get(n, n)
        return n if type(n) is Buffer else rewrite_children(n, inlined)

    kept = [s for s in sources if s is not source]
    moved = [Store(s.buffer, tuple(map(inlined, s.indices)), inlined(s.value)) for s in stores]
    body = seq(*kept, *moved)
    fn = _without(fn, consumer, buffer)
    _require_moderate(body, block)
    merged = with_regions(_replace(producer, body=body))
    fn = replace(fn, find_block(fn, producer.label), merged)
    require_unit(fn, merged)
    require_available(fn, producer.label)
    require_readers_served(fn, producer.label)
    written = [w.label for r in others for w in writers_of(fn, r.buffer)]
    require_still_concurrent(fn, (producer.label, *written))
    return fn, None


def _stores(block: Block, move: str = "compute_at") -> list[Store]:
    """The stores of a spatial block, one element of a buffer each; `move` moves a reduction."""
    stmts = statements(block.body)
    found = [s for s in stmts if type(s) is Store]
    require(
        not has_reduction(block),
        "block {0} is a reduction: only a block that stores each element once can be inlined",
        block.label,
        hint=lambda: f"{move} moves it",
    )
    require(
        len(found) == len(stmts) and len({s.buffer for s in found}) == len(found),
        "block {0} must only store values, one to each buffer that it writes",
        block.label,
    )
    return found


def _plain(block: Block, indices: tuple[Expr, ...]) -> tuple[Var, ...] | None:
    """The indices as distinct spatial iteration variables, all of the block's that matter."""
    spatial = {i.var for i in block.iters if i.kind is IterKind.SPATIAL}
    found = [e for e in indices if type(e) is Var and e in spatial]
    if len(found) != len(indices) or len(set(found)) != len(found):
        return None
    return tuple(found)


def _plain_indices(block: Block, store: Store) -> tuple[Var, ...]:
    variables = _plain(block, store.indices)
    used = {n for n in walk(store.value) if type(n) is Var}
    own = {i.var for i in block.iters}
    return require_some(
        variables if variables is not None and (used & own) <= set(variables) else None,
        "block {0} must store at its plain iteration variables",
        block.label,
    )


def _require_each_once(block: Block, store: Store) -> None:
    """Require that a block stores no element twice."""
    sizes = {i.var: i.extent for i in block.iters if i.kind is IterKind.SPATIAL}
    digits = [two_digits(e, sizes) or (e,) for e in store.indices]
    found = [e for some in digits for e in some]
    used = {n for n in walk(store.value) if type(n) is Var} & {i.var for i in block.iters}
    require(
        all(type(e) is Var and e in sizes for e in found)
        and len(set(found)) == len(found)
        and used <= set(found),
        "block {0} must store at its plain iteration variables, or at numbers of two of them",
        block.label,
    )


def _without(fn: Func, block: Block, *buffers: Buffer) -> Func:
    return without_buffers(without_block(fn, block.label), set(buffers))
