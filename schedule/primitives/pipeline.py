"""Software pipelining: `pipeline`, `double_buffer`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as _replace
from typing import NamedTuple

from ...tir.ir import (
    Buffer,
    For,
    ForKind,
    Func,
    Label,
    Range,
    Stmt,
    Var,
    as_expr,
    seq,
)
from ...tir.visit import substitute, walk, with_body
from ..available import require_still_concurrent
from ..block_queries import (
    buffers_in_order,
    loop_ranges,
    region_buffers,
    require_inside,
    require_not_prefetched,
)
from ..find import blocks_in, find_block, find_path, last_loop, loop_path, rebuild, statements
from ..legality import kept_apart, own_boxes
from ..primitive import primitive
from ..rebind import rebound
from ..require import current_space, require
from ..versions import Turn, Versions, renewed, versions_of
from .partition import MAX_BLOCKS, fresh_copy, tidied

MAX_STAGES = 8


@primitive
def pipeline(
    fn: Func,
    loop: Var,
    stages: Sequence[int],
    order: Sequence[int] | None = None,
    versions: int = 1,
) -> tuple[Func, tuple[Label, ...]]:
    """Pipeline a loop: later stages work on earlier iterations at the same time.

        pipeline(i, [0, 1]):                    B_stages[0] = A[0]
        for i in 8:                             for i in 7:
          B[i] = A[i]                     ->      B_stages[(i + 1) % 2] = A[i + 1]
          C[i] = B[i] * 2                         C[i] = B_stages[i % 2] * 2
                                                C[7] = B_stages[1] * 2

    `stages` has a number from 0 on for each statement in the loop's body: a statement of stage s
    works on iteration i while one of stage 0 works on iteration i + s. `order` has the position of
    each statement within the pipelined body; by default they stay in order. A buffer between stages
    gets as many versions as are live at once, at least `versions`, each the size of what one
    iteration writes. With one more than are live, threads of a device fill the next version without
    waiting for those that still read the last one. A buffer stays as it is if iterations use
    different elements and those are used outside of the loop. The loop has fewer iterations; a
    prologue and an epilogue around it run the first and the last ones. They have their own copies
    of buffers that are within one stage, but for those of scope `global`. Returns the labels of the
    blocks in both.
    """
    path, old = loop_path(fn, loop)
    require(
        old.kind is ForKind.SERIAL,
        "loop {0} is {1}; only the iterations of a serial loop overlap in this way",
        loop,
        old.kind.value,
    )
    plan = _plan(old, stages, order)
    last = max(plan.stages)
    require(
        old.extent > last,
        "loop {0} has {1} iterations; with {2} stages it needs more than {3}",
        loop,
        old.extent,
        last + 1,
        last,
    )
    own = own_boxes(fn, path)
    require(
        1 <= versions <= MAX_STAGES,
        "at least {0} versions; expected 1 to {1}",
        versions,
        MAX_STAGES,
        at=loop,
    )
    versioned = _versioned(path, plan, own, versions)
    require_not_prefetched(fn, versioned)
    passing = _passing(plan, own)
    copies: dict[tuple[Buffer, int], Buffer] = {}
    labels: list[Label] = []
    above = tuple(s for s in path if type(s) is For)
    outer = loop_ranges(above[:-1])
    turns = sorted(range(len(plan.statements)), key=lambda n: plan.order[n])

    def alone(n: int, time: int, suffix: str) -> Stmt:
        number = time - plan.stages[n]
        iteration = number if suffix == "start" else old.extent + number
        stmt = renewed(plan.statements[n], Turn(old, iteration), versioned, above)
        copy = fresh_copy(stmt, {loop: as_expr(iteration)}, labels, suffix)
        used = {x for x in walk(copy) if type(x) is Buffer}
        for b in [b for b in passing if b in used]:
            copies.setdefault((b, number), _replace(b, name=f"{b.name}_{suffix}"))
        changed = {b: c for (b, of), c in copies.items() if of == number}
        return tidied(substitute(copy, changed), dict(outer))

    def steady(n: int) -> Stmt:
        first = last - plan.stages[n]
        counter = Var(loop.name)
        turn = Turn(old, first, counter, old.extent - last)
        stmt = renewed(plan.statements[n], turn, versioned, above)
        ranges = {**outer, loop: (0, old.extent - last - 1)}
        return rebound(stmt, {loop: loop + first, counter: loop}, None, ranges)

    before = [
        alone(n, time, "start") for time in range(last) for n in turns if plan.stages[n] <= time
    ]
    body = [steady(n) for n in turns]
    main = with_body(old, seq(*body), extent=old.extent - last)
    after = [alone(n, time, "end") for time in range(last) for n in turns if plan.stages[n] > time]
    allocs = [versioned[b].buffer if b in versioned else b for b in fn.allocs]
    fn = _replace(fn, allocs=(*allocs, *copies.values()))
    fn = rebuild(fn, path, seq(*before, main, *after))
    # An iteration of a loop around still fills these itself before it uses them.
    filled = {*own, *copies.values(), *(v.buffer for v in versioned.values())}
    require_still_concurrent(fn, (*labels, *(b.label for b in blocks_in(old))), filled)
    return fn, tuple(labels)


@primitive
def double_buffer(fn: Func, block: Label, loop: Var) -> tuple[Func, tuple[Label, ...]]:
    """Double-buffer what `block` computes for an iteration of `loop`, one iteration ahead.

        for i in 8:                             B_stages[0] = A[0]
          B[i] = A[i]                           for i in 7:
          C[i] = B[i] * 2                 ->      B_stages[(i + 1) % 2] = A[i + 1]
                                                  C[i] = B_stages[i % 2] * 2
                                                C[7] = B_stages[1] * 2

    This is `pipeline` with two stages: the statement of `block` in the first, all others in the
    second. The buffer must be internal, filled anew in each iteration, and used in this loop only.
    Returns the labels of the blocks before and after the loop.
    """
    found = find_block(fn, block)
    path, old = loop_path(fn, loop)
    statements = _statements(old)
    filling = [n for n, s in enumerate(statements) if find_path(s, block) is not None]
    require_inside(old, block)
    own = own_boxes(fn, path)
    written = sorted(region_buffers(found.writes), key=lambda b: b.name)
    for buffer in written:
        require(
            buffer in own,
            "{0}, which block {1} writes, is not filled anew in each iteration of loop {2} and "
            "used in it alone",
            buffer.name,
            block,
            loop.name,
            hint="compute_at moves a copy into the loop that uses it",
        )
    others = [s for n, s in enumerate(statements) if n not in filling]
    require(
        any(not region_buffers(b.reads).isdisjoint(written) for s in others for b in blocks_in(s)),
        "no other statement in loop {0} uses the result of block {1}",
        loop.name,
        block,
    )
    stages = [0 if n in filling else 1 for n in range(len(statements))]
    order = [0 if n in filling else n + (n < filling[0]) for n in range(len(statements))]
    return pipeline(fn, loop, stages, order)


class _Plan(NamedTuple):
    """The statements of a loop's body, the stage of each, and its position in the new body."""

    statements: tuple[Stmt, ...]
    stages: tuple[int, ...]
    order: tuple[int, ...]

    def key(self, n: int) -> tuple[int, int]:
        """Of two statements that work on one iteration, the one with the smaller key is first."""
        return self.stages[n], self.order[n]


