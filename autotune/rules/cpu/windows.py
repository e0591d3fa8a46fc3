"""Windows that are bent at borders, over copies whose borders are repeated, reflected or wrapped.

    for i, j, r, q: Y[i, j] += X[clamp(i + r - 4), clamp(j + q - 4)] * W[r, q]

      ->  for i, j: P[i, j] = X[clamp(i - 4), clamp(j - 4)]
          for i, j, r, q: Y[i, j] += P[i + r, j + q] * W[r, q]

No vector follows an index that is clamped, reflected or wrapped, but where it is known not to be.
The copy has few elements at borders, and the reduction none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence

from ....schedule import Schedule
from ....schedule.block_queries import Ranges, has_reduction
from ....schedule.find import find_block
from ....schedule.index_map import IndexMap
from ....tir.bounds import bound
from ....tir.ir import Block, Buffer, Expr, Label, Region, as_expr
from ....tir.piecewise import Interior
from ....tir.simplify import Simplifier
from ..access_patterns import extents, in_order, inputs_of, is_bent, sliding
from ..canonicalise import is_plain
from ..common import result_or_none
from ..draft import Draft, RuleChoice
from ..fusion_groups import inlined
from ..rule import Alternative
from .elementwise import schedule_elementwise, schedule_inside


def copied_windows(original: Draft) -> Iterator[Alternative]:
    """The program with windows over copies, made before or where an outer tile reads them.

    What costs little is inlined first: the program may copy its borders itself.
    """
    if not any(is_bent(e) for block in in_order(original.func) for e in _indices(block.reads)):
        return
    draft = inlined(original)
    copies: list[Label] = []
    for block in in_order(draft.func):
        plain = has_reduction(block) and is_plain(draft.func, block)
        if not plain or not _is_bent(block, block.reads) or draft.rules.is_contraction(block):
            continue
        trial = draft.copy()
        created = result_or_none(_copy, trial.schedule, trial.schedule.get_block(block.label))
        if created and draft.rules.is_contraction(trial.block(block.label)):
            draft = trial
            copies += created
    ways = {"copied": schedule_elementwise, "copied_inside": schedule_inside}
    for name, schedule in ways.items() if copies else ():
        after = [functools.partial(_scheduled, label=label, schedule=schedule) for label in copies]
        choice = RuleChoice.of("copied_windows", inside=schedule is schedule_inside)
        yield Alternative(name, choice, draft, copies, after=after)


def _indices(reads: Iterable[Region]) -> Iterator[Expr]:
    return (x.min for region in reads for x in region.ranges)


def _is_bent(block: Block, reads: Sequence[Region]) -> bool:
    """Whether windows among what a block reads are bent."""
    return any(map(is_bent, sliding(block, reads)))


def _scheduled(draft: Draft, label: Label, schedule: Callable[[Draft, Label], None]) -> None:
    schedule(draft, draft.schedule.get_block(label))


def _copy(sch: Schedule, label: Label) -> list[Label]:
    """Let a block read copies of what it reads at bent windows; returns the blocks that copy."""
    block = find_block(sch.func, label)
    views: list[Label] = []
    for source in inputs_of(block):
        reads = [r for r in block.reads if r.buffer is source.buffer]
        if len(reads) > 1 and _is_bent(block, reads):
            views += sch.distinguish_reads(label, _number(sch, label, source.buffer))
    block = find_block(sch.func, label)
    copies: list[Label] = []
    for source in inputs_of(block):
        reads = [r for r in block.reads if r.buffer is source.buffer]
        if _is_bent(block, reads):
            ranges = {v: (0, n - 1) for v, n in extents(block).items()}
            places = IndexMap(
                tuple(i.var for i in block.iters),
                tuple(_place(e, ranges) for e in _indices(reads[:1])),
            )
            number = _number(sch, label, source.buffer)
            copies.append(sch.reindex_cache_read(label, number, "global", places))
    for view in views:
        sch.compute_inline(view)
    return copies


def _number(sch: Schedule, label: Label, buffer: Buffer) -> int:
    """The number of an input of a block, by which steps name it."""
    inputs = inputs_of(find_block(sch.func, label))
    return next(n for n, i in enumerate(inputs) if i.buffer is buffer)


def _place(index: Expr, ranges: Ranges) -> Expr:
    """The place in a copy of what is read at an index: the sum that it is inside, from zero on."""
    bare = Interior(ranges, Simplifier(ranges))(index)
    low, _ = bound(bare, ranges)
    return bare if low is None else bare - as_expr(low)
