"""Decomposing reductions: `decompose_reduction`, `rfactor`, `fuse_reduction_epilogue`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as _replace
from typing import NamedTuple

from ...tir.bounds import bound, prove
from ...tir.combiners import COMBINERS, Place, update
from ...tir.ir import (
    INDEX,
    Binary,
    Block,
    Buffer,
    Const,
    Dim,
    Expr,
    For,
    Func,
    Iter,
    IterKind,
    Label,
    Let,
    Load,
    Op,
    Seq,
    Stmt,
    Store,
    Var,
    binary,
    const,
    load,
    seq,
)
from ...tir.polynomial import ONE
from ...tir.simplify import Simplifier, difference
from ...tir.structure import conjunction, conjuncts
from ...tir.updates import Update, Updates, match_updates
from ...tir.visit import reads_from, substitute
from ..available import (
    require_available,
    require_readers_served,
    require_still_concurrent,
)
from ..block_queries import (
    Ranges,
    feeding,
    free_vars,
    has_reduction,
    loop_ranges,
    nest,
    nest_like,
    order_of,
    readers_of,
    region_buffers,
    require_not_inplace,
    require_unit,
    with_regions,
    without_block,
    without_buffers,
    writers_of,
)
from ..facts import last
from ..find import find_block, find_loop, loops_above, path_to, perfect_nest, replace
from ..legality import require_visited_once, reuses, touches_apart
from ..places import copied
from ..primitive import primitive
from ..reduction_blocks import match_reduction, starts_from_zero
from ..require import note_provisional, require, require_some
from ..steady import require_steady, require_stores_in_place, require_used_at_once
from ..written import require_whole_domain

_NAMES = tuple(COMBINERS)


@primitive
def decompose_reduction(fn: Func, block: Label, loop: Var) -> tuple[Func, Label]:
    """Move the init of a reduction into a nest of its own, right before `loop`.

        for i, k:                              for i:
          with init: C[i] = 0             ->     C[i] = 0
          C[i] = C[i] + A[i, k]                  for k: C[i] = C[i] + A[i, k]

    No loop around `loop` may be part of the reduction. Returns the label of the init's block; the
    handle `block` stays with the update.
    """
    found = find_block(fn, block)
    require_unit(fn, found)
    require(has_reduction(found), "block {0} is no reduction", block)
    assert found.init is not None
    loops = loops_above(fn, block)
    position = require_some(
        next((n for n, s in enumerate(loops) if s.var is loop), None),
        "loop {0} is not around block {1}",
        loop.name,
        block,
    )
    spatial, reduce = feeding(found, IterKind.SPATIAL), feeding(found, IterKind.REDUCE)
    around = [s.var.name for s in loops[:position] if s.var in reduce]
    require(
        not around,
        "loop {0} of the reduction is outside of loop {1}; the init would run again in each of "
        "its iterations",
        lambda: ", ".join(around),
        loop,
    )
    _require_begun(found, loops)
    require_visited_once(found, loops[position:], loop_ranges(loops))
    # A loop that only a guard is about repeats the init, as far as the guard lets it.
    kept = _at_zero_point(found, reduce, Simplifier(loop_ranges(loops)))
    told = {v for c in kept for v in free_vars(c)}
    inner = [s for s in loops[position:] if s.var in spatial or s.var in told]
    mixed = [s.var.name for s in inner if s.var in reduce]
    require(
        not mixed,
        "loop {0} is part of both the reduction and the elements",
        lambda: ", ".join(mixed),
        at=loop,
    )
    for buffer in sorted(region_buffers(found.writes), key=lambda b: b.name):
        for s in inner if reuses(found, buffer) else ():
            require(
                touches_apart(path_to(fn, s.var), found, buffer),
                "block {0} uses elements of {1} again in iterations of loop {2}; the init of each "
                "must stay there",
                block,
                buffer.name,
                s.var,
            )
    renamed = {s.var: Var(f"{s.var.name}_init") for s in inner}
    label = Label(f"{block.name}_init")
    iters = tuple(i for i in found.iters if i.kind is IterKind.SPATIAL)
    start = Block(block, iters, (), (), found.init, None, conjunction(kept))
    init = with_regions(copied(start, label, renamed))
    fn = replace(fn, found, with_regions(_replace(found, init=None)))
    target = find_loop(fn, loop)
    fn = replace(fn, target, seq(nest_like(inner, init, renamed), target))
    require_available(fn, label)
    return fn, label


def _at_zero_point(block: Block, reduce: set[Var], s: Simplifier) -> list[Expr]:
    """What the predicate says of the elements: its conditions where the `reduce` loops begin."""
    told = list(conjuncts(block.predicate))
    begin: dict[Var, Expr] = {v: const(0) for v in reduce}
    if any(free_vars(c) & reduce for c in told):
        for i in block.iters:
            require(
                i.kind is not IterKind.REDUCE or not s.poly(substitute(i.value, begin)),
                "block {0} has a guard over the loops of its reduction, which does not begin where "
                "these loops do: {1} is {2}",
                block.label,
                i.var.name,
                i.value,
            )
    at_zero = (c if not free_vars(c) & reduce else s(substitute(c, begin)) for c in told)
    return [c for c in at_zero if not (type(c) is Const and c.value)]


def _require_begun(block: Block, loops: Sequence[For]) -> None:
    """Require that the init of `block` runs: a tail continues a reduction, and has another's."""
    for i in block.iters:
        low = bound(i.value, loop_ranges(loops))[0] if i.kind is IterKind.REDUCE else 0
        require(
            not (isinstance(low, int) and low > 0),
            "block {0} continues a reduction: {1} is at least {2}, and its init runs at 0 alone",
            block.label,
            i.var.name,
            low,
        )


