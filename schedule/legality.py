"""Whether the iterations of loops may run concurrently or in another order.

Structure is checked first: kinds of iteration variables, single writers, and touched elements as
affine functions of the loops. On a concrete program, exact dependences decide the rest. What cannot
be shown is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from ..base.errors import ScheduleError
from ..tir.dependence import Access
from ..tir.digits import joined
from ..tir.initialised import Initialised
from ..tir.ir import (
    Block,
    Buffer,
    Dim,
    For,
    ForKind,
    Func,
    IterKind,
    Label,
    Range,
    Stmt,
    Var,
)
from ..tir.structure import conjuncts, key_of
from ..tir.survey import Survey
from .block_queries import (
    Ranges,
    bound_regions,
    covering,
    feeding,
    has_reduction,
    loop_ranges,
    range_key,
    region_buffers,
)
from .distinct import distinct
from .facts import last
from .find import blocks_in, find_path, last_loop
from .loop_dependence import Finding, Use, conflicts, overtakes, pairs_of, uses_of
from .require import HandleName, certain, current_space, require
from .written import within, written_box


def require_permutable(
    above: Sequence[Stmt], old: Sequence[For], chain: Sequence[For], body: Stmt
) -> None:
    """Require that the perfectly nested loops `old` around `body` may run in the order of `chain`.

    `above` are the statements around them.
    """
    loops = {s.var for s in chain}
    for s in chain[:-1]:
        require(
            s.kind is not ForKind.VECTOR,
            "loop {0} is vectorized and must stay innermost",
            s.var,
        )
    blocks = list(blocks_in(body))
    for block in blocks:
        opaque = loops & feeding(block, IterKind.OPAQUE)
        again = not opaque and any(reuses(block, r.buffer) for r in block.writes)
        opaque |= loops & feeding(block, IterKind.SPATIAL) if again else set()
        found = _reordered(above, old, chain, body, block) if opaque else Finding(True)
        require(
            found.apart,
            "block {0} must run in the order of loop{1} {2}: its iterations {3}",
            block.label,
            "s" if len(opaque) > 1 else "",
            lambda o=opaque: _names(o),
            "use the same elements again" if again else "are opaque",
            example=found.example,
        )
        if block.init is not None:
            mixed = loops & feeding(block, IterKind.REDUCE) & feeding(block, IterKind.SPATIAL)
            require(
                not mixed,
                "loop {0} is part of both spatial and reduction iterations of block {1}",
                lambda m=mixed: _names(m),
                block.label,
            )
            if has_reduction(block):
                inside = find_path(body, block.label) or ()
                around = loop_ranges((*above, *chain, *inside))
                require_visited_once(block, chain, around)
    if len(blocks) > 1:
        _require_self_contained(above, old, chain, body, blocks)


def require_visited_once(block: Block, loops: Sequence[For], ranges: Ranges) -> None:
    """Require that no two iterations of `loops` visit the same point of a reduction.

    A block that `compute_at` has put into loops that overlap computes some results repeatedly; its
    init must then stay with its update, and the order of the loops as it is.
    """
    values = tuple(Range(i.value, 1) for i in block.iters)
    visit = Access(values, {}, conjuncts(block.predicate))
    found = Finding(True)
    if block.iters and not distinct([visit], loops, ranges):
        points = Buffer(block.label.name, tuple([i.extent for i in block.iters]), "bool")
        use = Use(block, points, True, visit)
        found = conflicts([(use, use)], loops, ranges)
    require(
        found.apart,
        "it cannot be shown that block {0} visits each of its points once in loops {1}",
        block.label,
        lambda: ", ".join(s.var.name for s in loops),
        hint="choose loops inside of the one that the block was moved to",
        example=partial(found.example, "visits"),
    )


def require_concurrent(
    fn: Func,
    path: Sequence[Stmt],
    what: str,
    filled: Collection[Buffer] = (),
    *,
    private: bool = True,
    only: Collection[Buffer] | None = None,
) -> None:
    """Require that the iterations of the loop at the end of `path` may run at once.

    With `private`, a buffer that only one iteration's own statements use is one per iteration. Of
    those that are `filled` it is known that an iteration stores what it reads. With `only`, other
    buffers are known to be used so. Opaque iterations may run at once where they leave nothing to
    each other but such buffers.
    """
    loop = last_loop(path)
    blocks = list(blocks_in(loop.body))
    for block in blocks:
        if loop.var in feeding(block, IterKind.REDUCE):
            raise _part_of(path, what, block, IterKind.REDUCE)
    ranges = loop_ranges(path)
    for buffer, users in _shared(blocks).items():
        if only is not None and buffer not in only:
            continue
        accesses = _accesses(users, buffer, loop.body)
        if distinct(accesses, [loop], ranges) or (
            private
            and buffer in fn.allocs
            and not _used_elsewhere(fn, buffer, users)
            and (
                buffer in filled
                or _covered(users, buffer, loop.body, ranges)
                or _refilled(fn, path, buffer)
            )
        ):
            continue
        uses = [u for b in users for u in uses_of(b, buffer, loop.body)]
        found = conflicts(pairs_of(uses), [loop], ranges)
        opaque = [b for b in users if loop.var in feeding(b, IterKind.OPAQUE)]
        if opaque and not found.apart:
            raise _part_of(path, what, opaque[0], IterKind.OPAQUE, found)
        require(
            found.apart,
            "loop {0} cannot {1}: its iterations are not known to write different elements of "
            "{2} (blocks {3})",
            loop.var,
            what,
            buffer.name,
            lambda u=users: ", ".join(b.label.name for b in u),
            example=found.example,
        )


def reuses(block: Block, buffer: Buffer) -> bool:
    """Whether spatial iterations of `block` are not seen to use different elements of `buffer`.

    `check_promises` allows that of internal buffers, which then hold what the last one stored.
    """
    spatial = [i for i in block.iters if i.kind is IterKind.SPATIAL and not certain(i.extent == 1)]
    regions = [r for r in (*block.writes, *block.reads) if r.buffer is buffer]
    told = [
        {(d, x.min) for d, x in enumerate(r.ranges) if type(x.min) is Var and x.extent == 1}
        for r in regions
    ]
    telling = {v for _, v in set.intersection(*told)}
    if all(i.var in telling for i in spatial):
        return False
    inner = {i.var: i.extent for i in block.iters if i.kind is not IterKind.SPATIAL}
    loops = [For(i.var, i.extent, block.body) for i in spatial]
    ranges = {i.var: (0, last(i.extent)) for i in block.iters}
    return not distinct([Access(r.ranges, inner) for r in regions], loops, ranges)


def touches_apart(path: Sequence[Stmt], block: Block, buffer: Buffer) -> bool:
    """Whether `block` touches other elements of `buffer` in each iteration of the path's loop."""
    loop = last_loop(path)
    ranges = loop_ranges(path)
    if distinct(_accesses([block], buffer, loop.body), [loop], ranges):
        return True
    return conflicts(pairs_of(uses_of(block, buffer, loop.body)), [loop], ranges).apart


