"""Check that a block which moves finds what it reads in the state in which it found it before.

Iterations of other blocks update elements: a reader stays between those that it was between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace as _replace
from typing import TypeAlias

from ..tir.bounds import variables
from ..tir.dependence import Access
from ..tir.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    IterKind,
    Label,
    Op,
    Range,
    Stmt,
    Var,
)
from ..tir.structure import conjunction, conjuncts, key_of
from ..tir.visit import substitute
from .available import common_loops, is_covered_by, require_one_covers
from .block_queries import Ranges, loop_ranges, order_of, region_buffers, writers_of
from .distinct import distinct
from .find import last_block, loops_above, path_to
from .legality import reuses
from .loop_dependence import Use, conflicts, ordered, pairs_of, uses_of
from .require import require

_Rounds: TypeAlias = dict[Label, set[Var]]
"""The `_rounds_of` blocks of a program, as far as they are known."""


def updating(
    fn: Func,
    writer: Block,
    buffer: Buffer,
    around: Collection[Var],
    known: _Rounds | None = None,
) -> set[Var]:
    """The loops `around` a reader in whose iterations `writer` may store another value again.

    Those of an axis that is an index of the element, up to a constant, store to others, and so do
    those of spatial axes, unless the iterations of these use an internal buffer again. Of other
    loops around the writer, those are among them in which what it reads is updated.
    """
    telling = _telling(writer, buffer)
    again = reuses(writer, buffer)
    axes = [i for i in writer.iters if again or i.kind is not IterKind.SPATIAL]
    found = {v for i in axes if again or i.var not in telling for v in variables(i.value)}
    rest = set(around) - found
    known = {} if known is None else known
    return found.intersection(around) | _storing_again(fn, writer, buffer, rest, known)


def _telling(writer: Block, buffer: Buffer) -> set[Var]:
    """The axes of `writer` that are an index of the element that it stores, up to a constant."""
    regions = [r for r in writer.writes if r.buffer is buffer]
    places = [{(d, key_of(x.min)) for d, x in enumerate(r.ranges)} for r in regions]
    alike = set.intersection(*places)
    told = [_shifted(x) for d, x in enumerate(regions[0].ranges) if (d, key_of(x.min)) in alike]
    return {v for v in told if v is not None}


def _shifted(x: Range) -> Var | None:
    """The variable that a range of one element is, up to a constant."""
    e = x.min
    if type(e) is Binary and e.op in (Op.ADD, Op.SUB) and type(e.b) is Const:
        e = e.a
    return e if type(e) is Var and x.extent == 1 else None


def _storing_again(
    fn: Func, writer: Block, buffer: Buffer, around: Collection[Var], known: _Rounds
) -> set[Var]:
    """The loops `around` a reader in which `writer` stores different values to an element.

    That takes two iterations that store to it, and between which what `writer` reads is updated.
    Loops in which the reader is not are over when it reads.
    """
    path = path_to(fn, writer.label)
    loops = [s for s in path if type(s) is For and s.var in around]
    again = [s for s in loops if not distinct(*_stores(path, writer, buffer, s, [s]))]
    rounds = _rounds_of(fn, writer, known) if again else set()
    found = set()
    for s in again:
        moving = [x for x in loops[loops.index(s) :] if x.var in rounds]
        # Another value comes from another iteration of `moving`, which are `s` or loops in it.
        apart = not moving or _stores_apart(path, writer, buffer, s, [s])
        if not (apart or (s not in moving and _stores_apart(path, writer, buffer, s, moving))):
            found.add(s.var)
    return found


def _stores_apart(
    path: Sequence[Stmt], writer: Block, buffer: Buffer, outermost: For, loops: Sequence[For]
) -> bool:
    """Whether `writer` stores to other elements in each iteration of `loops`.

    These are among `outermost` and those in it. The others of these sweep, those around it do not.
    """
    accesses, _, ranges = _stores(path, writer, buffer, outermost, loops)
    uses = [Use(writer, buffer, True, a) for a in accesses]
    return distinct(accesses, loops, ranges) or conflicts(pairs_of(uses), loops, ranges).apart


def _stores(
    path: Sequence[Stmt], writer: Block, buffer: Buffer, outermost: For, loops: Sequence[For]
) -> tuple[list[Access], Sequence[For], Ranges]:
    """How `writer` stores to `buffer` in iterations of `loops`, with them and their ranges."""
    own = {s.var for s in loops}
    uses = [u.access for u in uses_of(writer, buffer, outermost) if u.writes]
    accesses = [a._replace(inner={v: n for v, n in a.inner.items() if v not in own}) for a in uses]
    return accesses, loops, loop_ranges([*path[: path.index(outermost)], *loops])


def _rounds_of(fn: Func, block: Block, known: _Rounds) -> set[Var]:
    """The loops around `block` in whose iterations an element that it reads is updated.

    Where elements have contents before, that is any with a writer in it, unless an earlier writer
    stores all that `block` reads in each of its iterations.
    """
    if block.label in known:
        return known[block.label]
    path = path_to(fn, block.label)
    order = order_of(fn)
    place = order[block.label]
    found: set[Var] = set()
    known[block.label] = found
    for buffer in region_buffers(block.reads):
        contents = _has_contents(fn, buffer)
        carried, afresh = set[Var](), set[Var]()
        for w in writers_of(fn, buffer):
            other = path_to(fn, w.label)
            shared = {s.var for s in common_loops(other, path)}
            if not shared or (w.label is block.label and w.init is not None):
                continue
            if order[w.label] < place:
                found |= updating(fn, w, buffer, shared, known)
                if contents and not shared <= afresh and is_covered_by(path, buffer, other):
                    afresh |= shared
            if order[w.label] > place and contents:
                found |= shared
            elif contents:
                carried |= shared
        found |= carried - afresh
    return found


def require_steady(
    fn: Func, block: Block, buffers: Collection[Buffer], around: Sequence[For]
) -> None:
    """Require that no loop which `block` leaves or enters updates an element that it reads.

    It reads `buffers`, and moves from its own loops into those of `around`. Between iterations of
    an opaque or reduce axis of a writer elements change, so a reader has to stay in that iteration.
    So it does where an element has contents before a writer stores to it, unless the iterations
    of the two that touch it are in the order of the blocks.
    """
    path = path_to(fn, block.label)
    own, entered = {s.var for s in path if type(s) is For}, {s.var for s in around}
    changed = own ^ entered
    order = order_of(fn)
    known: _Rounds = {}
    for buffer in sorted(buffers, key=lambda b: b.name):
        writers = [w for w in writers_of(fn, buffer) if w.label is not block.label]
        for w in writers:
            moving = updating(fn, w, buffer, own | entered, known) & changed
            loops = [s.var for s in loops_above(fn, w.label) if s.var in moving]
            require(
                not loops,
                "block {0} reads {1} in each iteration of loop {2}, in which block {3} updates it",
                block.label,
                buffer.name,
                lambda loops=loops: ", ".join(v.name for v in loops),
                w.label.name,
            )
            if not _has_contents(fn, buffer):
                continue
            shared = common_loops(path_to(fn, w.label), path)
            left = [s for s in shared if s.var in changed]
            later = order[w.label] > order[block.label]
            _require_textual_order(block, w, buffer, shared, left, writer_later=later)
        if len(writers) > 1:
            _require_stored_by_one(fn, block, writers, buffer, changed)


def _has_contents(fn: Func, buffer: Buffer) -> bool:
    """Whether elements of `buffer` may have contents before a block stores to them."""
    return buffer in fn.inplace or len(writers_of(fn, buffer)) > 1


def _require_textual_order(
    block: Block,
    writer: Block,
    buffer: Buffer,
    shared: Sequence[For],
    left: Sequence[For],
    *,
    writer_later: bool,
) -> None:
    """Require that `block` and `writer` use an element in their order in all iterations of `left`.

    These loops, the inner ones of those that both `shared`, are left by one of them.
    """
    if not left:
        return
    ranges = loop_ranges(shared)
    reads = [u for u in uses_of(block, buffer, left[-1].body) if not u.writes]
    for write in (u for u in uses_of(writer, buffer, left[-1].body) if u.writes):
        for read in reads:
            first, second = (write, read) if writer_later else (read, write)
            if ordered(second.access, first.access, left, ranges):
                continue
            found = conflicts([(first, second)], left, ranges)
            require(
                found.apart,
                "block {0} may read an element of {1} in another iteration of {2} than the one in "
                "which block {3} updates it",
                block.label,
                buffer.name,
                lambda: ", ".join(s.var.name for s in left),
                writer.label.name,
                example=found.example,
            )


def _require_stored_by_one(
    fn: Func, block: Block, writers: Sequence[Block], buffer: Buffer, changed: Collection[Var]
) -> None:
    """Require that different `writers` in a loop of `changed` store to an element in one iteration.

    Or one of them updates what others read in between, who leave that loop or enter it.
    """
    for k, a in enumerate(writers):
        for b in writers[:k]:
            shared = common_loops(path_to(fn, a.label), path_to(fn, b.label))
            loops = [s for s in shared if s.var in changed]
            if not loops:
                continue
            body, ranges = loops[-1].body, loop_ranges(shared)
            mine, others = ([u for u in uses_of(w, buffer, body) if u.writes] for w in (a, b))
            if distinct([u.access for u in (*mine, *others)], loops, ranges):
                continue
            pairs = [p for x in mine for y in others for p in ((x, y), (y, x))]
            found = conflicts(pairs, loops, ranges)
            require(
                found.apart,
                "block {0} reads {1} in each iteration of loop {2}, in which block {3} updates it",
                block.label,
                buffer.name,
                lambda loops=loops: ", ".join(s.var.name for s in loops),
                a.label.name,
                example=found.example,
            )


def updated_around(
    fn: Func, block: Block, buffers: Collection[Buffer], around: Sequence[For]
) -> list[For]:
    """The loops, outermost first, up to the last one that updates what `block` reads and stays in.

    It reads `buffers`, and moves into the loops of `around`.
    """
    path = path_to(fn, block.label)
    stays = {s.var for s in around}
    kept = [s for s in path if type(s) is For and s.var in stays]
    end = 0
    known: _Rounds = {}
    for buffer in buffers:
        for w in writers_of(fn, buffer):
            if w.label is block.label:
                continue
            together = {s.var for s in common_loops(path_to(fn, w.label), path)}
            if not _has_contents(fn, buffer):
                together = updating(fn, w, buffer, together, known)
            end = max([end, *(n for n, s in enumerate(kept, 1) if s.var in together)])
    return kept[:end]


def require_used_at_once(
    fn: Func, block: Block, buffers: Collection[Buffer], readers: Sequence[Block]
) -> None:
    """Require that `readers` find what `block` stored in the same iteration of common loops.

    It reads `buffers`. Where these loops update them, what it would compute of them next to a
    reader is of that iteration.
    """
    path = path_to(fn, block.label)
    for r in readers:
        if updated_around(fn, block, buffers, loops_above(fn, r.label)):
            outputs = region_buffers(block.writes) & region_buffers(r.reads)
            for buffer in sorted(outputs, key=lambda b: b.name):
                require_one_covers(path_to(fn, r.label), buffer, [path])


def require_stores_in_place(
    fn: Func, block: Block, at: Block, values: Mapping[Var, Expr], conditions: Sequence[Expr] = ()
) -> None:
    """Require that `block` may store its results where block `at` runs, to those who read them.

    `values` are those of its iterations in terms of `at`, under `conditions`. If it stores to
    elements again in some of its iterations, these stay in the iterations of the same loops.
    """
    old, path = path_to(fn, block.label), path_to(fn, at.label)
    around = loops_above(fn, at.label)
    bound = {i.var: i.value for i in at.iters}
    for buffer in sorted(region_buffers(block.writes), key=lambda b: b.name):
        if not reuses(block, buffer):
            continue
        telling = _telling(block, buffer)
        again = {v for i in block.iters if i.var not in telling for v in variables(i.value)}
        left = again - {s.var for s in around}
        require(
            not left,
            "block {0} stores to elements of {1} again in each iteration of loop {2}, in which "
            "block {3} does not run",
            block.label,
            buffer.name,
            lambda left=left: ", ".join(sorted(v.name for v in left)),
            at.label.name,
        )
        end = max([0, *(n for n, s in enumerate(around, 1) if s.var in again)])
        own = [i for i in block.iters if i.var in values]
        moved = [_replace(i, value=substitute(values[i.var], bound)) for i in own]
        guards = [substitute(c, bound) for c in (*conjuncts(at.predicate), *conditions)]
        require_same_points(
            [*old[:-1], _replace(block, iters=tuple(own))],
            [*path[:-1], _replace(block, iters=tuple(moved), predicate=conjunction(guards))],
            around[:end],
        )


def require_same_points(old: Sequence[Stmt], new: Sequence[Stmt], loops: Sequence[For]) -> None:
    """Require that a block visits its points in the same iterations of `loops` as before.

    `old` leads to it where it was, `new` to where it is now; `loops` are around both.
    """
    variables_of = {s.var for s in loops}
    before, after = last_block(old), last_block(new)
    telling = [not variables_of.isdisjoint(variables(i.value)) for i in before.iters]
    used = {v for i in before.iters for v in variables(i.value)}
    moving = [s for s in loops if s.var in used]
    accesses = [
        Access(
            tuple([Range(i.value, 1) for i, t in zip(b.iters, telling, strict=True) if t]),
            {s.var: s.extent for s in p if type(s) is For and s.var not in variables_of},
            conjuncts(b.predicate),
        )
        for p, b in ((old, before), (new, after))
    ]
    rest = {
        v for i, t in zip(after.iters, telling, strict=True) if not t for v in variables(i.value)
    }
    require(
        rest.isdisjoint(variables_of)
        and (not moving or distinct(accesses, moving, loop_ranges(loops))),
        "block {0} would run in other iterations of loop {1}, which update what it reads or stores",
        before.label,
        lambda: ", ".join(s.var.name for s in loops),
    )
