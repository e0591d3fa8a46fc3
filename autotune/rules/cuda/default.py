"""The default: each nest that no rule has scheduled becomes a launch of its own.

    for i, j, k: C[i, j] += A[i, k] * B[k, j]

      ->  for b in thread("blockIdx.x"), t in thread("threadIdx.x", 256):
            for k: C[(b * 256 + t) // 8, (b * 256 + t) % 8] += ..

The loops that may run at once are brought outside, fused, and spread over threads. Where those
around them run in an order, the threads of one block take turns at it. A nest without such loops
runs in one thread. There is nothing to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....schedule import Schedule
from ....schedule.find import blocks_in, find_loop, find_path, loops_in, statements
from ....schedule.primitives.statements import loose_statements
from ....target.cuda import WARP
from ....tir.ir import Dim, For, ForKind, Label, Stmt, Var, product
from ..access_patterns import in_order
from ..common import fused, result_or_none, succeeds
from ..draft import Draft
from ..rule import Group, Variant

THREADS = 256
"""Threads of a block: whole warps, and few enough for the registers of any thread."""


def bind_rest(draft: Draft) -> None:
    """Bind each nest that is bound to no axis of the device yet."""
    if any(loose_statements(draft.func.body)):
        draft.schedule.make_blocks()
    for block in in_order(draft.func):
        if _is_unbound(_nest_of(draft, block.label)):
            _bind(draft, draft.schedule.get_block(block.label))


def default_variants(_draft: Draft, _group: Group) -> Iterator[Variant]:
    """The group as it is bound in the end."""
    yield Variant.of("default")


def spread(sch: Schedule, loop: Var, threads: int) -> None:
    """Run the iterations of a loop in threads, next to each other, of as many blocks as needed."""
    blocks, lanes = sch.split(loop, factors=[None, threads])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(lanes, "threadIdx.x")


def threads_for(extent: Dim) -> int:
    """Threads of a block for so many iterations: whole warps, up to `THREADS`."""
    if not isinstance(extent, int):
        return THREADS
    return min(THREADS, max(1, -(-extent // WARP)) * WARP)


def _nest_of(draft: Draft, label: Label) -> Stmt:
    """The statement at the top of the program that a block is in."""
    tops = statements(draft.func.body)
    return next(s for s in tops if find_path(s, label) is not None)


def _is_unbound(nest: Stmt) -> bool:
    loops = list(loops_in(nest))
    return bool(loops) and all(s.kind is not ForKind.THREAD for s in loops)


def _bind(draft: Draft, label: Label) -> None:
    sch = draft.schedule
    for block in blocks_in(_nest_of(draft, label)):
        for loop in sch.get_loops(sch.get_block(block.label)):
            if find_loop(sch.func, loop).kind is ForKind.PARALLEL:
                sch.serial(loop)
    chain = _chain(draft, label)
    at_once = [v for v in chain if succeeds(sch.copy().bind, v, "threadIdx.x")]
    ordered = [n for n, v in enumerate(chain) if v not in set(at_once)]
    outside = at_once[: ordered[0]] if ordered else at_once
    # Where no loops together are known to be independent, one of them is: the longest.
    alone = [[v] for v in sorted(at_once, key=lambda v: _length(sch, v), reverse=True)]
    for loops in (at_once, outside, *alone):
        trial = result_or_none(_spread_over, sch, loops, chain) if loops else None
        if trial is not None:
            draft.schedule = trial
            return
    inside = chain[ordered[-1] + 1 :] if ordered else []
    if not inside:
        sch.bind(sch.add_unit_loop(sch.get_loops(label)[0]), "blockIdx.x")
        return
    extent = _size(sch, inside)
    _, lanes = sch.split(fused(sch, inside), factors=[None, threads_for(extent)])
    sch.bind(lanes, "threadIdx.x")


def _chain(draft: Draft, label: Label) -> list[Var]:
    """The serial loops from the top of a nest on, each with nothing but the next one in it."""
    loops = draft.schedule.get_loops(label)
    stmt, chain = _nest_of(draft, label), list[Var]()
    while type(stmt) is For and stmt.kind is ForKind.SERIAL and not stmt.annotations:
        chain.append(loops[len(chain)])
        stmt = stmt.body
    return chain


def _spread_over(sch: Schedule, loops: list[Var], chain: list[Var]) -> Schedule:
    """A schedule in which `loops` of a chain are outside of its others, and run in threads."""
    trial, chosen = sch.copy(), set(loops)
    trial.reorder(*loops, *(v for v in chain if v not in chosen))
    spread(trial, fused(trial, loops), threads_for(_size(sch, loops)))
    return trial


def _length(sch: Schedule, loop: Var) -> int:
    """The iterations of a loop, where they are known."""
    extent = find_loop(sch.func, loop).extent
    return extent if isinstance(extent, int) else 0


def _size(sch: Schedule, loops: list[Var]) -> Dim:
    """The iterations of nested loops."""
    return product([find_loop(sch.func, v).extent for v in loops])
