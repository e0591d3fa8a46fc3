"""Inlining: `compute_inline` and `reverse_compute_inline`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as _replace
from typing import Any

from ...tir.bounds import prove, truth
from ...tir.ir import (
    Block,
    Buffer,
    Const,
    Expr,
    Func,
    Iter,
    Label,
    Load,
    Region,
    Select,
    Stmt,
    Store,
    Var,
    const,
    load,
    seq,
)
from ...tir.simplify import Simplifier
from ...tir.structure import conjunction, conjuncts
from ...tir.visit import rewrite_children, substitute, walk
from ..available import (
    require_available,
    require_read_first,
    require_readers_served,
    require_still_concurrent,
)
from ..block_queries import (
    Ranges,
    domain,
    domain_conditions,
    free_vars,
    has_reduction,
    order_of,
    outer_ranges,
    readers_of,
    region_buffers,
    require_internal,
    require_unit,
    with_regions,
    without_block,
    without_buffers,
    writers_of,
)
from ..digit_sums import Solution, solve
from ..find import blocks_in, find_block, loops_above, replace, statements
from ..places import always_read, place_of
from ..primitive import primitive
from ..require import current_space, require
from ..steady import require_steady, require_stores_in_place, require_used_at_once
from ..written import visited

MAX_SIZE = 4096
"""The number of nodes that a block may grow to."""


@primitive
def compute_inline(fn: Func, block: Label) -> tuple[Func, None]:
    """Inline `block` into its consumers, and drop its buffer.

        for i: B[i] = A[i] + 1   ->   for i: C[i] = (A[i] + 1) * 2
        for i: C[i] = B[i] * 2

    The block must be spatial, and store to one or several internal buffers, at indices that tell
    its iteration variables: fused, split, permuted or reversed. A block without consumers is
    dropped.
    """
    producer = find_block(fn, block)
    require_unit(fn, producer)
    require_internal(fn, producer)
    stores = {s.buffer: s for s in _stores(producer)}
    consumers = readers_of(fn, set(stores), but=block)
    if not consumers:
        require(
            len(list(blocks_in(fn.body))) > 1, "block {0} is the only one of the program", block
        )
        return _without(fn, producer, *stores), None
    overwritten = _require_unchanged(fn, producer, producer.reads, consumers)
    # Nothing reads what is never computed; its indices need not make sense elsewhere.
    empty = any(isinstance(i.extent, int) and i.extent == 0 for i in producer.iters)
    places = {b: tuple([Var(f"d{d}") for d in range(len(b.shape))]) for b in stores}
    values = {
        b: const(0, b.dtype)
        if empty
        else substitute(s.value, _determined(producer, s, places[b], [s.value]).values)
        for b, s in stores.items()
    }

    def inlined(n: Any) -> Any:
        if type(n) is Load and n.buffer in stores:
            indices = tuple(inlined(e) for e in n.indices)
            mapping = dict(zip(places[n.buffer], indices, strict=True))
            return _chosen(substitute(values[n.buffer], mapping))
        return n if type(n) is Buffer else rewrite_children(n, inlined)

    for c in consumers:
        body = inlined(c.body)
        init = None if c.init is None else inlined(c.init)
        _require_moderate(body, c.label)
        fn = replace(fn, find_block(fn, c.label), with_regions(_replace(c, body=body, init=init)))
    fn = _without(fn, producer, *stores)
    for buffer in overwritten:
        require_read_first(fn, consumers[-1].label, buffer, block)
    for c in consumers:
        require_available(fn, c.label)
    sources = [w.label for r in producer.reads for w in writers_of(fn, r.buffer)]
    require_still_concurrent(fn, sources)
    return fn, None


def _determined(
    block: Block, access: Load | Store, at: Sequence[Expr], used: Iterable[Any]
) -> Solution:
    """The iteration variables of `block` where its `access` is to the element `at`.

    Only those that are in `used` must be among them.
    """
    found = solve(access.indices, {i.var: i.extent for i in block.iters}, at)
    needed = {n for root in used for n in walk(root) if type(n) is Var}
    require(
        found.exact and all(i.var in found.values or i.var not in needed for i in block.iters),
        "block {0} accesses {1}[{2}]; these indices are not known to determine its iteration "
        "variables {3}",
        block.label,
        access.buffer.name,
        lambda: ", ".join(map(repr, access.indices)),
        lambda: ", ".join(i.var.name for i in block.iters),
    )
    plain = {e: x for e, x in zip(access.indices, at, strict=True) if type(e) is Var}
    return found._replace(values=found.values | plain)  # of one value too, as they are


def _chosen(n: Any) -> Any:
    """An expression without the selections whose condition has become a constant."""
    if type(n) is Select and type(n.cond) is Const:
        return _chosen(n.then if n.cond.value else n.other)
    return n if type(n) is Buffer else rewrite_children(n, _chosen)


def _require_unchanged(
    fn: Func, first: Block, regions: Sequence[Region], later: Sequence[Block]
) -> list[Buffer]:
    """Require that the contents of `regions` at `first` are the same when `later` blocks run.

    Returns the buffers that the last of these overwrites itself.
    """
    order = order_of(fn)
    last = max(order[b.label] for b in later)
    for b in later:
        require_steady(fn, first, region_buffers(regions), loops_above(fn, b.label))
    require_used_at_once(fn, first, region_buffers(regions), later)
    overwritten: list[Buffer] = []
    for buffer in sorted(region_buffers(regions), key=lambda b: b.name):
        for w in writers_of(fn, buffer):
            if order[w.label] == last:
                overwritten.append(buffer)
                continue
            require(
                not order[first.label] < order[w.label] < last,
                "block {0} overwrites {1}, which block {2} reads",
                w.label,
                buffer.name,
                first.label.name,
            )
    return overwritten


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

    The buffer between them is dropped. The block must be spatial and read one internal buffer at
    one place, whose indices tell its iteration variables: fused, split, permuted or reversed
    (`B[i // 8, i % 8]`). The buffer's only producer must be spatial too, and store at such indices
    of its own variables. If the block reads only a part of the buffer (`B[i + 3]`), the rest is no
    longer computed: the producer then has the iteration variables of the block.
    """
    consumer = find_block(fn, block)
    require_unit(fn, consumer)
    stores = _stores(consumer)
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
    sources = _stores(producer)
    source = next(s for s in sources if s.buffer is buffer)
    kept = [s for s in sources if s is not source]
    place = load(buffer, place_of(consumer, buffer))
    points = _simple(_determined(producer, source, place.indices, sources), consumer)
    theirs = _simple(_determined(consumer, place, source.indices, stores), producer)
    _require_all_computed(fn, consumer, producer, buffer, points.conditions)
    require(
        visited(fn, [(consumer, consumer.iters)]),
        "block {0} does not run in all of its iterations, as its producer would for it",
        block,
        hint="reverse_compute_at moves the consumer next to its producer",
    )
    others = [r for r in consumer.reads if r.buffer is not buffer]
    _require_unchanged(fn, producer, others, [consumer])
    require_steady(fn, consumer, region_buffers(others), loops_above(fn, producer.label))
    require_stores_in_place(fn, consumer, producer, theirs.values, theirs.conditions)
    order = order_of(fn)
    before = [r.label for r in readers_of(fn, region_buffers(consumer.writes))
              if order[r.label] < order[block]]  # fmt: skip
    for r in before:
        require(
            order[r] <= order[producer.label],
            "block {0} reads what block {1} overwrites",
            r,
            block.name,
        )
    if theirs.conditions:
        space = current_space()
        require(
            space is None
            or all(space.bounds.keys().isdisjoint(free_vars(c)) for c in theirs.conditions),
            "whether block {0} reads only a part of {1} depends on open decisions",
            block,
            buffer.name,
        )
        require(
            not kept,
            "block {0} reads only a part of {1}, but block {2} stores {3} too, all of it",
            block,
            buffer.name,
            producer.label.name,
            lambda: ", ".join(s.buffer.name for s in kept),
        )
        value = substitute(source.value, points.values)
        body = _replaced(consumer.body, buffer, value, {})
        merged = _bound(producer, consumer.iters, theirs, outer_ranges(fn, producer.label), body)
    else:
        moved = (_replaced(s, buffer, source.value, theirs.values) for s in stores)
        merged = _replace(producer, body=seq(*kept, *moved))
    fn = _without(fn, consumer, buffer)
    _require_moderate(merged.body, block)
    fn = replace(fn, find_block(fn, producer.label), with_regions(merged))
    updated = region_buffers(producer.reads) & region_buffers(consumer.writes)
    require_unit(fn, find_block(fn, producer.label), updated)
    for b in sorted(updated, key=lambda b: b.name):
        require_read_first(fn, producer.label, b, producer.label)
    for r in before:
        require_available(fn, r)
    require_available(fn, producer.label)
    require_readers_served(fn, producer.label)
    written = [w.label for r in others for w in writers_of(fn, r.buffer)]
    require_still_concurrent(fn, (producer.label, *written))
    return fn, None