def own_boxes(fn: Func, path: Sequence[Stmt]) -> dict[Buffer, list[Range]]:
    """The `own_buffers` of which an iteration writes a box before it uses any of it, with it."""
    loop = last_loop(path)
    ranges = loop_ranges(path)
    found: dict[Buffer, list[Range]] = {}
    for buffer, users in _internal(fn, loop).items():
        if _covered(users, buffer, loop.body, ranges):
            box = _written(users[0], users, buffer, loop.body, ranges)
            assert box is not None
            found[buffer] = box
    return found


def kept_apart(path: Sequence[Stmt], blocks: Sequence[Block], buffer: Buffer) -> bool:
    """Whether `blocks` touch other elements of `buffer` in each iteration of the path's loop."""
    loop = last_loop(path)
    ranges = loop_ranges(path)
    return distinct(_accesses(blocks, buffer, loop.body), [loop], ranges)


def own_buffers(fn: Func, path: Sequence[Stmt]) -> list[Buffer]:
    """The internal buffers that hold nothing between iterations of the loop at the end of `path`.

    Each iteration writes all elements that it reads, and nothing outside of the loop uses them.
    It is enough to show that of a loop further in with all that use a buffer: what iterations that
    run at once have to themselves is among these.
    """
    loop = last_loop(path)
    found = []
    for buffer, users in _internal(fn, loop).items():
        levels = _levels(path, users)
        if any(_covered(users, buffer, last_loop(p).body, loop_ranges(p)) for p in levels) or any(
            # Their iterations have a buffer each that only statements in them use.
            _refilled(fn, p, buffer)
            for p in levels
            if last_loop(p).kind in (ForKind.PARALLEL, ForKind.THREAD)
        ):
            found.append(buffer)
    return found


