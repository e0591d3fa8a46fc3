"""Check a program after a block was moved or changed.

The block's inputs must be computed before it runs, and loops that run concurrently must still be
free of dependences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeGuard

from ..tir.bounds import truth, variables
from ..tir.dependence import Access
from ..tir.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    IterKind,
    Label,
    Op,
    Range,
    Stmt,
    Store,
    Var,
    as_expr,
)
from ..tir.regions import hull
from ..tir.simplify import Simplifier
from ..tir.structure import conjuncts, key_of
from ..tir.visit import reads_from, walk
from .block_queries import (
    Ranges,
    bound_regions,
    covering,
    feeding,
    loop_ranges,
    order_of,
    readers_of,
    region_buffers,
    writers_of,
)
from .distinct import distinct
from .facts import last, truths
from .find import find_path, last_block, path_to, statements
from .legality import require_concurrent, touches_apart
from .loop_dependence import Finding, conflicts, ordered, served, uses_of
from .require import require
from .written import visited, written_box

_AT_ONCE = {
    ForKind.PARALLEL: "run in parallel",
    ForKind.VECTOR: "be vectorized",
    ForKind.THREAD: "be bound to threads",
}


def require_available(fn: Func, label: Label, settled: Collection[Buffer] = ()) -> None:
    """Require that each element that a block reads is written before the block runs.

    Producers in separate loops before the block are complete by then; elements that they omit,
    because they were moved, must not be read. Of producers that share loops with the block, one
    must write everything that is read in the same iteration of the shared loops. Buffers in
    `settled` are known to be complete. Blocks behind it that write what it reads must not have
    done so yet.
    """
    path = path_to(fn, label)
    block = last_block(path)
    order = order_of(fn)
    for buffer in sorted(
        region_buffers(block.reads) - region_buffers(block.writes), key=lambda b: b.name
    ):
        sharing: list[tuple[Stmt, ...]] = []
        apart: list[tuple[Stmt, ...]] = []
        writers = writers_of(fn, buffer)
        filled = buffer in fn.inplace or any(order[w.label] < order[label] for w in writers)
        for writer in writers:
            other = path_to(fn, writer.label)
            together = bool(common_loops(other, path))
            if order[writer.label] > order[label]:
                require(
                    filled,
                    "block {0}, which block {1} needs, is computed after it",
                    writer.label,
                    label.name,
                )
                _require_not_overwritten(path, buffer, other)
                continue
            require(
                not is_rolling(writer, buffer) or _in_window(path, buffer, other),
                "block {0} keeps only a window of {1}, which block {2} must read in its loop",
                writer.label.name,
                buffer.name,
                label,
            )
            (sharing if together else apart).append(other)
        if sharing and buffer not in settled:
            require_one_covers(path, buffer, sharing)
        elif apart and buffer not in settled and not _complete(fn, apart):
            require_one_covers(path, buffer, apart)


def _require_not_overwritten(
    path: tuple[Stmt, ...], buffer: Buffer, other: tuple[Stmt, ...]
) -> None:
    """Require that a block reads no element that one behind it wrote in an earlier iteration.

    `path` leads to the block that reads, `other` to the one that writes.
    """
    shared = common_loops(other, path)
    if not shared:
        return
    reader, writer, body = last_block(path), last_block(other), shared[-1].body
    ranges = loop_ranges(shared)
    reads = [u for u in uses_of(reader, buffer, body) if not u.writes]
    for write in (u for u in uses_of(writer, buffer, body) if u.writes):
        for read in reads:
            if ordered(read.access, write.access, shared, ranges):
                continue
            found = conflicts([(write, read)], shared, ranges)
            require(
                found.apart,
                "block {0} may read an element of {1} in an iteration of {2} after the one in "
                "which block {3} overwrites it",
                reader.label,
                buffer.name,
                lambda: ", ".join(s.var.name for s in shared),
                writer.label,
                example=found.example,
            )


def require_read_first(fn: Func, block: Label, buffer: Buffer, first: Label) -> None:
    """Require that `block` reads what it overwrites of `buffer` before that.

    The iterations around it touch different elements, and in each the last read precedes the store.
    """
    path = path_to(fn, block)
    found = last_block(path)
    stmts = statements(found.body)
    stores = [n for n, s in enumerate(stmts) if type(s) is Store and s.buffer is buffer]
    levels = [path[: k + 1] for k, s in enumerate(path) if type(s) is For]
    require(
        found.init is None
        and len(stores) == sum(type(n) is Store and n.buffer is buffer for n in walk(found.body))
        and not any(reads_from(s, {buffer}) for n in stores for s in stmts[n + 1 :])
        and all(touches_apart(level, found, buffer) for level in levels),
        "block {0} overwrites {1}, which block {2} reads",
        block,
        buffer.name,
        first.name,
    )


def _complete(fn: Func, writers: Sequence[Sequence[Stmt]]) -> bool:
    """Whether the blocks at the ends of these paths together store at all points of their domain.

    Blocks of one domain arise from a loop that was cut in two, for instance.
    """
    domains: dict[object, list[tuple[Block, list[Iter]]]] = {}
    for path in writers:
        block = last_block(path)
        spatial = [i for i in block.iters if i.kind is IterKind.SPATIAL]
        key = tuple([key_of(as_expr(i.extent)) for i in spatial])
        domains.setdefault(key, []).append((block, spatial))
    return all(visited(fn, blocks) for blocks in domains.values())


def is_rolling(block: Block, buffer: Buffer) -> bool:
    """Whether `block` overwrites elements of `buffer` on its way, so that only few remain."""
    loops = [For(i.var, i.extent, block.body) for i in block.iters if i.kind is IterKind.OPAQUE]
    stored = [Access(r.ranges, {}) for r in block.writes if r.buffer is buffer]
    used = {v for a in stored for r in a.ranges for v in variables(r.min)}
    if used.isdisjoint(s.var for s in loops):
        return False
    return not distinct(stored, loops, {i.var: (0, last(i.extent)) for i in block.iters})


def _in_window(path: Sequence[Stmt], buffer: Buffer, other: Sequence[Stmt]) -> bool:
    """Whether a block reads from a circular buffer only what its writer at `other` has there.

    Both index the buffer modulo its size. In an iteration of their common loops, the writer covers
    at most that many elements, and the reader stays within them.
    """
    reader, writer = last_block(path), last_block(other)
    shared = common_loops(other, path)
    ranges = loop_ranges(shared)
    below = ({s.var: s.extent for s in p if type(s) is For and s not in shared}
             for p in (path, other))  # fmt: skip
    sweep, inner = below
    (written, *more) = bound_regions(writer, writer.writes, buffer)
    if more:
        return False
    s = Simplifier(ranges)
    circular = False
    for d, r in enumerate(written.ranges):
        if type(r.min) is not Binary or r.min.op is not Op.MOD:
            continue
        circular = True
        window = hull(r.min.a, inner, ranges)
        if window is None or truth(s, as_expr(window.extent) <= r.min.b) is not True:
            return False
        for region in bound_regions(reader, reader.reads, buffer):
            place = region.ranges[d].min
            if not _is_modulo(place, r.min.b):
                return False
            read = hull(place.a, sweep, ranges)
            if read is None or not _lies_within(read, window, s):
                return False
    return circular


def _is_modulo(e: Expr, size: Expr) -> TypeGuard[Binary]:
    return (
        type(e) is Binary
        and e.op is Op.MOD
        and type(e.b) is Const
        and type(size) is Const
        and e.b.value == size.value
    )


def _lies_within(inner: Range, outer: Range, s: Simplifier) -> bool:
    end, last = outer.min + as_expr(outer.extent), inner.min + as_expr(inner.extent)
    return truth(s, inner.min >= outer.min) is True and truth(s, last <= end) is True


def require_readers_served(fn: Func, label: Label) -> None:
    """`require_available` for the readers of a block's output in common loops."""
    path = path_to(fn, label)
    block = last_block(path)
    for reader in readers_of(fn, region_buffers(block.writes), but=label):
        if common_loops(path_to(fn, reader.label), path):
            require_available(fn, reader.label)


