"""Teams of threads, each of which takes a row of a chain."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ....base import dtypes
from ....schedule import Schedule
from ....schedule.block_queries import buffers_in_order, has_reduction, readers_of, region_buffers
from ....schedule.find import find_loop
from ....schedule.require import certain, require_some
from ....tir.ir import Block, Buffer, Dim, Func, IterKind, Label, Var
from ..access_patterns import extents, inputs_of, outputs_of, reduced, reduced_run, spatial
from ..common import block_loops, fused, native_lanes
from ..draft import Draft
from ..row_reads import rows_read

# Facts of chains that share their rows: which variables number rows, and what lies along them.


@dataclass(frozen=True)
class Chain:
    """Blocks in program order, the last of which is their root; `rows` has the variables of each
    block that number rows."""

    members: tuple[Block, ...]
    rows: dict[Label, list[Var]]

    @property
    def root(self) -> Block:
        return self.members[-1]

    @property
    def count(self) -> int:
        """How many of the root's first variables number rows."""
        return len(self.rows[self.root.label])

    def beside(self, block: Block) -> list[Var]:
        """The spatial variables of a block within a row."""
        rows = set(self.rows[block.label])
        return [v for v in spatial(block) if v not in rows]

    def along(self, block: Block) -> list[Var]:
        """The variables of a block along a row: those it reduces where it has no others."""
        return self.beside(block) or reduced(block)

    def length(self, block: Block) -> int:
        """The elements along a row."""
        sizes = extents(block)
        return math.prod(sizes[v] for v in self.along(block))

    def reduces_rows(self, block: Block) -> bool:
        """Whether a block reduces each row to one element."""
        return has_reduction(block) and not self.beside(block)

    def readers(self, buffer: Buffer) -> list[Block]:
        return [b for b in self.members if buffer in region_buffers(b.reads)]

    def arrays(self, func: Func) -> list[Buffer]:
        """The internal buffers with elements along rows, in the order in which they are written."""
        return [
            buffer
            for b in self.members
            if self.beside(b)
            for buffer in buffers_in_order(b.writes)
            if buffer in func.allocs
        ]

    def follows(self, block: Block, buffer: Buffer) -> bool:
        """Whether a block uses a buffer element by element along its rows, in their order."""
        along, sizes = self.along(block), extents(block)
        rows = set(self.rows[block.label])
        for region in (*block.reads, *block.writes):
            if region.buffer is not buffer:
                continue
            places = [
                (r.min, n)
                for r, n in zip(region.ranges, buffer.shape, strict=True)
                if not (type(r.min) is Var and r.min in rows) and n != 1
            ]
            wide = [v for v in along if sizes[v] != 1]
            if len(places) != len(wide) or any(
                e is not v or n != sizes[v] for (e, n), v in zip(places, wide, strict=True)
            ):
                return False
        return True

    def held(self, buffer: Buffer) -> bool:
        """Whether each thread of a row can hold what it uses of a buffer."""
        users = [b for b in self.members if buffer in region_buffers((*b.reads, *b.writes))]
        return all(self.follows(b, buffer) for b in users)


def chain_of(members: Sequence[Block], count: int) -> Chain:
    """The chain of blocks, the first `count` variables of the last one being rows.

    Raises `ScheduleError` where those of another block are not known.
    """
    root = members[-1]
    rows = {root.label: [i.var for i in root.iters][:count]}
    for n in range(len(members) - 2, -1, -1):
        block = members[n]
        written = region_buffers(block.writes)
        readers = [b for b in members[n + 1 :] if written & region_buffers(b.reads)]
        variables = rows_read(block, readers, rows)
        rows[block.label] = require_some(variables, "the rows of {0} are not known", block.label)
    return Chain(tuple(members), rows)


def scheduled_chain(
    draft: Draft, labels: Sequence[Label], count: int, *, recomputed: bool
) -> Chain:
    """The chain of blocks that a rule schedules, the first `count` variables of the last one being
    rows.

    With `recomputed`, what is computed of elements is computed where it is read.
    """
    sch = draft.schedule
    labels = [sch.get_block(label) for label in labels]
    chain = chain_of([draft.block(label) for label in labels], count)
    if not recomputed:
        return chain
    for block in chain.members[:-1]:
        if chain.beside(block) and not has_reduction(block):
            sch.compute_inline(block.label)
            labels.remove(block.label)
    return chain_of([draft.block(label) for label in labels], count)


LEAST_RUN = 32
"""Elements next to each other of which threads take neighbours, at least; else any order does."""


