"""Random steps, driven by numbers that somebody picks: mostly plausible, some with wrong arguments.

What a step is applied to is mostly of the kind that it is for (`random_targets.py`). Nothing here
looks at the conditions of a primitive: whatever it accepts must keep the meaning of the program,
and whatever it refuses must be a `ScheduleError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.base.errors import ScheduleError
from tilewright.schedule import IndexMap, Schedule
from tilewright.schedule.block_queries import feeding, has_reduction, writers_of
from tilewright.schedule.find import blocks_in, find_block, find_loop, loops_above
from tilewright.tir.instruction_set import instruction_names
from tilewright.tir.ir import Block, Dim, Expr, ForKind, If, IterKind, Label, Seq, Var

from .random_instructions import SMALL
from .random_stages import Pick
from .random_targets import (
    FACTORS,
    NoTarget,
    a_block,
    a_factor,
    a_loop,
    a_scope,
    a_shared_loop,
    an_input,
    an_output,
    computes_indices,
    from_any,
    is_guarded,
    is_inline,
    is_internal,
    is_plane,
    loops_of,
    of_rank,
    one_of,
    pads,
    reduces,
    referred,
    shares_a_loop,
    sometimes,
    updates,
)

Step: TypeAlias = Callable[[Schedule, Pick], None]
Lambda: TypeAlias = Callable[..., object]


def work_on(sch: Schedule, pick: Pick) -> None:
    sch.work_on(pick(len(sch.funcs) + sometimes(pick)))


def split(sch: Schedule, pick: Pick) -> None:
    factors: list[Dim | None] = [a_factor(sch, pick) for _ in range(1 + pick(2))]
    if not sometimes(pick):
        factors.insert(pick(len(factors) + 1) if sometimes(pick, 4) else 0, None)
    sch.split(a_loop(sch, pick), factors=factors, perfect=sometimes(pick, 4))


def sampled_split(sch: Schedule, pick: Pick) -> None:
    loop = a_loop(sch, pick)
    if sometimes(pick, 4):
        parts, extent = 2 + pick(2), find_loop(sch.func, loop).extent
        even = [f for f in FACTORS if isinstance(extent, int) and extent % f == 0]
        factor = one_of(pick, even) if even and not sometimes(pick, 8) else pick(5)
        place = pick(4) if sometimes(pick, 8) else 1 + pick(parts - 1)
        factors = sch.sample_partitioned_tile(loop, parts, place, factor)
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
    factors = [a_factor(sch, pick) for _ in range(1 + pick(2))]
    if pick(2):
        sch.tile(a_block(sch, pick), factors)
        return
    loops = loops_of(sch, pick)
    start = pick(max(1, len(loops)))
    sch.tile(loops[start : start + len(factors)], factors)


def partition(sch: Schedule, pick: Pick) -> None:
    if pick(2):
        sch.loop_partition(a_loop(sch, pick, is_guarded))
        return
    loop = a_loop(sch, pick)
    extent = find_loop(sch.func, loop).extent
    inside = isinstance(extent, int) and extent > 1 and not sometimes(pick, 8)
    sch.loop_partition(loop, 1 + pick(int(extent) - 1 if inside else 4))  # type: ignore[arg-type]


def merge(sch: Schedule, pick: Pick) -> None:
    blocks = [b.label for b in blocks_in(sch.func.body)]
    start = pick(max(1, len(blocks) - (not sometimes(pick, 8))))
    chosen = blocks[start : start + 2 + sometimes(pick, 4)]
    chains = [list(sch.get_loops(referred(sch, label))) for label in chosen]
    if sometimes(pick, 8) or not chains or not all(chains):
        sch.merge(*[a_loop(sch, pick) for _ in range(2)])
        return
    level = pick(min(map(len, chains)))
    sch.merge(*[loops[level] for loops in chains])


def fission(sch: Schedule, pick: Pick) -> None:
    after = [a_block(sch, pick) for _ in range(1 + pick(2))] if sometimes(pick, 4) else None
    sch.fission(a_loop(sch, pick) if sometimes(pick, 4) else a_shared_loop(sch, pick), after)


def add_unit_loop(sch: Schedule, pick: Pick) -> None:
    sch.add_unit_loop(a_loop(sch, pick) if pick(2) else a_block(sch, pick))


def reorder_block_iter_var(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    order = list(range(len(sch.get_loops(block)) + sometimes(pick)))
    sch.reorder_block_iter_var(block, [order.pop(pick(len(order))) for _ in range(len(order))])


def transform_block_layout(sch: Schedule, pick: Pick) -> None:
    factor, inner = a_factor(sch, pick), one_of(pick, (3, 4, 5, 6, 7, 8, 16))
    maps: dict[int, tuple[Lambda, ...]] = {
        1: (
            lambda i: (i // factor, i % factor),
            lambda i: (i % factor, i // factor),
            lambda i: (i // 2 * 2 + i % 2,),
        ),
        2: (
            lambda i, j: (j, i),
            lambda i, j: i * inner + j,
            lambda i, j: ((i * inner + j) // factor, (i * inner + j) % factor),
            lambda i, j: (i // factor, j, i % factor),
            lambda i, j: (i, 0, j),
            lambda i, j: (i + j, j),
        ),
        3: (
            lambda i, j, k: (i * inner + j, k),
            lambda i, j, k: (k // factor, j, i, k % factor),
        ),
    }
    rank = 1 + pick(3)
    sch.transform_block_layout(a_block(sch, pick, of_rank(rank)), one_of(pick, maps[rank]))


def parallel(sch: Schedule, pick: Pick) -> None:
    sch.parallel(a_loop(sch, pick))


def vectorize(sch: Schedule, pick: Pick) -> None:
    loops = loops_of(sch, pick)
    sch.vectorize(loops[-1] if loops and not sometimes(pick) else a_loop(sch, pick))


def unroll(sch: Schedule, pick: Pick) -> None:
    sch.unroll(a_loop(sch, pick))


def serial(sch: Schedule, pick: Pick) -> None:
    """Mostly of a loop that is not; if there is none around a block, of one that is made so."""
    loops = loops_of(sch, pick)
    others = [v for v in loops if find_loop(sch.func, v).kind is not ForKind.SERIAL]
    if others and not sometimes(pick):
        sch.serial(one_of(pick, others))
        return
    loop = one_of(pick, loops) if loops else a_loop(sch, pick)
    if not sometimes(pick):
        (sch.parallel, sch.vectorize, sch.unroll)[pick(3)](loop)
    sch.serial(loop)


def bind(sch: Schedule, pick: Pick) -> None:
    axes = ("blockIdx.x", "threadIdx.x", "threadIdx.y", "warp")
    sch.bind(a_loop(sch, pick), axes[pick(2)] if not sometimes(pick) else one_of(pick, axes))


def annotate(sch: Schedule, pick: Pick) -> None:
    target = a_loop(sch, pick) if pick(2) else a_block(sch, pick)
    sch.annotate(target, one_of(pick, ("note", "")), from_any(pick, (1, "x", {"a": [1.5, None]})))


def unannotate(sch: Schedule, pick: Pick) -> None:
    target = a_loop(sch, pick) if pick(2) else a_block(sch, pick)
    if not sometimes(pick):
        sch.annotate(target, "note", 1)
    sch.unannotate(target, "note")


def set_scope(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick, is_internal)
    sch.set_scope(block, an_output(sch, pick, block), a_scope(pick))


def storage_align(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick, is_plane)
    factor = one_of(pick, (1, 2, 8, 8, 0) if sometimes(pick, 4) else (4, 8, 16))
    axis = pick(4) - 2 if sometimes(pick, 4) else -2
    offset = pick(factor + 1) if sometimes(pick, 8) else pick(max(1, factor))
    sch.storage_align(block, an_output(sch, pick, block), axis, factor, offset)


def distinguish_reads(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    sch.distinguish_reads(block, an_input(sch, pick, block))


def compute_ahead(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    sch.compute_ahead(block, an_input(sch, pick, block))


def distinguish_updates(sch: Schedule, pick: Pick) -> None:
    sch.distinguish_updates(a_block(sch, pick), pick(2) and pick(2))


def make_blocks(sch: Schedule, pick: Pick) -> None:
    sch.make_blocks()


def stream(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    sch.stream(block, an_output(sch, pick, block))


def cache_read(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    consumers = [a_block(sch, pick)] if sometimes(pick, 4) else None
    sch.cache_read(block, an_input(sch, pick, block), a_scope(pick), consumers)


def cache_write(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    sch.cache_write(block, an_output(sch, pick, block), a_scope(pick))


def cache_inplace(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick, updates)
    sch.cache_inplace(block, pick(2) and an_output(sch, pick, block), a_scope(pick))


def cache_index(sch: Schedule, pick: Pick) -> None:
    threshold = one_of(pick, (0, 0, 0, 0, 0, 0, 1, -1))
    sch.cache_index(a_block(sch, pick, computes_indices), a_scope(pick), threshold)


def read_at(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    loops = list(sch.get_loops(block))
    loop = one_of(pick, loops) if loops and not sometimes(pick) else a_loop(sch, pick)
    sch.read_at(loop, block, an_input(sch, pick, block), a_scope(pick))


def write_at(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    loops = list(sch.get_loops(block))
    loop = one_of(pick, loops) if loops and not sometimes(pick) else a_loop(sch, pick)
    sch.write_at(loop, block, an_output(sch, pick, block), a_scope(pick))


LAYOUTS = (
    ("A", 0), ("Aa", 1), ("aA", 1), ("BA", 0), ("ABb", 1), ("BAb", 1), ("AaB", 1), ("BAba", 2),
    ("ABab", 2), ("CAB", 0), ("AaBCc", 2), ("AA", 0), ("Aab", 2),
)  # fmt: skip


def pack(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    index = an_input(sch, pick, block)
    buffers = list(dict.fromkeys(r.buffer for r in find_block(sch.func, block).reads))
    rank = len(buffers[index].shape) if 0 <= index < len(buffers) else 1
    fitting = [x for x in LAYOUTS if len({c for c in x[0] if c.isupper()}) == rank]
    layout, count = one_of(pick, LAYOUTS if sometimes(pick, 8) or not fitting else fitting)
    count += sometimes(pick, 32)
    sch.pack(block, index, layout, [a_factor(sch, pick) for _ in range(count)], a_scope(pick))


def transform_layout(sch: Schedule, pick: Pick) -> None:
    factor = a_factor(sch, pick)
    maps: dict[int, tuple[Lambda, ...]] = {
        1: (lambda i: (i // factor, i % factor), lambda i: i * 2 + 1, lambda i: 7 - i),
        2: (
            lambda i, j: (j, i),
            lambda i, j: (i // factor, j, i % factor),
            lambda i, j: i * 8 + j,
            lambda i, j: (i + j, j),
            lambda i, j: (i, j // 2),
            lambda i, j: i,
        ),
        3: (lambda i, j, k: (k, i, j), lambda i, j, k: (i + 2 * k, j)),
    }
    block = a_block(sch, pick, is_internal)
    side = ("read", "write")[pick(2)]
    found = find_block(sch.func, block)
    index = an_input(sch, pick, block) if side == "read" else an_output(sch, pick, block)
    buffers = list(dict.fromkeys(r.buffer for r in (found.reads if pick(2) else found.writes)))
    rank = len(buffers[index].shape) if 0 <= index < len(buffers) else 1
    rank = rank if rank in maps and not sometimes(pick, 8) else 1 + pick(3)
    sch.transform_layout(block, (side, index), one_of(pick, maps[rank]))


def join_block(sch: Schedule, pick: Pick) -> None:
    """Take adjacent iteration variables of a block as one."""
    block = a_block(sch, pick, lambda _, b: len(b.iters) > 1)
    sizes = [i.extent for i in find_block(sch.func, block).iters]
    sch.transform_block_layout(block, joining(pick, sizes))


def join_layout(sch: Schedule, pick: Pick) -> None:
    """Take adjacent dimensions of an internal buffer as one."""
    block = a_block(sch, pick, is_plane)
    sch.transform_layout(block, ("write", 0), joining(pick, written_shape(sch, block)))


def join_tile(sch: Schedule, pick: Pick) -> None:
    """Take adjacent dimensions as one in a block, in a copy that it writes, and behind that."""
    block = a_block(sch, pick, lambda _, b: any(len(r.buffer.shape) > 1 for r in b.writes[:1]))
    shape = written_shape(sch, block)
    join = joining(pick, shape)
    copy = sch.cache_write(block, 0, a_scope(pick))
    sch.transform_block_layout(copy, join)
    if pick(4):
        sch.transform_layout(block, ("write", 0), join)
    rest = tuple(Var(f"r{k}") for k in range(len(sch.get_loops(block)) - len(shape)))
    if pick(4):
        whole = IndexMap((*join.inputs, *rest), (*join.outputs, *rest))
        sch.transform_block_layout(block, whole)
    outer, _ = sch.split(one_of(pick, sch.get_loops(block)), factors=[None, one_of(pick, FACTORS)])
    if pick(2):
        sch.parallel(outer)
    if pick(4):
        sch.reverse_compute_at(copy, outer)


def written_shape(sch: Schedule, block: Label) -> tuple[Dim, ...]:
    """The shape of the first buffer that a block writes."""
    writes = find_block(sch.func, block).writes
    if not writes:
        raise NoTarget
    return writes[0].buffer.shape


def joining(pick: Pick, sizes: Sequence[Dim]) -> IndexMap:
    """A map that takes some adjacent indices as one, mostly as many as there are of them."""
    rank = len(sizes)
    if rank < 2 or not all(isinstance(n, int) for n in sizes):
        raise NoTarget
    start = pick(rank - 1)
    stop = min(rank, start + 2 + sometimes(pick, 4))
    more = sometimes(pick)
    inputs = tuple(Var(f"i{d}") for d in range(rank))
    number: Expr = inputs[start]
    for d in range(start + 1, stop):
        number = number * (sizes[d] + more) + inputs[d]
    return IndexMap(inputs, (*inputs[:start], number, *inputs[stop:]))


def reindex(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    if pick(2):
        sch.reindex(block, ("read", an_input(sch, pick, block)))
    else:
        sch.reindex(block, ("write", an_output(sch, pick, block)))


PLACES: dict[int, tuple[Lambda, ...]] = {
    1: (lambda i: (i % 4, i // 4), lambda i: 2 * i),
    2: (
        lambda i, j: (j, i), lambda i, j: (i, j // 2), lambda i, j: (j // 3, i, j % 3),
        lambda i, j: i * 12 + j, lambda i, j: i + j,
    ),
    3: (lambda i, j, k: (i, j), lambda i, j, k: (j, k), lambda i, j, k: (k, j // 2, i, j % 2)),
    4: (lambda i, j, k, m: (m, k, j, i), lambda i, j, k, m: (i + k, j + m)),
}  # fmt: skip


def reindex_cache_read(sch: Schedule, pick: Pick) -> None:
    rank = 1 + pick(4)
    block = a_block(sch, pick, of_rank(rank))
    index = an_input(sch, pick, block)
    sch.reindex_cache_read(block, index, a_scope(pick), one_of(pick, PLACES[rank]))


def reindex_cache_write(sch: Schedule, pick: Pick) -> None:
    rank = 1 + pick(4)
    block = a_block(sch, pick, of_rank(rank))
    index = an_output(sch, pick, block)
    sch.reindex_cache_write(block, index, a_scope(pick), one_of(pick, PLACES[rank]))


def prefetch(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    loops = list(sch.get_loops(block)) or [a_loop(sch, pick)]
    ahead = one_of(pick, loops) if pick(2) else None
    sch.prefetch(block, an_input(sch, pick, block), one_of(pick, loops), ahead, pick(4))


def pad_einsum(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick, reduces)
    count = len(find_block(sch.func, block).iters) + sometimes(pick)
    sch.pad_einsum(block, [a_factor(sch, pick) for _ in range(count)])


def decompose_padding(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick, pads)
    loops = sch.get_loops(block)
    sch.decompose_padding(block, loops[pick(len(loops))] if loops else a_loop(sch, pick))


def winograd(sch: Schedule, pick: Pick) -> None:
    sch.winograd(a_block(sch, pick, reduces), 2 + pick(3))


def rolling_buffer(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick, shares_a_loop)
    output = an_output(sch, pick, block)
    if sometimes(pick):
        sch.rolling_buffer(block, output, loop=a_loop(sch, pick))
    else:
        sch.rolling_buffer(block, output)


def compute_at_and_roll(sch: Schedule, pick: Pick) -> None:
    """Put a block into a loop of a consumer and let it roll there, if there is such a place."""
    labels = [b.label for b in blocks_in(sch.original.body)]
    start = pick(max(1, len(labels)))
    for position in [*range(start, len(labels)), *range(start)]:
        for level in range(3):
            trial = sch.copy()
            try:
                roll_at(trial, position, level)
            except (ScheduleError, NoTarget):
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
    raise NoTarget


def compute_at(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick, is_internal)
    consumers = sch.get_consumers(block)
    if not consumers or sometimes(pick):
        sch.compute_at(block, a_loop(sch, pick))
        return
    loops = sch.get_loops(consumers[pick(len(consumers))])
    if loops:
        sch.compute_at(block, loops[pick(len(loops))])


def compute_at_a_sampled_loop(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick, is_internal)
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
    block = a_block(sch, pick, is_plane)
    axis, by = ((1, 0), (0, 1), (-1, 0), (2, -1), (1, 1))[pick(5)]
    rows = one_of(pick, (2, 4, 8, 6, 0)) if sometimes(pick, 4) else one_of(pick, (2, 4))
    sch.swizzle(block, an_output(sch, pick, block), axis, by, rows, 1 + pick(4))


def pipeline(sch: Schedule, pick: Pick) -> None:
    loop = a_shared_loop(sch, pick)
    body = find_loop(sch.func, loop).body
    count = len(body.stmts) if type(body) is Seq else 1
    stages = sorted(pick(3) for _ in range(count))
    if max(stages) == min(stages) and not sometimes(pick, 4):
        stages[-1] += 1
    if sometimes(pick, 4):
        stages.reverse()
    places = list(range(count))
    order = [places.pop(pick(len(places))) for _ in range(count)] if pick(2) else None
    versions = 1 + pick(3) if sometimes(pick, 3) else 1
    sch.pipeline(loop, [s - min(stages) for s in stages], order, versions)


def double_buffer(sch: Schedule, pick: Pick) -> None:
    loop = a_shared_loop(sch, pick)
    blocks = [b.label for b in blocks_in(find_loop(sch.func, loop))]
    made = [b for b in blocks if any(b is v for v in sch._outputs.values)]
    sch.double_buffer(one_of(pick, made or [a_block(sch, pick)]), loop)


def compute_inline(sch: Schedule, pick: Pick) -> None:
    sch.compute_inline(a_block(sch, pick, is_inline))


def reverse_compute_inline(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick, is_inline)
    consumers = sch.get_consumers(block)
    sch.reverse_compute_inline(consumers[0] if consumers and pick(4) else block)


def decompose_reduction(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick, reduces)
    loops = sch.get_loops(block)
    sch.decompose_reduction(block, loops[pick(len(loops))] if loops else a_loop(sch, pick))


def merge_reduction(sch: Schedule, pick: Pick) -> None:
    """Mostly of an init that was split off; where there is none, of one that this does."""
    apart = [b for b in blocks_in(sch.func.body) if has_reduction(b) and b.init is None]
    if apart and not sometimes(pick, 8):
        block = one_of(pick, apart)
        inits = [b for b in writers_of(sch.func, block.writes[0].buffer) if not has_reduction(b)]
        if not inits:
            raise NoTarget
        sch.merge_reduction(referred(sch, one_of(pick, inits).label), referred(sch, block.label))
        return
    label = a_block(sch, pick, reduces)
    loops = [v for v in sch.get_loops(label) if pick(2)] or [a_loop(sch, pick)]
    init = sch.decompose_reduction(label, loops[0])
    if pick(2):
        one_of(pick, (split, fuse, reorder, fission, fission))(sch, pick)
    sch.merge_reduction(init, a_block(sch, pick) if sometimes(pick) else label)


def select_terms(sch: Schedule, pick: Pick) -> None:
    guarded = [b for b in blocks_in(sch.func.body) if has_reduction(b) and type(b.body) is If]
    block = one_of(pick, guarded).label if guarded else a_block(sch, pick, reduces)
    sch.select_terms(referred(sch, block) if guarded else block)


def rfactor(sch: Schedule, pick: Pick) -> None:
    sch.rfactor(a_loop(sch, pick, reduces), one_of(pick, (0, 0, 1, 1, -1, -2, 2, 5)))


def split_reduction(sch: Schedule, pick: Pick) -> None:
    parts: Dim = one_of(pick, (2, 2, 3, 4, 1)) if pick(4) else sch.sample_categorical((2, 3))
    loops = loops_of(sch, pick, reduces)
    loop = loops[-1] if loops and not sometimes(pick, 4) else a_loop(sch, pick)
    sch.split_reduction(loop, parts, one_of(pick, (0, 0, 1, -1)), tree=bool(pick(2)))


def online_softmax(sch: Schedule, pick: Pick) -> None:
    _in_pieces(sch, pick, sch.online_softmax)


def online_variance(sch: Schedule, pick: Pick) -> None:
    _in_pieces(sch, pick, sch.online_variance)


def locate_extremum(sch: Schedule, pick: Pick) -> None:
    """Mostly of a block of two results."""
    found = [b.label for b in blocks_in(sch.func.body) if reduces(sch, b) and len(b.writes) > 1]
    label = one_of(pick, found) if found and not sometimes(pick, 8) else a_block(sch, pick)
    sch.locate_extremum(label, one_of(pick, (None, 1, 2, 3, 4, 5)))


def _in_pieces(sch: Schedule, pick: Pick, step: Callable[[Var], tuple[Label, ...]]) -> None:
    """Mostly the outer part of a loop that is split for it."""
    loops = loops_of(sch, pick, lambda s, b: reduces(s, b) and len(b.reads) > 2)
    if not loops or sometimes(pick, 4):
        step(a_loop(sch, pick, reduces))
        return
    size: Dim = one_of(pick, (2, 3, 4, 5)) if pick(4) else sch.sample_categorical((2, 3))
    outer, _ = sch.split(loops[-1], factors=[None, size])
    first, *_, part = step(outer)
    if pick(2):
        sch.reverse_compute_at(part, one_of(pick, sch.get_loops(first)))


def online_attention(sch: Schedule, pick: Pick) -> None:
    """Have a sum of exponentials and those that they weight take pieces, mostly of one length."""
    sums = [b for b in blocks_in(sch.func.body) if reduces(sch, b) and sums_exponentials(sch, b)]
    if not sums:
        online_softmax(sch, pick)
        return
    exps = sch.get_producers(referred(sch, sums[0].label))[0]
    for share in sch.get_consumers(exps):
        if not has_reduction(find_block(sch.func, share)) and sch.get_consumers(share):
            second = sch.get_consumers(share)[0]
            sch.compute_inline(share)
            sch.hoist_factor(second)
    readers = [b for b in sch.get_consumers(exps) if sch.get_loops(b)]
    size: Dim = one_of(pick, (2, 3, 4, 5)) if pick(4) else sch.sample_categorical((2, 3))
    outer = []
    for label in readers:
        length = size if pick(12) else 2
        outer.append(sch.split(sch.get_loops(label)[-1], factors=[None, length])[0])
    if not outer:
        return
    made = sch.online_softmax(outer[0], outer[1:])
    if pick(2):
        loop = one_of(pick, sch.get_loops(made[0]))
        for label in (exps, *made[2:]):
            sch.reverse_compute_at(label, loop)


def sums_exponentials(sch: Schedule, block: Block) -> bool:
    """Whether it sums what one block computes that several read, or something like it."""
    read = {r.buffer for r in block.reads} - {r.buffer for r in block.writes}
    writers = [b for b in blocks_in(sch.func.body) if read & {r.buffer for r in b.writes}]
    return (
        len(read) == len(writers) == 1
        and not has_reduction(writers[0])
        and len(writers[0].reads) > 1
    )


def hoist_factor(sch: Schedule, pick: Pick) -> None:
    sch.hoist_factor(a_block(sch, pick, reduces))


def expand_reduction(sch: Schedule, pick: Pick) -> None:
    sch.expand_reduction(a_block(sch, pick, reduces))


def fuse_reduction_epilogue(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick, lambda s, b: reduces(s, b) and is_internal(s, b))
    consumers = sch.get_consumers(block)
    sch.fuse_reduction_epilogue(block, consumers[0] if consumers else a_block(sch, pick))


def blockize(sch: Schedule, pick: Pick) -> None:
    sch.blockize(a_loop(sch, pick))


def is_even(sch: Schedule, loop: Var) -> bool:
    extent = find_loop(sch.func, loop).extent
    return isinstance(extent, int) and extent > 0 and extent % 2 == 0


def is_tiled(sch: Schedule, block: Block) -> bool:
    """Whether it reduces, in loops of even extents."""
    above = loops_above(sch.func, block.label)
    return reduces(sch, block) and sum(is_even(sch, s.var) for s in above) > 1


def tensorize(sch: Schedule, pick: Pick) -> None:
    """Mostly a tile of two by two that is made for it."""
    if sometimes(pick, 4):
        name = one_of(pick, ("none", *instruction_names()))
        sch.tensorize(a_loop(sch, pick) if pick(2) else a_block(sch, pick), name)
        return
    block = a_block(sch, pick, is_tiled)
    loops = list(sch.get_loops(block))
    even = [v for v in loops if is_even(sch, v)]
    if len(even) < 2:
        raise NoTarget
    found = find_block(sch.func, block)
    spatial = [v for v in even if v in feeding(found, IterKind.SPATIAL)]
    if len(spatial) > 1 and not sometimes(pick, 4):
        chosen = spatial[-2:]
    else:
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


STEPS: tuple[Step, ...] = (
    split, split, split, sampled_split, chosen_split, fuse, fuse, reorder, reorder, reorder, tile,
    partition, merge, merge, fission, add_unit_loop, reorder_block_iter_var, transform_block_layout,
    parallel, vectorize, unroll, serial, bind, annotate, unannotate, set_scope, storage_align,
    stream, cache_read, cache_write, cache_inplace, cache_index,
    distinguish_reads, distinguish_updates, compute_ahead, read_at, write_at, pack,
    transform_layout, join_block, join_layout, join_tile, reindex,
    reindex_cache_read, reindex_cache_write, prefetch, rolling_buffer, compute_at_and_roll,
    compute_at, compute_at, compute_at_a_sampled_loop, reverse_compute_at, reverse_compute_at,
    compute_inline, reverse_compute_inline, decompose_reduction, merge_reduction, select_terms,
    rfactor, rfactor, fuse_reduction_epilogue, split_reduction, online_softmax, online_variance,
    hoist_factor, locate_extremum, expand_reduction,
    pad_einsum, decompose_padding, make_blocks, blockize, tensorize, pipeline, double_buffer,
    swizzle, work_on, winograd,
)  # fmt: skip
