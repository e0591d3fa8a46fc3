"""Few long rows: parts of each by several blocks, which a second launch combines.

    for b in thread("blockIdx.x", 64), x in thread("threadIdx.x", 256):
        for k: parts[b, x] += A[(k * 64 + b) * 256 + x]      # then over x: partial[b]
    for x in thread("threadIdx.x", 32): ..                   # sum[0] += partial[..]

So few rows leave most of the device idle where a block takes a whole one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....schedule.block_queries import has_reduction
from ....target.cuda import WARP, CudaTarget
from ....tir.ir import Block, Label
from ..access_patterns import extents, outputs_of
from ..common import block_loops, powers, sampled
from ..draft import Draft
from .chains import Chain, chain_of
from .elementwise import schedule_flat
from .limits import limit_block, registers
from .team import Team, memory_lanes, row_run

ROW_THREADS = 256
"""Threads of a block along a row that several blocks share."""
COLUMN_THREADS = 512
COLUMNS = (16, 32, 64)
"""Threads of a block for columns that several blocks share, and how many columns it may have."""
MOST_PARTS = 1024
"""Parts of a row, at most."""


def is_long(draft: Draft, chain: Chain, *, across: bool) -> bool:
    """Whether the rows of a chain are too few for the device, and long enough for two launches."""
    sms = CudaTarget.of(draft.target).sms
    columns = _columns(chain)
    blocks = -(-_rows(chain) // columns) if across else _rows(chain)
    reductions = [b for b in chain.members if chain.reduces_rows(b)]
    return blocks < 2 * sms and all(
        _most_parts(draft, chain, chain.length(b), across=across) >= WARP for b in reductions
    )


def _rows(chain: Chain) -> int:
    sizes = extents(chain.root)
    return math.prod(sizes[v] for v in chain.rows[chain.root.label])


def _columns(chain: Chain) -> int:
    """The columns of a block: few where there are few, so that its threads have work."""
    return next((n for n in COLUMNS if n >= _rows(chain)), COLUMNS[-1])


def _most_parts(draft: Draft, chain: Chain, length: int, *, across: bool) -> int:
    if across:
        return length // (COLUMN_THREADS // _columns(chain))
    return length // (ROW_THREADS * memory_lanes(draft, chain))


def schedule_split(draft: Draft, labels: Sequence[Label], count: int, *, across: bool) -> None:
    """Compute each reduction of a chain in two launches; what is computed of elements is computed
    again."""
    sch = draft.schedule
    labels = [sch.get_block(label) for label in labels]
    chain = chain_of([draft.block(label) for label in labels], count)
    for block in chain.members[:-1]:
        if chain.beside(block) and not has_reduction(block):
            sch.compute_inline(block.label)
            labels.remove(block.label)
    # From the end: whether inputs are complete is plain to see where they are not scheduled yet.
    chain = chain_of([draft.block(label) for label in labels], count)
    for block in reversed(chain.members):
        if chain.reduces_rows(block):
            _split(draft, chain, block, across=across)
        elif chain.beside(block):
            schedule_flat(draft, block.label)


def _split(draft: Draft, chain: Chain, block: Block, *, across: bool) -> None:
    """Reduce parts of rows in a launch, and the parts of each in another."""
    sch, label = draft.schedule, block.label
    run = row_run(block)
    most = _most_parts(draft, chain, chain.length(block), across=across)
    parts = WARP * sampled(sch, powers(min(MOST_PARTS, most) // WARP))
    if across:
        columns = _columns(chain)
        team = Team(COLUMN_THREADS // columns, columns, across=True)
    else:
        team = Team(ROW_THREADS, 1, memory_lanes(draft, chain))
    limit_block(draft, team.threads * team.rows, registers([]))
    near = team.near(block, run)
    rows = list(block_loops(sch, label).values())[: chain.count]
    step, part, *inside = team.cut(sch, label, run, parts)
    rank = len(outputs_of(block)[0].buffer.shape)
    partial = sch.rfactor(part, 0 if across else rank)
    rows = [part, *rows] if across else [*rows, part]
    sch.reorder(*rows, step, *inside)
    held = team.part(draft, partial, inside[1], near)
    last = team if across else Team(WARP, 1)
    _, _, thread, _ = sch.split(sch.get_loops(label)[-1], factors=[None, 1, last.threads, 1])
    _gather(draft, last, [last.part(draft, label, thread, []), label], chain.count)
    _gather(draft, team, [held, partial], len(rows))


def _gather(draft: Draft, team: Team, labels: Sequence[Label], count: int) -> None:
    """Let a team reduce rows, by a block of partial results and one that combines them."""
    place = team.gather(draft, labels, count)
    for label in labels:
        team.spread(draft, label, place)
    for n in range(len(draft.block(labels[0]).writes)):
        draft.schedule.set_scope(labels[0], n, "shared")
