"""Check that a block which moves finds what it reads in the state in which it found it before.

Iterations of other blocks update elements: a reader stays between those that it was between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..tir.bounds import variables
from ..tir.dependence import Access
from ..tir.ir import Binary, Block, Buffer, Const, For, Func, IterKind, Op, Range, Stmt, Var
from ..tir.structure import conjuncts, key_of
from .available import common_loops, require_one_covers
from .block_queries import loop_ranges, order_of, region_buffers, writers_of
from .distinct import distinct
from .find import last_block, loops_above, path_to
from .legality import reuses
from .loop_dependence import conflicts, ordered, uses_of
from .require import require


def _updating(writer: Block, buffer: Buffer) -> set[Var]:
    """The loops in whose iterations `writer` may store an element again.

    Those of an axis that is an index of the element, up to a constant, store others, and so do
    those of spatial axes, unless the iterations of these use an internal buffer again.
    """
    regions = [r for r in writer.writes if r.buffer is buffer]
    places = [{(d, key_of(x.min)) for d, x in enumerate(r.ranges)} for r in regions]
    alike = set.intersection(*places)
    told = [_shifted(x) for d, x in enumerate(regions[0].ranges) if (d, key_of(x.min)) in alike]
    telling = {v for v in told if v is not None}
    again = reuses(writer, buffer)
    axes = [i for i in writer.iters if again or i.kind is not IterKind.SPATIAL]
    return {v for i in axes if again or i.var not in telling for v in variables(i.value)}


def _shifted(x: Range) -> Var | None:
    """The variable that a range of one element is, up to a constant."""
    e = x.min
    if type(e) is Binary and e.op in (Op.ADD, Op.SUB) and type(e.b) is Const:
        e = e.a
    return e if type(e) is Var and x.extent == 1 else None


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
    changed = {s.var for s in path if type(s) is For} ^ {s.var for s in around}
    order = order_of(fn)
    for buffer in sorted(buffers, key=lambda b: b.name):
        writers = [w for w in writers_of(fn, buffer) if w.label is not block.label]
        for w in writers:
            updating = _updating(w, buffer)
            loops = [s.var for s in loops_above(fn, w.label) if s.var in updating & changed]
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
    for buffer in buffers:
        for w in writers_of(fn, buffer):
            if w.label is block.label:
                continue
            together = {s.var for s in common_loops(path_to(fn, w.label), path)}
            if not _has_contents(fn, buffer):
                together &= _updating(w, buffer)
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
        "block {0} would run in other iterations of loop {1}, which update what it reads",
        before.label,
        lambda: ", ".join(s.var.name for s in loops),
    )
