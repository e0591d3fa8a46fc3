"""Random steps, driven by numbers that somebody picks: mostly plausible, some with wrong arguments.

Nothing here looks at what a primitive asks for: whatever it accepts must keep the meaning of the
program, and whatever it refuses must be a `ScheduleError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.blocks import feeding
from tilewright.schedule.find import blocks_in, find_block, find_loop
from tilewright.tir.intrinsics import intrin_names
from tilewright.tir.ir import IterKind, Label, Seq, Var

from .random_instructions import SMALL
from .random_programs import Pick

FACTORS = (1, 2, 3, 4, 5, 8)
WRONG_FACTORS = (0, -1, 1 << 13, 1 << 45)
SCOPES = ("global", "local", "shared", "register", "nowhere")


def one_of(pick: Pick, choices: Any) -> Any:
    return choices[pick(len(choices))]


def sometimes(pick: Pick, often: int = 16) -> bool:
    return pick(often) == 0


def a_block(sch: Schedule, pick: Pick) -> Label:
    """A block of the program; sometimes one that is gone."""
    if sometimes(pick, 48):
        return sch.get_block(pick(5))
    label: Label = one_of(pick, [b.label for b in blocks_in(sch.func.body)])
    return referred(sch, label)


def referred(sch: Schedule, label: Label) -> Label:
    """`label` as a handle of the schedule."""
    original = [b.label for b in blocks_in(sch.original.body)]
    return sch.get_block(original.index(label)) if label in original else label


def loops_of(sch: Schedule, pick: Pick) -> list[Var]:
    return list(sch.get_loops(a_block(sch, pick)))


def a_loop(sch: Schedule, pick: Pick) -> Var:
    """A loop around a block; sometimes one that an earlier step has used up."""
    loops = loops_of(sch, pick)
    if sometimes(pick, 48):
        loops += [v for v in sch._outputs if type(v) is Var]
    if not loops:
        raise ScheduleError("the block is in no loop")
    loop: Var = one_of(pick, loops)
    return loop


def a_factor(pick: Pick) -> int:
    found: int = one_of(pick, WRONG_FACTORS if sometimes(pick, 64) else FACTORS)
    return found


def an_index(pick: Pick) -> int:
    found: int = one_of(pick, (0, 0, 0, 0, 1, 1, 2, -1))
    return found


def a_scope(pick: Pick) -> str:
    found: str = SCOPES[pick(2)] if not sometimes(pick) else one_of(pick, SCOPES)
    return found


def work_on(sch: Schedule, pick: Pick) -> None:
    sch.work_on(pick(len(sch.funcs) + sometimes(pick)))


def split(sch: Schedule, pick: Pick) -> None:
    factors: list[int | None] = [a_factor(pick) for _ in range(1 + pick(2))]
    if not sometimes(pick):
        factors.insert(pick(len(factors) + 1) if sometimes(pick, 4) else 0, None)
    sch.split(a_loop(sch, pick), factors=factors, perfect=sometimes(pick, 4))


def sampled_split(sch: Schedule, pick: Pick) -> None:
    loop = a_loop(sch, pick)
    if sometimes(pick, 4):
        factor = one_of(pick, (1, 2, 3, 4, 0))
        factors = sch.sample_partitioned_tile(loop, 2 + pick(2), pick(4), factor)
        sch.split(loop, factors=factors)
        return
    sample = (sch.sample_tile, sch.sample_perfect_tile)[pick(2)]
    sch.split(loop, factors=sample(loop, 2 + pick(2), 4))


def chosen_split(sch: Schedule, pick: Pick) -> None:
    factor = sch.sample_categorical(FACTORS)
    inner = (factor,) if pick(2) else (factor * 2, sch.sample_categorical(FACTORS))
    sch.split(a_loop(sch, pick), factors=[None, *inner])


def fuse(sch: Schedule, pick: Pick) -> None:
    loops = loops_of(sch, pick)
    start = pick(max(1, len(loops)))
    chosen = loops[start : start + 2 + pick(2)]
    sch.fuse(*(reversed(chosen) if sometimes(pick) else chosen))


def reorder(sch: Schedule, pick: Pick) -> None:
    loops = loops_of(sch, pick)
    start = pick(max(1, len(loops)))
    some = loops[start : start + 2 + pick(3)]
    if sometimes(pick):
        some.append(a_loop(sch, pick))
    sch.reorder(*[some.pop(pick(len(some))) for _ in range(len(some))])


def tile(sch: Schedule, pick: Pick) -> None:
    factors = [a_factor(pick) for _ in range(1 + pick(2))]
    if pick(2):
        sch.tile(a_block(sch, pick), factors)
        return
    loops = loops_of(sch, pick)
    start = pick(max(1, len(loops)))
    sch.tile(loops[start : start + len(factors)], factors)


def partition(sch: Schedule, pick: Pick) -> None:
    sch.loop_partition(a_loop(sch, pick), None if pick(2) else 1 + pick(4))


def merge(sch: Schedule, pick: Pick) -> None:
    blocks = [b.label for b in blocks_in(sch.func.body)]
    start = pick(len(blocks))
    chosen = blocks[start : start + 2 + sometimes(pick, 4)]
    chains = [list(sch.get_loops(referred(sch, label))) for label in chosen]
    if sometimes(pick, 8) or not all(chains):
        sch.merge(*[a_loop(sch, pick) for _ in range(2)])
        return
    level = pick(min(map(len, chains)))
    sch.merge(*[loops[level] for loops in chains])


def fission(sch: Schedule, pick: Pick) -> None:
    after = [a_block(sch, pick) for _ in range(1 + pick(2))] if sometimes(pick, 4) else None
    sch.fission(a_loop(sch, pick), after)


def add_unit_loop(sch: Schedule, pick: Pick) -> None:
    sch.add_unit_loop(a_loop(sch, pick) if pick(2) else a_block(sch, pick))


def reorder_block_iter_var(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    order = list(range(len(sch.get_loops(block)) + sometimes(pick)))
    sch.reorder_block_iter_var(block, [order.pop(pick(len(order))) for _ in range(len(order))])


def transform_block_layout(sch: Schedule, pick: Pick) -> None:
    factor, inner = a_factor(pick), one_of(pick, (3, 4, 5, 6, 7, 8, 16))
    index_map: Callable[..., object] = one_of(
        pick,
        (
            lambda i: (i // factor, i % factor),
            lambda i: (i % factor, i // factor),
            lambda i: (i // 2 * 2 + i % 2,),
            lambda i, j: (j, i),
            lambda i, j: i * inner + j,
            lambda i, j: ((i * inner + j) // factor, (i * inner + j) % factor),
            lambda i, j: (i // factor, j, i % factor),
            lambda i, j: (i, 0, j),
            lambda i, j: (i + j, j),
            lambda i, j, k: (i * inner + j, k),
            lambda i, j, k: (k // factor, j, i, k % factor),
        ),
    )
    sch.transform_block_layout(a_block(sch, pick), index_map)


def parallel(sch: Schedule, pick: Pick) -> None:
    sch.parallel(a_loop(sch, pick))


def vectorize(sch: Schedule, pick: Pick) -> None:
    loops = loops_of(sch, pick)
    sch.vectorize(loops[-1] if loops and not sometimes(pick) else a_loop(sch, pick))


def unroll(sch: Schedule, pick: Pick) -> None:
    sch.unroll(a_loop(sch, pick))


def bind(sch: Schedule, pick: Pick) -> None:
    axes = ("blockIdx.x", "threadIdx.x", "threadIdx.y", "warp")
    sch.bind(a_loop(sch, pick), axes[pick(2)] if not sometimes(pick) else one_of(pick, axes))


def annotate(sch: Schedule, pick: Pick) -> None:
    target = a_loop(sch, pick) if pick(2) else a_block(sch, pick)
    sch.annotate(target, one_of(pick, ("note", "")), one_of(pick, (1, "x", {"a": [1.5, None]})))


def unannotate(sch: Schedule, pick: Pick) -> None:
    target = a_loop(sch, pick) if pick(2) else a_block(sch, pick)
    if not sometimes(pick):
        sch.annotate(target, "note", 1)
    sch.unannotate(target, "note")


def set_scope(sch: Schedule, pick: Pick) -> None:
    sch.set_scope(a_block(sch, pick), an_index(pick), a_scope(pick))


def storage_align(sch: Schedule, pick: Pick) -> None:
    factor = one_of(pick, (1, 2, 8, 8, 0) if sometimes(pick, 4) else (4, 8, 16))
    index, axis = an_index(pick), pick(4) - 2
    sch.storage_align(a_block(sch, pick), index, axis, factor, pick(factor + 1))


def cache_read(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    consumers = [a_block(sch, pick)] if sometimes(pick, 4) else None
    sch.cache_read(block, an_index(pick), a_scope(pick), consumers)


def cache_write(sch: Schedule, pick: Pick) -> None:
    sch.cache_write(a_block(sch, pick), pick(2) and an_index(pick), a_scope(pick))


def cache_inplace(sch: Schedule, pick: Pick) -> None:
    sch.cache_inplace(a_block(sch, pick), pick(2) and an_index(pick), a_scope(pick))


def cache_index(sch: Schedule, pick: Pick) -> None:
    sch.cache_index(a_block(sch, pick), a_scope(pick), one_of(pick, (0, 0, 0, 1, -1)))


def read_at(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    loops = list(sch.get_loops(block))
    loop = one_of(pick, loops) if loops and not sometimes(pick) else a_loop(sch, pick)
    sch.read_at(loop, block, an_index(pick), a_scope(pick))


def write_at(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    loops = list(sch.get_loops(block))
    loop = one_of(pick, loops) if loops and not sometimes(pick) else a_loop(sch, pick)
    sch.write_at(loop, block, pick(2) and an_index(pick), a_scope(pick))


LAYOUTS = (
    ("A", 0), ("Aa", 1), ("aA", 1), ("BA", 0), ("ABb", 1), ("BAb", 1), ("AaB", 1), ("BAba", 2),
    ("ABab", 2), ("CAB", 0), ("AaBCc", 2), ("AA", 0), ("Aab", 2),
)  # fmt: skip


def pack(sch: Schedule, pick: Pick) -> None:
    layout, count = one_of(pick, LAYOUTS)
    count += sometimes(pick, 32)
    factors = [a_factor(pick) for _ in range(count)]
    sch.pack(a_block(sch, pick), an_index(pick), layout, factors, a_scope(pick))


def transform_layout(sch: Schedule, pick: Pick) -> None:
    factor = a_factor(pick)
    index_map: Callable[..., object] = one_of(
        pick,
        (
            lambda i: (i // factor, i % factor),
            lambda i: i * 2 + 1,
            lambda i: 7 - i,
            lambda i, j: (j, i),
            lambda i, j: (i // factor, j, i % factor),
            lambda i, j: i * 8 + j,
            lambda i, j: (i + j, j),
            lambda i, j: (i, j // 2),
            lambda i, j, k: (k, i, j),
        ),
    )
    sch.transform_layout(
        a_block(sch, pick), (("read", "write")[pick(2)], an_index(pick)), index_map
    )


def reindex(sch: Schedule, pick: Pick) -> None:
    sch.reindex(a_block(sch, pick), (("read", "write")[pick(2)], an_index(pick)))


PLACES: tuple[Callable[..., object], ...] = (
    lambda i: (i % 4, i // 4), lambda i: 2 * i, lambda i, j: (j, i), lambda i, j: (i, j // 2),
    lambda i, j: (j // 3, i, j % 3), lambda i, j: i * 12 + j, lambda i, j, k: (i, j),
    lambda i, j, k: (j, k), lambda i, j, k: (k, j // 2, i, j % 2), lambda i, j, k, m: (m, k, j, i),
)  # fmt: skip


def reindex_cache_read(sch: Schedule, pick: Pick) -> None:
    sch.reindex_cache_read(a_block(sch, pick), an_index(pick), a_scope(pick), one_of(pick, PLACES))


def reindex_cache_write(sch: Schedule, pick: Pick) -> None:
    index = pick(2) and an_index(pick)
    sch.reindex_cache_write(a_block(sch, pick), index, a_scope(pick), one_of(pick, PLACES))


def prefetch(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    loops = list(sch.get_loops(block)) or [a_loop(sch, pick)]
    ahead = one_of(pick, loops) if pick(2) else None
    sch.prefetch(block, an_index(pick), one_of(pick, loops), ahead, pick(4))


def pad_einsum(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    count = len(find_block(sch.func, block).iters) + sometimes(pick)
    sch.pad_einsum(block, [a_factor(pick) for _ in range(count)])


def decompose_padding(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    loops = sch.get_loops(block)
    sch.decompose_padding(block, loops[pick(len(loops))] if loops else a_loop(sch, pick))


def rolling_buffer(sch: Schedule, pick: Pick) -> None:
    sch.rolling_buffer(a_block(sch, pick), pick(2) and an_index(pick))


def compute_at_and_roll(sch: Schedule, pick: Pick) -> None:
    """Put a block into a loop of a consumer and let it roll there, if there is such a place."""
    labels = [b.label for b in blocks_in(sch.original.body)]
    start = pick(len(labels))
    for position in [*range(start, len(labels)), *range(start)]:
        for level in range(3):
            trial = sch.copy()
            try:
                roll_at(trial, position, level)
            except ScheduleError:
                continue
            roll_at(sch, position, level)
            return


def roll_at(sch: Schedule, position: int, level: int) -> None:
    block = sch.get_block(position)
    for consumer in sch.get_consumers(block)[:1]:
        for loop in sch.get_loops(consumer)[level : level + 1]:
            sch.compute_at(block, loop)
            sch.rolling_buffer(block, 0)
            return
    raise ScheduleError("block {0} has no consumer in so many loops", block.name)


def compute_at(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    consumers = sch.get_consumers(block)
    if not consumers or sometimes(pick):
        sch.compute_at(block, a_loop(sch, pick))
        return
    loops = sch.get_loops(consumers[pick(len(consumers))])
    if loops:
        sch.compute_at(block, loops[pick(len(loops))])


def compute_at_a_sampled_loop(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    sch.compute_at(block, sch.sample_compute_location(block))


def reverse_compute_at(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    producers = sch.get_producers(block)
    if not producers or sometimes(pick):
        sch.reverse_compute_at(block, a_loop(sch, pick))
        return
    loops = sch.get_loops(producers[pick(len(producers))])
    if loops:
        sch.reverse_compute_at(block, loops[pick(len(loops))])


def swizzle(sch: Schedule, pick: Pick) -> None:
    axis, by = pick(3) - 1, pick(2) - sometimes(pick)
    rows = one_of(pick, (2, 4, 8, 6, 0)) if sometimes(pick, 4) else one_of(pick, (2, 4))
    sch.swizzle(a_block(sch, pick), an_index(pick), axis, by, rows, 1 + pick(4))


def a_shared_loop(sch: Schedule, pick: Pick) -> Var:
    """A loop around several statements; if there is none yet, one that a copy is put into."""
    block = a_block(sch, pick)
    loops = [v for v in sch.get_loops(block) if type(find_loop(sch.func, v).body) is Seq]
    if loops and not sometimes(pick):
        return loops[-1]
    copy = sch.cache_read(block, an_index(pick), "local")
    loop: Var = one_of(pick, sch.get_loops(block) or [a_loop(sch, pick)])
    sch.compute_at(copy, loop)
    return loop


def pipeline(sch: Schedule, pick: Pick) -> None:
    loop = a_shared_loop(sch, pick)
    body = find_loop(sch.func, loop).body
    count = len(body.stmts) if type(body) is Seq else 1
    stages = sorted(pick(3) for _ in range(count))
    if sometimes(pick, 4):
        stages.reverse()
    places = list(range(count))
    order = [places.pop(pick(len(places))) for _ in range(count)] if pick(2) else None
    sch.pipeline(loop, [s - min(stages) for s in stages], order)


def double_buffer(sch: Schedule, pick: Pick) -> None:
    loop = a_shared_loop(sch, pick)
    blocks = [b.label for b in blocks_in(find_loop(sch.func, loop))]
    made = [b for b in blocks if any(b in refs for refs in sch._refs)]
    sch.double_buffer(one_of(pick, made or [a_block(sch, pick)]), loop)


def compute_inline(sch: Schedule, pick: Pick) -> None:
    sch.compute_inline(a_block(sch, pick))


def reverse_compute_inline(sch: Schedule, pick: Pick) -> None:
    sch.reverse_compute_inline(a_block(sch, pick))


def decompose_reduction(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    loops = sch.get_loops(block)
    sch.decompose_reduction(block, loops[pick(len(loops))] if loops else a_loop(sch, pick))


def rfactor(sch: Schedule, pick: Pick) -> None:
    sch.rfactor(a_loop(sch, pick), one_of(pick, (0, 0, 1, 1, -1, -2, 2, 5)))


def split_reduction(sch: Schedule, pick: Pick) -> None:
    parts = one_of(pick, (2, 2, 3, 4, 1)) if pick(4) else sch.sample_categorical((2, 3))
    loops = loops_of(sch, pick)
    loop = loops[-1] if loops and not sometimes(pick, 4) else a_loop(sch, pick)
    sch.split_reduction(loop, parts, one_of(pick, (0, 0, 1, -1)), tree=bool(pick(2)))


def fuse_reduction_epilogue(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    consumers = sch.get_consumers(block)
    sch.fuse_reduction_epilogue(block, consumers[0] if consumers else a_block(sch, pick))


def blockize(sch: Schedule, pick: Pick) -> None:
    sch.blockize(a_loop(sch, pick))


def tensorize(sch: Schedule, pick: Pick) -> None:
    """Mostly a tile of two by two that is made for it."""
    if sometimes(pick, 4):
        name = one_of(pick, ("none", *intrin_names()))
        sch.tensorize(a_loop(sch, pick) if pick(2) else a_block(sch, pick), name)
        return
    blocks = [b for b in blocks_in(sch.func.body) if b.init is not None] if pick(8) else []
    block = referred(sch, one_of(pick, blocks).label) if blocks else a_block(sch, pick)
    loops = list(sch.get_loops(block))
    even = [v for v in loops if find_loop(sch.func, v).extent % 2 == 0]
    if len(even) < 2:
        raise ScheduleError("the block is in too few loops for a tile")
    chosen = [even.pop(pick(len(even))) for _ in range(2)]
    parts = [sch.split(v, factors=[None, 2]) for v in chosen]
    outer = [*(o for o, _ in parts), *(v for v in loops if v not in set(chosen))]
    sch.reorder(*outer, *(i for _, i in parts))
    found = find_block(sch.func, block)
    if found.init is not None:
        summed = [v for v in sch.get_loops(block) if v in feeding(found, IterKind.REDUCE)]
        sch.decompose_reduction(block, summed[0] if summed else one_of(pick, outer))
    for name in SMALL[:-1]:
        try:
            sch.tensorize(parts[0][1], name)
        except ScheduleError:
            continue
        return
    sch.tensorize(parts[0][1], SMALL[-1])


STEPS = (
    split, split, split, sampled_split, chosen_split, fuse, fuse, reorder, reorder, reorder, tile,
    partition, merge, merge, fission, add_unit_loop, reorder_block_iter_var, transform_block_layout,
    parallel, vectorize, unroll, bind, annotate, unannotate, set_scope, storage_align, cache_read,
    cache_write, cache_inplace, cache_index, read_at, write_at, pack, transform_layout, reindex,
    reindex_cache_read, reindex_cache_write, prefetch, rolling_buffer, compute_at_and_roll,
    compute_at, compute_at, compute_at_a_sampled_loop, reverse_compute_at, reverse_compute_at,
    compute_inline, reverse_compute_inline, decompose_reduction, rfactor, rfactor,
    fuse_reduction_epilogue, split_reduction, pad_einsum, decompose_padding, blockize, tensorize,
    pipeline, double_buffer, swizzle, work_on,
)  # fmt: skip


def apply_random_steps(
    sch: Schedule,
    pick: Pick,
    count: int,
    counts: Counter[str],
    steps: Sequence[Callable[[Schedule, Pick], None]] = STEPS,
) -> list[ScheduleError]:
    """Try `count` of the steps; `counts` learns which primitives were accepted.

    Gives the refusals.
    """
    refusals = []
    for _ in range(count):
        step = steps[pick(len(steps))]
        before = len(sch.trace)
        try:
            step(sch, pick)
        except ScheduleError as error:
            refusals.append(error)
        counts.update(s.op for s in sch.trace.steps[before:])
    return refusals
