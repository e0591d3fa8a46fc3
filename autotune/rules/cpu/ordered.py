"""Iterations in an order of their own (scans): many rows side by side, each in its order.

    for i: for t: Y[i, t + 1] = Y[i, t] * a + X[i, t]
      ->  parallel for i_0: for t: unrolled for i_1: Y[i_0 * 8 + i_1, t + 1] = ..

A step of a scan waits for the one before it; steps of other rows do not. Rows are those of a loop
whose iterations are independent. They lie in vectors where their elements lie side by side, and
where a step is long enough to gather what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile

from ....base import dtypes
from ....base.errors import ScheduleError
from ....schedule import Schedule
from ....schedule.block_queries import feeding
from ....schedule.find import find_block, find_loop
from ....target import CpuTarget
from ....tir.ir import Block, Buffer, Dim, For, IterKind, Label, Stmt, Store, Var
from ....tir.visit import nested
from ..access_patterns import inputs_of, outputs_of
from ..common import (
    in_registers,
    lanes_for,
    native_lanes,
    operations,
    sampled,
    unroll_counts,
    widest,
)
from ..draft import Draft
from ..rule import Group, Variant

AT_ONCE = (1, 2, 4, 8, 16)
"""How many rows, or vectors of them, may run side by side."""
FEWEST = 4
"""How many rows hide the latency of a step."""
WORTH_GATHERING = 16
"""The operations of a step from which vectors pay whose elements are gathered: a function's."""
WORTH_A_TEAM = 1 << 18
"""The elements that a loop stores from which a team pays in each step: sums in registers of so many
products take 8 us or more, and a team takes 2 us to begin."""


def ordered_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """Rows side by side, in vectors if they can be, or in the order in which they are written."""
    labels = group.labels

    def variant(form: str, schedule: Callable[[Draft, Sequence[Label]], None]) -> Variant:
        def step(draft: Draft) -> None:
            schedule(draft, [draft.schedule.get_block(label) for label in labels])

        return Variant.of(f"ordered_{form}", step, form=form)

    blocks = [draft.schedule.get_block(label) for label in labels]
    rows, _ = _loops(draft.schedule, blocks)
    if rows:
        if _side_by_side(draft.schedule, blocks, rows) is not None:
            yield variant("lanes", schedule_lanes)
        else:
            yield variant("rows", schedule_rows)
            if sum(map(operations, group.members)) >= WORTH_GATHERING:
                yield variant("gathered", schedule_gathered)
    yield variant("steps", schedule_steps)


def schedule_rows(draft: Draft, labels: Sequence[Label]) -> None:
    """Run several rows at once, one element of each after the other."""
    rows, steps = _loops(draft.schedule, labels)
    *others, last = rows
    extent = find_loop(draft.func, last).extent
    most = min(AT_ONCE[-1], _that_stay_cached(draft, labels, last))
    count = _count(draft, labels, extent, FEWEST, most)
    outer, inner = draft.schedule.split(last, factors=[None, count])
    draft.schedule.reorder(*others, outer, *steps, inner)
    draft.schedule.unroll(inner)
    draft.map_outer(*others, outer)


def schedule_lanes(draft: Draft, labels: Sequence[Label]) -> None:
    """Run vectors of rows at once whose elements lie side by side."""
    rows, _ = _loops(draft.schedule, labels)
    along = _side_by_side(draft.schedule, labels, rows)
    assert along is not None
    _in_vectors(draft, labels, along, whole_runs=True)


def schedule_gathered(draft: Draft, labels: Sequence[Label]) -> None:
    """Run vectors of rows at once whose elements are gathered and scattered."""
    rows, _ = _loops(draft.schedule, labels)
    _in_vectors(draft, labels, rows[-1], whole_runs=False)


def schedule_steps(draft: Draft, labels: Sequence[Label]) -> None:
    """Run the outer rows in parallel, and those inside of the steps in vectors.

    Without rows, threads share the long loops of each step.
    """
    sch = draft.schedule
    rows, _ = _loops(sch, labels)
    nest = _nest(sch, labels)
    around = list(takewhile(lambda loop: loop in set(rows), nest))
    if len(around) < len(nest) and nest[-1] in set(rows):
        trial = sch.copy()
        with suppress(ScheduleError):
            extent = find_loop(sch.func, nest[-1]).extent
            _, vector = trial.split(nest[-1], factors=[None, _lanes(draft, labels, extent)])
            trial.vectorize(vector)
            draft.schedule = trial
    if around:
        with suppress(ScheduleError):
            draft.map_outer(*around)
    if not rows and draft.target.threads > 1:
        for label in labels:
            _share(draft, draft.schedule.get_loops(label)[len(nest) :])