def _statements(loop: For) -> tuple[Stmt, ...]:
    return statements(seq(*statements(loop.body)))


def _plan(loop: For, stages: Sequence[int], order: Sequence[int] | None) -> _Plan:
    statements = _statements(loop)
    count = len(statements)
    require(
        count > 1,
        "loop {0} contains a single statement; there is nothing to overlap",
        loop.var,
        hint="compute_at puts a producer, such as the copy of cache_read, into the loop",
    )
    require(
        len(stages) == count,
        "{0} stages for the {1} statements in loop {2}",
        len(stages),
        count,
        loop.var,
    )
    require(
        min(stages) == 0 and 1 <= max(stages) < MAX_STAGES,
        "stages {0}; expected numbers from 0 to at most {1}, with 0 and another one among them",
        list(stages),
        MAX_STAGES - 1,
        at=loop.var,
    )
    places = range(count) if order is None else order
    require(
        sorted(places) == list(range(count)),
        "order {0} is not the positions 0 to {1}",
        list(places),
        count - 1,
        at=loop.var,
    )
    blocks = sum(1 for _ in blocks_in(loop)) * max(stages)
    require(blocks <= MAX_BLOCKS, "{0} blocks before and after the loop", blocks, at=loop.var)
    return _Plan(statements, tuple(stages), tuple(places))