def _simple(found: Solution, block: Block) -> Solution:
    """A solution in simple terms, without the conditions that hold at all points of `block`."""
    s = Simplifier(domain(block.iters))
    values = {v: s(e) for v, e in found.values.items()}
    return Solution(values, [c for c in found.conditions if truth(s, c) is not True], found.exact)


def _require_all_computed(
    fn: Func, consumer: Block, producer: Block, buffer: Buffer, limits: Sequence[Expr]
) -> None:
    """Require that each point of `consumer` has one of `producer`, which fulfils `limits`.

    That is so if the consumer reads an element at each of its points: it has been written.
    """
    whole = [(producer, producer.iters)]
    require(
        always_read(consumer, buffer) or (not limits and visited(fn, whole)),
        "block {0} also runs where no element of {1} is known to be computed",
        consumer.label,
        buffer.name,
        hint="reverse_compute_at moves the consumer next to its producer",
    )


def _replaced(root: Stmt, buffer: Buffer, value: Expr, variables: Mapping[Var, Expr]) -> Stmt:
    """`root` with `value` in the place of its loads of `buffer`, and with `variables` replaced."""

    def visit(n: Any) -> Any:
        if type(n) is Load and n.buffer is buffer:
            return value
        if type(n) is Var:
            return variables.get(n, n)
        return n if type(n) is Buffer else rewrite_children(n, visit)

    replaced: Stmt = visit(root)
    return replaced