@dataclass
class Team:
    """`threads` along a row, and `rows` in a block, each of which has as many.

    A thread takes vectors of `lanes`, and `unrolled` steps at once; all of them where it has what
    it holds in registers, which is `kept`. Where rows lie `across` memory, threads next to each
    other take rows next to each other, else elements.
    """

    threads: Dim
    rows: Dim
    lanes: int = 1
    unrolled: Dim = 1
    kept: bool = False
    across: bool = False
    _vectors: dict[Label, list[Label]] = field(default_factory=dict)

    def factor(self, draft: Draft, label: Label) -> Label:
        """Let each thread reduce a part of each row. Returns the block of the parts."""
        block = draft.block(label)
        run = row_run(block)
        *_, thread, _ = self.cut(draft.schedule, label, run)
        return self.part(draft, label, thread, self.near(block, run))

    def cut(self, sch: Schedule, label: Label, run: Sequence[Var], *chunks: Dim) -> tuple[Var, ...]:
        """Cut a run of reduced variables into steps, `chunks`, vectors, threads and lanes."""
        loops = block_loops(sch, label)
        factors = [None, *chunks, self.unrolled, self.threads, self.lanes]
        return sch.split(fused(sch, [loops[v] for v in run]), factors=factors)

    def near(self, block: Block, run: Sequence[Var]) -> list[int]:
        """The inputs of which threads read vectors."""
        if self.lanes == 1 or self.kept:
            return []
        return [n for n, i in enumerate(inputs_of(block)) if i.strides.get(run[-1]) == 1]

    def part(self, draft: Draft, label: Label, thread: Var, near: Sequence[int]) -> Label:
        """Let the iterations of a loop of a reduction be partial results, which are combined after.

        Vectors of the inputs `near` are read at once. Returns the block of the partial results.
        """
        sch = draft.schedule
        partial = sch.rfactor(thread, len(outputs_of(draft.block(label))[0].buffer.shape))
        self._vectors[partial] = [sch.cache_read(partial, n, "local") for n in near]
        return partial

    def launch(
        self,
        draft: Draft,
        labels: Sequence[Label],
        count: int,
        *,
        following: Sequence[Label] = (),
        copies: Sequence[Label] = (),
        held: Collection[Buffer] = (),
    ) -> Var:
        """Compute blocks together in a launch, each by all threads of a row.

        The first `count` variables of the last of `labels` are rows. `following` are computed from
        these and are read elsewhere too, `copies` are read by all. What no other block reads is
        shared by the threads, or kept in their registers where it is `held`. Returns the loop over
        a block's rows that they are in then.
        """
        sch, order = draft.schedule, [*copies, *labels, *following]
        place = self._gather(draft, labels, count)
        for label in following:
            sch.reverse_compute_at(label, place)
        for label in reversed(copies):
            sch.compute_at(label, place)
        for label in order:
            self._spread(draft, label, place)
            for n, buffer in enumerate(buffers_in_order(draft.block(label).writes)):
                leaves = any(b.label not in order for b in readers_of(draft.func, {buffer}))
                if label not in copies and buffer in draft.func.allocs and not leaves:
                    sch.set_scope(label, n, "local" if buffer in held else "shared")
        return place

    def _gather(self, draft: Draft, labels: Sequence[Label], count: int) -> Var:
        """Bring blocks together in a loop over a block's rows, and bind it."""
        sch, root = draft.schedule, labels[-1]
        loops = sch.get_loops(root)
        if count:
            blocks, place = sch.split(loops[count - 1], factors=[None, self.rows])
            blocks = fused(sch, [*loops[: count - 1], blocks])
        else:
            blocks = place = sch.add_unit_loop(loops[0] if loops else root)
        for label in reversed(labels[:-1]):
            sch.compute_at(label, place)
        sch.bind(blocks, "blockIdx.x")
        if count:
            sch.bind(place, "threadIdx.x" if self.across else "threadIdx.y")
        return place

    def _spread(self, draft: Draft, label: Label, place: Var) -> None:
        """Spread a block of a row over its threads; what has one element of it is left to one."""
        if label in self._vectors:
            self._spread_parts(draft, label)
            return
        sch, block = draft.schedule, draft.block(label)
        loops = sch.get_loops(label)
        inside = loops[1 + next(n for n, v in enumerate(loops) if v is place) :]
        kinds = {v: i.kind for v, i in zip(inside[::-1], block.iters[::-1], strict=False)}
        along = [v for v in inside if kinds[v] is IterKind.SPATIAL]
        if all(certain(find_loop(sch.func, v).extent == 1) for v in along):
            return
        *steps, thread, lane = sch.split(
            fused(sch, along), factors=[None, self.unrolled, self.threads, self.lanes]
        )
        self._bind(sch, thread, steps)
        (sch.unroll if has_reduction(block) else sch.vectorize)(lane)

    def _spread_parts(self, draft: Draft, label: Label) -> None:
        sch, block = draft.schedule, draft.block(label)
        rank = min(len(outputs_of(block)[0].buffer.shape) - 1, len(spatial(block)) - 1)
        thread = block_loops(sch, label)[spatial(block)[rank]]
        *_, step, unrolled, lane = sch.get_loops(label)
        self._bind(sch, thread, [step, unrolled])
        sch.unroll(lane)
        for copy in self._vectors[label]:
            sch.compute_at(copy, unrolled)
            sch.vectorize(sch.get_loops(copy)[-1])

    def _bind(self, sch: Schedule, thread: Var, steps: Sequence[Var]) -> None:
        sch.bind(thread, "threadIdx.y" if self.across else "threadIdx.x")
        *outer, unrolled = steps
        for loop in outer if self.kept else ():
            sch.unroll(loop)
        sch.unroll(unrolled)


def row_run(block: Block) -> list[Var]:
    """The reduced variables that threads take elements of; those before them are loops around."""
    sizes, order = extents(block), reduced(block)
    if len(order) == 1:
        return order
    _, run = reduced_run(block, sizes)
    return run if math.prod(sizes[v] for v in run) >= LEAST_RUN else order


def memory_lanes(draft: Draft, chain: Chain) -> int:
    """Lanes of 16 bytes of what lies in memory, as many as rows are made of."""
    internal = set(draft.func.allocs)
    regions = [r for b in chain.members for r in (*b.reads, *b.writes) if chain.along(b)]
    memory = [r.buffer.dtype for r in regions if r.buffer not in internal]
    widest = max(memory, key=dtypes.nbytes, default="float32")
    lanes = native_lanes(draft.target.vector_bits, widest)
    lengths = [chain.length(b) for b in chain.members if chain.along(b)]
    while any(n % lanes for n in lengths):
        lanes //= 2
    return lanes