def _passing(plan: _Plan, own: Iterable[Buffer]) -> list[Buffer]:
    """Those of the buffers that iterations have for themselves which are of one stage alone.

    Iterations before and after the loop have others, so that these shrink to what one needs. Those
    of scope `global` would take memory for it.
    """
    stages: dict[Buffer, set[int]] = {}
    for n, stmt in enumerate(plan.statements):
        for block in blocks_in(stmt):
            for buffer in region_buffers((*block.reads, *block.writes)):
                stages.setdefault(buffer, set()).add(plan.stages[n])
    return [b for b in own if len(stages[b]) == 1 and b.scope != "global"]


def _versioned(
    path: Sequence[Stmt], plan: _Plan, own: Mapping[Buffer, Sequence[Range]], least: int
) -> dict[Buffer, Versions]:
    """The buffers that need versions, `least` or more. Requires that the others do not hinder the
    pipeline.

    `own` has the boxes of `own_boxes`.
    """
    loop = last_loop(path)
    ranges = loop_ranges(path)
    place = {b.label: n for n, s in enumerate(plan.statements) for b in blocks_in(s)}
    found: dict[Buffer, Versions] = {}
    blocks = list(blocks_in(loop.body))
    for buffer in buffers_in_order(r for b in blocks for r in b.writes):
        users = [b for b in blocks if buffer in region_buffers((*b.reads, *b.writes))]
        writing = {place[b.label] for b in users if buffer in region_buffers(b.writes)}
        using = sorted({place[b.label] for b in users})
        pairs = [(a, b) for a in using for b in using if a in writing or b in writing]
        for a, b in pairs:
            require(
                a >= b or plan.key(a) < plan.key(b),
                "statement {0} of loop {1} uses {2} before statement {3} does; in stages {4} and "
                "{5} it would come after it",
                a,
                loop.var,
                buffer.name,
                b,
                plan.stages[a],
                plan.stages[b],
            )
        if len({plan.stages[n] for n in using}) == 1:
            continue
        if buffer in own:
            # Iteration i + count writes over what iteration i has; all users of that come before.
            late = (plan.stages[a] - plan.stages[b] + (plan.order[a] >= plan.order[b])
                    for a, b in pairs)  # fmt: skip
            count = max(least, *late)
            if count > 1:
                found[buffer] = versions_of(buffer, count, own[buffer], loop, ranges)
            continue
        require(
            kept_apart(path, users, buffer),
            "the iterations of loop {0} share elements of {1} (blocks {2}); they cannot overlap",
            loop.var,
            buffer.name,
            lambda u=users: ", ".join(b.label.name for b in u),
            hint="give the blocks that use it one stage",
        )
        _require_no_choice(loop, buffer)
    return found


def _require_no_choice(loop: For, buffer: Buffer) -> None:
    """With some sizes an iteration might fill `buffer` itself: then it would have versions."""
    space = current_space()
    used = set() if space is None else {n for n in walk(loop) if type(n) is Var} & {*space.bounds}
    require(
        not used,
        "whether loop {0} needs versions of {1} depends on decisions that are open: {2}",
        loop.var,
        buffer.name,
        lambda: ", ".join(sorted(v.name for v in used)),
        hint="pipeline the loop before the steps that use these decisions",
    )
