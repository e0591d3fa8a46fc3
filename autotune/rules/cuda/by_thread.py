"""A thread for each row, or for each result of a reduction.

    for b in thread("blockIdx.x"), t in thread("threadIdx.x", 128):
        sum = 0
        for k: sum += A[b * 128 + t, k]
        B[b * 128 + t] = sum

For short rows, for those that lie across memory, and for what no other rule is for.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....schedule.block_queries import buffers_in_order, has_reduction
from ....tir.ir import Label
from ..access_patterns import extents, reduced, spatial
from ..common import fused, sampled, succeeds
from ..draft import Draft
from ..register_tiles import hold_results
from .elementwise import schedule_flat
from .limits import block_sizes, limit_block, registers, registers_of
from .team import chain_of

KEPT = 64
"""Elements of an array of a row that a thread holds, at most; more are computed again."""
STEPS = (1, 2, 4, 8)
"""Steps of a reduction that are unrolled."""


def schedule_by_thread(draft: Draft, labels: Sequence[Label], count: int) -> None:
    """Compute a chain by a thread for each row, which the first `count` variables of the last block
    number."""
    sch = draft.schedule
    labels = [sch.get_block(label) for label in labels]
    chain = chain_of([draft.block(label) for label in labels], count)
    held = 0
    for block in chain.members[:-1]:
        if not chain.beside(block):
            continue
        if has_reduction(block) or chain.length(block) <= KEPT:
            held += sum(registers_of(r.buffer.dtype) for r in block.writes) * chain.length(block)
        else:
            sch.compute_inline(block.label)
            labels.remove(block.label)
    root = labels[-1]
    writes = hold_results(sch, root, "local") if has_reduction(draft.block(root)) else []
    threads = sampled(sch, block_sizes(32, 512))
    limit_block(draft, threads, registers([("float32", held)]))
    blocks, place = sch.split(fused(sch, sch.get_loops(root)[:count]), factors=[None, threads])
    # Before others come in: what the root writes is apart as its rows are numbered now.
    sch.bind(blocks, "blockIdx.x")
    sch.bind(place, "threadIdx.x")
    for label in reversed(labels[:-1]):
        sch.compute_at(label, place)
    for label in writes:
        sch.reverse_compute_at(label, place)
    for label in labels[:-1]:
        for n in range(len(buffers_in_order(draft.block(label).writes))):
            sch.set_scope(label, n, "local")
    for label in labels:
        unroll_reduction(draft, label)


def schedule_results(draft: Draft, labels: Sequence[Label]) -> None:
    """Compute each result of a contraction by a thread, and what follows it on the way."""
    sch = draft.schedule
    main, *following = (sch.get_block(label) for label in labels)
    count = len(spatial(draft.block(main)))
    writes = hold_results(sch, main, "local")
    for label in following:
        follow_results(draft, label)
    threads = sampled(sch, block_sizes(32, 512))
    limit_block(draft, threads, registers([]))
    blocks, place = sch.split(fused(sch, sch.get_loops(main)[:count]), factors=[None, threads])
    # Before what writes the results comes in: these are apart as they are numbered now.
    sch.bind(blocks, "blockIdx.x")
    sch.bind(place, "threadIdx.x")
    for label in writes:
        sch.reverse_compute_at(label, place)
    unroll_reduction(draft, main)


def follow_results(draft: Draft, label: Label) -> None:
    """Compute a block where the results that it reads are copied, else in a launch of its own."""
    if not succeeds(draft.schedule.reverse_compute_inline, label):
        schedule_flat(draft, label)


def unroll_reduction(draft: Draft, label: Label) -> None:
    """Unroll some steps of a block's innermost loop, if it is a reduction: their loads are on their
    way at once."""
    sch, block = draft.schedule, draft.block(label)
    last = reduced(block)[-1] if has_reduction(block) else None
    extent = None if last is None else extents(block).get(last)
    if last is not None and extent is not None:
        steps = sampled(sch, [n for n in STEPS if extent % n == 0])
        _, step = sch.split(sch.get_loops(label)[-1], factors=[None, steps], perfect=True)
        sch.unroll(step)