def _internal(fn: Func, loop: For) -> dict[Buffer, list[Block]]:
    """The internal buffers that only blocks in `loop` use, with those blocks in order."""
    return {
        buffer: users
        for buffer, users in _shared(list(blocks_in(loop.body))).items()
        if buffer in fn.allocs and not _used_elsewhere(fn, buffer, users)
    }


def _levels(path: Sequence[Stmt], users: Sequence[Block]) -> list[tuple[Stmt, ...]]:
    """The paths to the loops that have all `users` in them, from the end of `path` inwards."""
    levels = [tuple(path)]
    below = [find_path(path[-1], b.label) or () for b in users]
    for steps in zip(*(p[1:] for p in below), strict=False):
        if any(s is not steps[0] for s in steps):
            break
        levels.append((*levels[-1], steps[0]))
    return [p for p in levels if type(p[-1]) is For]


def _require_self_contained(
    above: Sequence[Stmt],
    old: Sequence[For],
    chain: Sequence[For],
    body: Stmt,
    blocks: list[Block],
) -> None:
    """Require that no element carries a value between iterations that change their order.

    By structure: it carries none between any iterations.
    """
    ranges = loop_ranges((*above, *chain))
    loops = {s.var for s in chain}
    for buffer, users in _shared(blocks).items():
        if len(users) == 1:
            continue
        accumulated = [
            b.label.name
            for b in users
            if buffer in region_buffers(b.writes) and loops & feeding(b, IterKind.REDUCE)
        ]
        safe = not accumulated and (
            _in_order(users, buffer, old, chain, body, ranges)
            or _covered(users, buffer, body, ranges)
        )
        found = Finding(True) if safe else _overtaken(old, chain, body, buffer, users, ranges)
        require(
            found.apart,
            "the order of loops {0} matters: {1} carries values between their iterations "
            "(blocks {2})",
            lambda: ", ".join(s.var.name for s in chain),
            buffer.name,
            lambda u=users: ", ".join(b.label.name for b in u),
            at=chain[0].var,
            example=found.example,
        )


def _reordered(
    above: Sequence[Stmt], old: Sequence[For], chain: Sequence[For], body: Stmt, block: Block
) -> Finding:
    """Whether iterations of a block that use an element keep their order; if not, two of them."""
    ranges = loop_ranges((*above, *chain))
    order = overtakes([s.var for s in old], [s.var for s in chain])
    for buffer in dict.fromkeys(r.buffer for r in block.writes):
        if _in_order([block], buffer, old, chain, body, ranges):
            continue
        found = conflicts(pairs_of(uses_of(block, buffer, body)), old, ranges, order)
        if not found.apart:
            return found
    return Finding(True)


def _in_order(
    users: Sequence[Block],
    buffer: Buffer,
    old: Sequence[For],
    chain: Sequence[For],
    body: Stmt,
    ranges: Ranges,
) -> bool:
    """Whether iterations that use an element of `buffer` are seen to keep their order.

    That is so where an element determines the iteration of some loops, and all others stay in
    order: no loop is left, or those of iterations that are not spatial.
    """
    accesses = _accesses(users, buffer, body)
    spatial = set.intersection(*(_only_spatial(b) for b in users))
    for moving in ({s.var for s in chain}, spatial):
        staying = {s.var: s.extent for s in chain if s.var not in moving}
        swept = [a._replace(inner={**staying, **a.inner}) for a in accesses]
        if _same_order(staying, old) and distinct(
            swept, [s for s in chain if s.var in moving], ranges
        ):
            return True
    return False


def _same_order(loops: Collection[Var], old: Sequence[For]) -> bool:
    before = [s.var for s in old if s.var in set(loops)]
    return all(v is w for v, w in zip(loops, before, strict=True))


def _only_spatial(block: Block) -> set[Var]:
    others = feeding(block, IterKind.OPAQUE) | feeding(block, IterKind.REDUCE)
    return feeding(block, IterKind.SPATIAL) - others


def _overtaken(
    old: Sequence[For],
    chain: Sequence[For],
    body: Stmt,
    buffer: Buffer,
    users: Sequence[Block],
    ranges: Ranges,
) -> Finding:
    """Whether different blocks use an element in iterations that change their order.

    Those of one block may: it is for its kinds of iterations to say.
    """
    order = overtakes([s.var for s in old], [s.var for s in chain])
    uses = [u for b in users for u in uses_of(b, buffer, body)]
    pairs = [(a, b) for a, b in pairs_of(uses) if a.block is not b.block]
    return conflicts(pairs, old, ranges, order)