@primitive
def rfactor(fn: Func, loop: Var, factor_axis: int = 0) -> tuple[Func, Label]:
    """Keep a partial result for each iteration of a reduction's `loop`; combine them afterwards.

        for k_0, k_1: C[] += A[k_0 * 8 + k_1]   ->   for k_0, k_1: C_rf[k_1] += A[k_0 * 8 + k_1]
                                                     for k_1: C[] += C_rf[k_1]

    The partial results are an internal buffer with a new dimension at `factor_axis`, one for each
    reduced result; iterations at the end of `loop` of which guards leave nothing have none. Returns
    the label of the block that computes them; the block's old handle stays with the combination.
    For sum, prod, min, max, argmin and argmax, which return the first of equal elements as before.
    A best element may also be selected by comparisons: where these keep or replace an equal one,
    partial results have the numbers of their visits, which decide among equal ones in the order of
    the loops. Which element comparisons select among NaN depends on the order, which a reduction
    leaves open.
    """
    target = find_loop(fn, loop)
    block = sole_block(target)
    require_unit(fn, block)
    reductions = require_some(
        match_updates(block, numbered=True),
        "block {0} must be a reduction by {1}",
        block.label,
        " or ".join([", ".join(_NAMES[:-1]), _NAMES[-1]]),
    )
    spatial, reduce = feeding(block, IterKind.SPATIAL), feeding(block, IterKind.REDUCE)

    require(
        loop in reduce,
        "loop {0} is no loop of the reduction of block {1}",
        loop,
        block.label.name,
        found=loop,
        expected=lambda: [s.var for s in loops_above(fn, block.label) if s.var in reduce],
    )
    require(
        not spatial & reduce,
        "loop {0} is part of both the reduction and the elements",
        lambda: ", ".join(sorted(v.name for v in spatial & reduce)),
        at=loop,
    )
    places = [p for u in reductions.updates for p in u.places]
    rank = len(places[0].indices)
    require(
        all(len(p.indices) == rank for p in places),
        "the results of block {0} are of different ranks: {1}",
        block.label,
        lambda: ", ".join(f"{p.buffer.name} of {len(p.indices)}" for p in places),
    )
    require(
        -rank - 1 <= factor_axis <= rank,
        "factor_axis {0} is outside of -{1} .. {2}",
        factor_axis,
        rank + 1,
        rank,
        at=loop,
    )
    axis = factor_axis if factor_axis >= 0 else factor_axis + rank + 1
    path = path_to(fn, block.label)
    first = max((n + 1 for n, s in enumerate(path) if type(s) is Seq), default=0)
    loops = [s for s in path[first:-1] if isinstance(s, For)]
    around = [s.var.name for s in path[:first] if type(s) is For and s.var in reduce]
    require(
        not around,
        "loop {0} of the reduction is shared with other blocks",
        lambda: ", ".join(around),
        at=loop,
    )
    _require_begun(block, loops_above(fn, block.label))
    require_visited_once(block, loops, loop_ranges(loops_above(fn, block.label)))
    parts = _parts(fn, block, target, reduce)
    _require_guards_kept(block, loops, spatial | reduce)
    reductions, numbers = _numbered(reductions, [s for s in loops if s.var in reduce])
    partial = _partial(block, reductions, loop, parts, axis, loops)
    combined = _combined(block, reductions, numbers, partial, loop, parts, axis, loops)
    rebuilt = replace(fn, block, partial.block)
    root = path_to(rebuilt, partial.block.label)[first]
    created = (p.buffer for p in numbers)
    fn = replace(rebuilt, root, seq(root, combined), *created, *partial.buffers.values())
    return fn, partial.block.label