def require_still_concurrent(
    fn: Func,
    places: Iterable[Label | Var],
    filled: Collection[Buffer] = (),
    *,
    only: Collection[Buffer] | None = None,
) -> None:
    """Require that the concurrent loops around (or at) `places` still have no dependences.

    Places that are no longer in the program are skipped, and so are the internal buffers `filled`:
    each iteration of a concurrent loop around all their uses stores what it reads of them. With
    `only`, other buffers are known to have none.
    """
    checked: set[Var] = set()
    for place in places:
        path = find_path(fn.body, place) or ()
        for k, s in enumerate(path):
            if type(s) is For and s.kind in _AT_ONCE and s.var not in checked:
                checked.add(s.var)
                private = s.kind is not ForKind.VECTOR
                known = filled if private else ()
                what = _AT_ONCE[s.kind]
                require_concurrent(fn, path[: k + 1], what, known, private=private, only=only)


def concurrent_loops(path: Sequence[Stmt]) -> list[Var]:
    """The loops of `path` whose iterations run concurrently."""
    return [s.var for s in path if type(s) is For and s.kind in _AT_ONCE]


def require_left_behind(fn: Func, label: Label, loops: Iterable[Var]) -> None:
    """`require_still_concurrent` for those of `loops` that a block has left."""
    around = {s.var for s in path_to(fn, label) if type(s) is For}
    require_still_concurrent(fn, [v for v in loops if v not in around])