def _shared(blocks: Sequence[Block]) -> dict[Buffer, list[Block]]:
    """The buffers that some of `blocks` write, with all of them that touch it, in order."""
    written = {r.buffer: None for b in blocks for r in b.writes}
    return {
        buffer: [b for b in blocks if buffer in region_buffers((*b.reads, *b.writes))]
        for buffer in written
    }


def _used_elsewhere(fn: Func, buffer: Buffer, users: list[Block]) -> bool:
    labels: set[Label] = {b.label for b in users}
    return any(
        b.label not in labels and buffer in region_buffers((*b.reads, *b.writes))
        for b in blocks_in(fn.body)
    )


def _inner_loops(body: Stmt, block: Block) -> dict[Var, Dim]:
    """The loops between `body` and `block`, with their extents."""
    path = find_path(body, block.label) or ()
    return {s.var: s.extent for s in path if type(s) is For}


def _accesses(blocks: Sequence[Block], buffer: Buffer, body: Stmt) -> list[Access]:
    """How blocks use a buffer, by joined dimensions where all do so by the same ones."""
    found: list[Access] = []
    for block in blocks:
        inner = _inner_loops(body, block)
        seen = {
            tuple(map(range_key, r.ranges)): r
            for r in (*block.writes, *block.reads)
            if r.buffer is buffer
        }
        guards = conjuncts(block.predicate)
        regions = bound_regions(block, seen.values(), buffer)
        found += [Access(r.ranges, inner, guards) for r in regions]
    places = [joined(buffer, tuple(r.min for r in a.ranges)) for a in found]
    alike = len({p.dims for p in places}) == 1 and len(places[0].dims) < len(buffer.shape)
    points = all(certain(r.extent == 1) for a in found for r in a.ranges)
    if not (alike and points):
        return found
    return [
        a._replace(ranges=tuple(Range(e, 1) for e in p.indices))
        for a, p in zip(found, places, strict=True)
    ]


def _covered(users: list[Block], buffer: Buffer, body: Stmt, ranges: Ranges) -> bool:
    """Whether each iteration writes all elements of `buffer` that it uses, before it uses them."""
    first = users[0]
    if buffer in region_buffers(first.reads):
        swept = _inner_loops(body, first).keys()
        if first.init is None or not feeding(first, IterKind.REDUCE) <= swept:
            return False
    written = _written(first, users, buffer, body, ranges)
    return written is not None and all(
        within(_hull(b, buffer, body, ranges, writes=w), written, ranges)
        for b in users
        for w in (False, True)
    )


def _refilled(fn: Func, path: Sequence[Stmt], buffer: Buffer) -> bool:
    """Whether each iteration of the path's loop stores itself all that it reads of `buffer`.

    Decided as the verifier does for iterations that run at once, here of the loops around it too:
    none finds what others stored.
    """
    if current_space() is not None:
        return False
    loops = {s.var for s in path if isinstance(s, For)}
    return Initialised(fn, Survey(fn), loops).holds(buffer)


def _written(
    first: Block, users: list[Block], buffer: Buffer, body: Stmt, ranges: Ranges
) -> list[Range] | None:
    """The box that one iteration of `first` writes without gaps, where that is known.

    It may reach beyond the domain of `first`, and only runs when the predicates do that all
    `users` share: of neither do others use elements.
    """
    shared = [{key_of(c) for c in conjuncts(b.predicate)} for b in users]
    return written_box(first, buffer, _inner_loops(body, first), ranges, set.intersection(*shared))


def _hull(
    block: Block, buffer: Buffer, body: Stmt, ranges: Ranges, *, writes: bool
) -> list[Range] | None:
    regions = bound_regions(block, block.writes if writes else block.reads, buffer)
    return covering(regions, _inner_loops(body, block), ranges) if regions else None


def _part_of(
    path: Sequence[Stmt],
    what: str,
    block: Block,
    kind: IterKind,
    clash: Finding = Finding(False),  # noqa: B008  immutable
) -> ScheduleError:
    """The refusal to run a loop at once that is part of a block's iterations of that kind."""
    loop = last_loop(path).var
    return ScheduleError(
        "loop {0} cannot {1}: it is part of the {2} iterations of block {3}",
        HandleName(loop),
        what,
        kind.value,
        block.label.name,
        at=loop,
        example=clash.example,
        hint=f"rfactor({loop.name}) makes it one, of partial results"
        if kind is IterKind.REDUCE
        else None,
        found=kind.value,
        expected=IterKind.SPATIAL.value,
    )


def _names(loops: set[Var]) -> str:
    return ", ".join(sorted(v.name for v in loops))