def sole_block(loop: For) -> Block:
    """The block that a loop contains, perfectly nested, and nothing else."""
    _, leaf = perfect_nest(loop)
    return require_some(
        leaf if type(leaf) is Block else None,
        "loop {0} must contain a single block, perfectly nested",
        loop.var,
    )


class _Partial(NamedTuple):
    """The block of partial results, and the buffers that it fills, by those they are results of."""

    block: Block
    buffers: dict[Buffer, Buffer]


def _parts(fn: Func, block: Block, target: For, reduce: set[Var]) -> Dim:
    """The number of iterations of a loop that visit the zero point of their part of a reduction.

    Those behind them must visit nothing.
    """
    ranges = loop_ranges(loops_above(fn, block.label))
    loop, guards = target.var, conjuncts(block.predicate)
    zero = {v: const(0) for v in reduce if v is not loop}
    first = [substitute(c, zero) for c in guards if free_vars(c) & reduce]
    parts = target.extent
    for c in first:
        end = None if prove(c, ranges) is True else _end(c, loop, ranges)
        if end is not None and isinstance(parts, int):
            parts = min(parts, end)
    within = {**ranges, loop: (0, last(parts))}
    behind = parts is target.extent or prove(loop < parts, ranges, guards) is True
    require(
        behind and all(prove(c, within) is True for c in first),
        "some iteration of loop {0} is guarded off altogether, so that its partial result would "
        "never be initialised",
        loop,
        hint="choose a factor that divides the extent",
    )
    return parts