def _bound(
    producer: Block, iters: Sequence[Iter], points: Solution, ranges: Ranges, body: Stmt
) -> Block:
    """`producer` with the iterations of its consumer, which are at `points`."""
    s = Simplifier(ranges)
    at = {i.var: i.value for i in producer.iters}
    known = [i for i in iters if i.var in points.values]
    bound = tuple([_replace(i, value=s(substitute(points.values[i.var], at))) for i in known])
    limits = [c for i in bound for c in domain_conditions(i.value, i.extent, s)]
    for c in (*conjuncts(producer.predicate), *(substitute(c, at) for c in points.conditions)):
        if prove(c, ranges, limits) is not True:
            limits.append(c)
    return _replace(producer, iters=bound, body=body, predicate=conjunction(limits))


def _stores(block: Block) -> list[Store]:
    """The stores of a spatial block, one element of a buffer each."""
    stmts = statements(block.body)
    found = [s for s in stmts if type(s) is Store]
    require(
        not has_reduction(block),
        "block {0} is a reduction: only a block that stores each element once can be inlined",
        block.label,
        hint="compute_at and reverse_compute_at move blocks",
    )
    require(
        len(found) == len(stmts) and len({s.buffer for s in found}) == len(found),
        "block {0} must only store values, one to each buffer that it writes",
        block.label,
    )
    return found


def _without(fn: Func, block: Block, *buffers: Buffer) -> Func:
    return without_buffers(without_block(fn, block.label), set(buffers))