def _share(draft: Draft, loops: Sequence[Var]) -> None:
    """Have threads share the longest of some loops, if its iterations are independent."""
    inner = [find_loop(draft.func, v) for v in loops]
    longest = max(inner, key=lambda s: s.extent if isinstance(s.extent, int) else 0, default=None)
    if longest is not None and _stores(longest) >= WORTH_A_TEAM:
        with suppress(ScheduleError):
            draft.map_outer(longest.var)


def _stores(s: Stmt) -> int:
    """How many elements are stored in a statement."""
    if type(s) is Block:
        return _stores(s.body)
    below = (type(s) is Store) + sum(map(_stores, nested(s)))
    return below * s.extent if type(s) is For and isinstance(s.extent, int) else below


def _in_vectors(draft: Draft, labels: Sequence[Label], along: Var, *, whole_runs: bool) -> None:
    """Run vectors of rows at once; with `whole_runs`, as many as registers hold."""
    sch = draft.schedule
    rows, steps = _loops(sch, labels)
    others = [loop for loop in rows if loop is not along]
    extent = find_loop(sch.func, along).extent
    lanes = _lanes(draft, labels, extent)
    vectors = -(-extent // lanes) if isinstance(extent, int) else extent
    stored = {r.buffer for label in labels for r in find_block(sch.func, label).writes}
    most = max(1, draft.target.vector_registers // (2 * len(stored)))
    count = _count(draft, labels, vectors, most if whole_runs else FEWEST, most)
    outer, *inner = sch.split(along, factors=[None, count, lanes])
    sch.reorder(*others, outer, *steps, *inner)
    in_registers(sch, inner)
    draft.map_outer(*others, outer)


def _count(draft: Draft, labels: Sequence[Label], extent: Dim, fewest: int, most: int) -> Dim:
    """How many copies of the body of a step run side by side: fewer only for all threads' sake."""
    assert isinstance(extent, int)
    blocks = [find_block(draft.func, label) for label in labels]
    short = unroll_counts(blocks, [n for n in AT_ONCE if n <= min(most, extent)])
    fewest = min(fewest, extent // draft.target.threads, short[-1])
    return sampled(draft.schedule, [n for n in short if n >= fewest])


def _that_stay_cached(draft: Draft, labels: Sequence[Label], loop: Var) -> int:
    """How many rows keep a line each in the first level of cache, of all buffers."""
    cpu = CpuTarget.of(draft.target)
    ways = cpu.ways[0]
    pitches = set[tuple[Buffer, int]]()
    for label in labels:
        block = find_block(draft.func, label)
        own = next((i.var for i in block.iters if i.value is loop), None)
        for access in (*inputs_of(block), *outputs_of(block)):
            steps = access.strides.get(own) if own is not None else None
            pitches.add((access.buffer, (steps or 0) * dtypes.nbytes(access.buffer.dtype)))
    one_set = sum(pitch != 0 and pitch % (cpu.l1_bytes // ways) == 0 for _, pitch in pitches)
    return max(1, ways // one_set) if one_set else AT_ONCE[-1]


def _lanes(draft: Draft, labels: Sequence[Label], extent: Dim) -> int:
    blocks = [find_block(draft.func, label) for label in labels]
    bits = draft.target.vector_bits
    lanes = min(native_lanes(bits, widest(b)) for b in blocks)
    return lanes_for(bits, widest(blocks[0]), extent) if isinstance(extent, int) else lanes


def _nest(sch: Schedule, labels: Sequence[Label]) -> list[Var]:
    """The loops around all blocks that are perfectly nested, from outside."""
    common = [
        loops[0]
        for loops in zip(*map(sch.get_loops, labels), strict=False)
        if all(loop is loops[0] for loop in loops)
    ]
    for n, loop in enumerate(common[:-1]):
        if type(find_loop(sch.func, loop).body) is not For:
            return common[: n + 1]
    return common


def _loops(sch: Schedule, labels: Sequence[Label]) -> tuple[list[Var], list[Var]]:
    """The loops of rows, whose iterations are spatial in all blocks, and those of steps."""
    nest = _nest(sch, labels)
    rows = set.intersection(*(_independent(find_block(sch.func, label)) for label in labels))
    return [v for v in nest if v in rows], [v for v in nest if v not in rows]


def _independent(block: Block) -> set[Var]:
    others = feeding(block, IterKind.OPAQUE) | feeding(block, IterKind.REDUCE)
    return feeding(block, IterKind.SPATIAL) - others


def _side_by_side(sch: Schedule, labels: Sequence[Label], rows: Sequence[Var]) -> Var | None:
    """The loop of rows whose elements lie side by side in all results, if there is one."""
    for loop in rows:
        steps: set[int | None] = set()
        for label in labels:
            block = find_block(sch.func, label)
            own = next((i.var for i in block.iters if i.value is loop), None)
            outputs = outputs_of(block)
            steps |= {o.strides.get(own) for o in outputs if own is not None} or {None}
        if steps == {1}:
            return loop
    return None