def _end(condition: Expr, loop: Var, ranges: Ranges) -> int | None:
    """The first value of `loop` that does not fulfil a condition on it alone, if others do."""
    s = Simplifier(ranges)
    left, key = difference(s, condition), next(iter(s.poly(loop)), ONE)
    ends = type(condition) is Binary and condition.op is Op.LT
    if left is None or not ends or key is ONE or not left.keys() <= {key, ONE}:
        return None
    times, rest = left.get(key, 0), left.get(ONE, 0)
    return -(rest // times) if times > 0 > rest else None


def _require_guards_kept(block: Block, loops: list[For], kept: set[Var]) -> None:
    """Require that no guard is on one of `loops` that the combination does not have."""
    for s in loops:
        require(
            s.var in kept or all(s.var not in free_vars(c) for c in conjuncts(block.predicate)),
            "block {0} is guarded over loop {1}, which none of its iterations follows",
            block.label.name,
            s.var,
            hint="apply rfactor before that loop is split, or let its factors divide",
        )


def _numbered(reductions: Updates, loops: Sequence[For]) -> tuple[Updates, list[Place]]:
    """The reductions with the numbers of visits of those whose order decides among equal values.

    The numbers, and their places, are the first results of these. `loops` are the reduction's.
    """
    number: Expr = const(0)
    for s in loops:
        number = number * s.extent + s.var
    updates: list[Update] = []
    created: list[Place] = []
    for u in reductions.updates:
        if u.combiner.numbered:
            value = u.places[-1]
            buffer = Buffer(f"{value.buffer.name}_visit", value.buffer.shape, INDEX)
            created.append(Place(buffer, value.indices))
            u = u._replace(places=(created[-1], *u.places), values=(number, *u.values))
        updates.append(u)
    return reductions._replace(updates=tuple(updates)), created


def _partial(
    block: Block, reductions: Updates, loop: Var, extent: Dim, axis: int, loops: list[For]
) -> _Partial:
    """The block with `loop` as a spatial iteration, each other loop of the reduction as its own."""
    extents = {s.var: s.extent for s in loops}
    factor = Iter(Var(f"v{loop.name}"), extent, IterKind.SPATIAL, loop)
    fresh = {i.var: Var(i.var.name) for i in block.iters if i.kind is IterKind.SPATIAL}
    mapping: dict[Var, Expr] = dict(fresh)
    new_reduce: dict[Var, Iter] = {}
    for i in block.iters:
        if i.kind is not IterKind.REDUCE:
            continue
        values: dict[Var, Expr] = {loop: factor.var}
        used = free_vars(i.value) - {loop}
        for v in (v for v in extents if v in used):
            if v not in new_reduce:
                new_reduce[v] = Iter(Var(f"v{v.name}"), extents[v], IterKind.REDUCE, v)
            values[v] = new_reduce[v].var
        mapping[i.var] = substitute(i.value, values)
    mapping |= {v: Var(v.name, v.dtype) for v, _ in reductions.bindings}
    mapping |= {loop: factor.var, **{v: i.var for v, i in new_reduce.items()}}
    buffers: dict[Buffer, Buffer] = {}
    bodies: list[Stmt] = []
    inits: list[Stmt] = []
    for combiner, places, given in reductions.updates:
        made = [_widened(p, extent, factor.var, axis, mapping) for p in places]
        buffers |= {p.buffer: m.buffer for p, m in zip(places, made, strict=True)}
        identity = combiner.identity(tuple(m.buffer.dtype for m in made))
        inits += [Store(*m, e) for m, e in zip(made, identity, strict=True)]
        old = [load(*m) for m in made] if new_reduce else identity
        bodies.append(update(combiner, made, old, [substitute(v, mapping) for v in given]))
    body = seq(*bodies)
    for var, value in reversed(reductions.bindings):
        bound = mapping[var]
        assert isinstance(bound, Var)
        body = Let(bound, substitute(value, mapping), body)
    spatial = tuple(
        _replace(i, var=fresh[i.var]) for i in block.iters if i.kind is IterKind.SPATIAL
    )
    iters = (*spatial[:axis], factor, *spatial[axis:], *new_reduce.values())
    label = Label(f"{block.label.name}_rf")
    note_provisional(label, block.label)
    result = Block(
        label,
        iters,
        (),
        (),
        body,
        seq(*inits) if new_reduce else None,
        block.predicate,
        block.annotations,
    )
    return _Partial(with_regions(result), buffers)


def _widened(
    place: Place, extent: Dim, index: Var, axis: int, mapping: Mapping[Var, Expr]
) -> Place:
    """An element of the partial results of `place`: with a dimension more, of index `index`."""
    shape = list(place.buffer.shape)
    shape.insert(axis, extent)
    indices = [substitute(e, mapping) for e in place.indices]
    indices.insert(axis, index)
    buffer = Buffer(f"{place.buffer.name}_rf", tuple(shape), place.buffer.dtype)
    return Place(buffer, tuple(indices))


def _combined(
    block: Block,
    reductions: Updates,
    numbers: Sequence[Place],
    partial: _Partial,
    loop: Var,
    extent: Dim,
    axis: int,
    loops: list[For],
) -> Stmt:
    """The nest that combines the partial results into the block's output.

    The init is before all visits, with the number -1.
    """
    spatial, reduce = feeding(block, IterKind.SPATIAL), feeding(block, IterKind.REDUCE)
    kept = [s for s in loops if s.var in spatial or s.var is loop]
    renamed = {s.var: Var(s.var.name) for s in kept}
    factor_var = Var(f"v{loop.name}")
    iters = (
        *(
            _replace(i, value=substitute(i.value, renamed))
            for i in block.iters
            if i.kind is IterKind.SPATIAL
        ),
        Iter(factor_var, extent, IterKind.REDUCE, renamed[loop]),
    )
    bodies: list[Stmt] = []
    for combiner, places, _ in reductions.updates:
        values = [
            load(partial.buffers[b], (*indices[:axis], factor_var, *indices[axis:]))
            for b, indices in places
        ]
        bodies.append(update(combiner, places, [load(*p) for p in places], values))
    guards = [substitute(c, renamed) for c in conjuncts(block.predicate)
              if not free_vars(c) & reduce]  # fmt: skip
    assert block.init is not None
    init = seq(block.init, *(Store(*p, const(-1)) for p in numbers))
    made = Block(block.label, iters, (), (), seq(*bodies), init, conjunction(guards))
    extents = [(renamed[s.var], extent if s.var is loop else s.extent) for s in kept]
    return nest(extents, with_regions(made))


@primitive
def fuse_reduction_epilogue(fn: Func, reduction: Label, epilogue: Label) -> tuple[Func, None]:
    """Fuse an epilogue that adds to a sum into the sum's init, and drop the epilogue's block.

        for i, k: with init: C[i] = 0            for i, k: with init: D[i] = E[i]
                  C[i] = C[i] + A[i, k]     ->             D[i] = D[i] + A[i, k]
        for i: D[i] = C[i] + E[i]

    The epilogue must be spatial and add one term, independent of the sum, at plain iteration
    variables.
    """
    block = find_block(fn, reduction)
    consumer = find_block(fn, epilogue)
    require_unit(fn, block)
    require_unit(fn, consumer)
    require(not has_reduction(consumer), "block {0} is a reduction", epilogue)
    matched = match_reduction(block, "sum")
    matched = require_some(
        matched if matched is not None and matched.buffer in fn.allocs else None,
        "block {0} must be a sum into an internal buffer",
        reduction,
    )
    require(
        [b.label for b in readers_of(fn, {matched.buffer}, but=reduction)] == [epilogue],
        "{0} must be read by block {1} alone",
        matched.buffer.name,
        epilogue.name,
        at=reduction,
    )
    require(starts_from_zero(block), "block {0} does not start from zero", reduction)
    order = order_of(fn)
    for b in region_buffers(consumer.reads):
        for w in writers_of(fn, b):
            require(
                order[w.label] <= order[reduction],
                "block {0}, which block {1} needs, is computed after block {2}",
                w.label,
                epilogue.name,
                reduction.name,
            )
    entered = [
        s for s in loops_above(fn, reduction) if s.var not in feeding(block, IterKind.REDUCE)
    ]
    others = region_buffers(consumer.reads) - {matched.buffer}
    require_steady(fn, consumer, others, entered)
    require_used_at_once(fn, block, others, [consumer])
    term, variables = _added_term(consumer, matched.buffer)
    require_whole_domain(fn, consumer, variables, matched.buffer)
    assert isinstance(consumer.body, Store)
    target = consumer.body.buffer
    require_not_inplace(fn, target, epilogue)
    mapping = dict(zip(variables, matched.indices, strict=True))
    require_stores_in_place(fn, consumer, block, mapping)
    where = tuple(substitute(e, mapping) for e in consumer.body.indices)
    body = Store(target, where, binary(Op.ADD, load(target, where), matched.value))
    init = Store(target, where, substitute(term, mapping))
    fused = with_regions(_replace(block, body=body, init=init))
    fn = without_buffers(without_block(fn, epilogue), {matched.buffer})
    fn = replace(fn, find_block(fn, reduction), fused)
    require_available(fn, reduction)
    require_readers_served(fn, reduction)
    require_still_concurrent(fn, (reduction,))
    return fn, None


def _added_term(consumer: Block, buffer: Buffer) -> tuple[Expr, tuple[Var, ...]]:
    """The term that a consumer adds to an element of `buffer`, and its index variables."""
    body = consumer.body
    if type(body) is Store and type(body.value) is Binary and body.value.op is Op.ADD:
        for sum_, term in ((body.value.a, body.value.b), (body.value.b, body.value.a)):
            if type(sum_) is Load and sum_.buffer is buffer:
                variables = [e for e in sum_.indices if type(e) is Var]
                clean = not reads_from(term, {buffer})
                own = {i.var for i in consumer.iters}
                if clean and len(set(variables)) == len(sum_.indices) and own <= set(variables):
                    return term, tuple(variables)
    require(
        False,
        "block {0} must add one term to the elements of {1}, at plain iteration variables",
        consumer.label,
        buffer.name,
        hint="reverse_compute_at can still move it into the nest of the reduction",
    )
    raise AssertionError