def common_loops(a: Sequence[Stmt], b: Sequence[Stmt]) -> list[For]:
    """The loops that two paths have in common, outermost first."""
    both: list[For] = []
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        if type(x) is For:
            both.append(x)
    return both


def require_one_covers(
    path: tuple[Stmt, ...], buffer: Buffer, writers: Sequence[tuple[Stmt, ...]]
) -> None:
    reader = last_block(path)
    covered = False
    for other in writers:
        writer = last_block(other)
        shared = {s.var for s in common_loops(other, path)}
        unfinished = feeding(writer, IterKind.REDUCE) & shared
        require(
            not unfinished,
            "block {0} is still being reduced over loop {1} where block {2} reads it",
            writer.label,
            lambda u=unfinished: ", ".join(sorted(v.name for v in u)),
            reader.label.name,
            hint="choose a loop outside of the reduction, or split the reduction with rfactor",
        )
        covered = covered or _covers(path, buffer, other)
    found = Finding(True) if covered else _served(path, buffer, writers)
    require(
        found.apart,
        "block {0} reads {1} beyond what is known to be written by then (by block {2})",
        reader.label,
        buffer.name,
        lambda: ", ".join(o[-1].label.name for o in writers),  # type: ignore[attr-defined]
        example=found.example,
    )


def is_covered_by(path: tuple[Stmt, ...], buffer: Buffer, other: tuple[Stmt, ...]) -> bool:
    """Whether the block of `other` completes all that the one of `path` reads, as far as is known.

    In each iteration of the loops that both are in.
    """
    shared = {s.var for s in common_loops(other, path)}
    unfinished = feeding(last_block(other), IterKind.REDUCE) & shared
    return not unfinished and (_covers(path, buffer, other) or _served(path, buffer, [other]).apart)


def _served(path: Sequence[Stmt], buffer: Buffer, writers: Sequence[Sequence[Stmt]]) -> Finding:
    """Whether one of `writers` is shown to write everything that the block of `path` reads.

    In one iteration of their common loops, if any. An example is for the last of them.
    """
    reader = last_block(path)
    found = Finding(False)
    for other in writers:
        writer, shared = last_block(other), common_loops(other, path)
        body = shared[-1].body if shared else path[0]
        reads = [u for u in uses_of(reader, buffer, body) if not u.writes]
        found = served(reads, [u for u in uses_of(writer, buffer, body) if u.writes], shared)
        if found.apart:
            break
    return found


def _covers(path: tuple[Stmt, ...], buffer: Buffer, other: tuple[Stmt, ...]) -> bool:
    """Whether the block at the end of `other` writes all of `buffer` that the one of `path` reads.

    In one iteration of the loops that both are in.
    """
    reader, writer = last_block(path), last_block(other)
    shared = common_loops(other, path)
    ranges = loop_ranges(shared)
    inner = {s.var: s.extent for s in other if type(s) is For and s not in shared}
    given = {key_of(c) for c in conjuncts(reader.predicate)}
    written = written_box(writer, buffer, inner, ranges, given)
    if written is None:
        return False
    sweep = {s.var: s.extent for s in path if type(s) is For and s not in shared}
    read = covering(bound_regions(reader, reader.reads, buffer), sweep, ranges)
    return within(read, written, buffer, ranges)


def within(inner: Sequence[Range], outer: Sequence[Range], buffer: Buffer, ranges: Ranges) -> bool:
    """Whether the box `inner`, as far as it is in `buffer`, is in the box `outer`."""
    holds = truths(ranges)
    for i, o, size in zip(inner, outer, buffer.shape, strict=True):
        end = o.min + as_expr(o.extent)
        if not (holds(i.min >= o.min) is True or holds(o.min <= 0) is True):
            return False
        last = i.min + as_expr(i.extent)
        if not (holds(last <= end) is True or holds(as_expr(size) <= end) is True):
            return False
    return True
