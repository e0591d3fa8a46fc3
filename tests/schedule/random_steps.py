"""Random programs and random steps, driven by numbers that somebody picks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.find import blocks_in
from tilewright.tir import te
from tilewright.tir.ir import Expr, Func, Label, Var

Tensor: TypeAlias = Any
Pick = Callable[[int], int]
"""A number from 0 to below the given one."""
SIZES = (1, 2, 3, 4, 5, 6, 8)
FACTORS = (1, 2, 3, 4, 5, 8)


def a_program(pick: Pick) -> Func:
    """One to three stages, each reading the one before: maps, shifts, transposes, reductions."""
    dtype = ("int32", "float32")[pick(2)]
    shape = tuple(SIZES[pick(len(SIZES))] for _ in range(1 + pick(2)))
    first = te.placeholder(shape, dtype, name="A")
    params = [first]
    last: Tensor = first
    for k in range(1 + pick(3)):
        last = STAGES[pick(len(STAGES))](last, f"S{k}", pick, params)
    return te.func([*params, last], name="random")


def map_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    return te.compute(x.shape, lambda *i: x[i] * 2 + 1, name=name)


def two_reads(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    other = te.placeholder(x.shape, x.dtype, name=f"P{len(params)}")
    params.append(other)
    return te.compute(x.shape, lambda *i: te.maximum(x[i], other[i]) - x[i], name=name)


def shift_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """A stencil over the first dimension, with padding of zeros."""
    n = x.shape[0]

    def at(i: Expr, rest: tuple[Expr, ...]) -> Any:
        before = te.select(i > 0, x[(i - 1, *rest)], 0)
        after = te.select(i < n - 1, x[(i + 1, *rest)], 0)
        return before + x[(i, *rest)] - after

    return te.compute(x.shape, lambda i, *rest: at(i, rest), name=name)


def turn_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    shape = tuple(reversed(x.shape))
    return te.compute(shape, lambda *i: x[tuple(reversed(i))] + 3, name=name)


def reduce_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    r = te.reduce_axis(x.shape[-1], name=f"r{name}")
    reduce = (te.sum, te.max, te.min)[pick(3)]
    if len(x.shape) == 1:
        return te.compute((3,), lambda i: reduce(x[r] + i.astype(x.dtype), axis=r), name=name)
    return te.compute(x.shape[:-1], lambda *i: reduce(x[(*i, r)], axis=r), name=name)


def product_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    n = SIZES[pick(len(SIZES))]
    other = te.placeholder((x.shape[-1], n), x.dtype, name=f"P{len(params)}")
    params.append(other)
    r = te.reduce_axis(x.shape[-1], name=f"r{name}")
    shape = (*x.shape[:-1], n)
    return te.compute(
        shape, lambda *i: te.sum(x[(*i[:-1], r)] * other[r, i[-1]], axis=r), name=name
    )


def part_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """The first elements only, or every other one."""
    step = 1 + pick(2)
    n = max(1, x.shape[0] // step - pick(2))
    return te.compute((n, *x.shape[1:]), lambda i, *rest: x[(i * step, *rest)] - 1, name=name)


def window_stage(x: Tensor, name: str, pick: Pick, params: list[Tensor]) -> Tensor:
    """A convolution over the first dimension, without padding."""
    width = 1 + pick(min(3, x.shape[0]))
    r = te.reduce_axis(width, name=f"r{name}")
    shape = (x.shape[0] - width + 1, *x.shape[1:])
    return te.compute(shape, lambda i, *rest: te.sum(x[(i + r, *rest)], axis=r), name=name)


STAGES = (
    map_stage, two_reads, shift_stage, turn_stage, reduce_stage, product_stage, part_stage,
    window_stage,
)  # fmt: skip


def a_block(sch: Schedule, pick: Pick) -> Label:
    blocks = [b.label for b in blocks_in(sch.func.body)]
    label = blocks[pick(len(blocks))]
    original = [b.label for b in blocks_in(sch.original.body)]
    return sch.get_block(original.index(label)) if label in original else label


def a_loop(sch: Schedule, pick: Pick) -> Var:
    loops = sch.get_loops(a_block(sch, pick))
    if not loops:
        raise ScheduleError("the block is in no loop")
    return loops[pick(len(loops))]


def a_factor(pick: Pick) -> int:
    return FACTORS[pick(len(FACTORS))]


def split(sch: Schedule, pick: Pick) -> None:
    sch.split(a_loop(sch, pick), factors=[None, *(a_factor(pick) for _ in range(1 + pick(2)))])


def sampled_split(sch: Schedule, pick: Pick) -> None:
    loop = a_loop(sch, pick)
    sample = (sch.sample_tile, sch.sample_perfect_tile)[pick(2)]
    sch.split(loop, factors=sample(loop, 2 + pick(2), 4))


def fuse(sch: Schedule, pick: Pick) -> None:
    loops = sch.get_loops(a_block(sch, pick))
    start = pick(max(1, len(loops)))
    sch.fuse(*loops[start : start + 2 + pick(2)])


def reorder(sch: Schedule, pick: Pick) -> None:
    loops = list(sch.get_loops(a_block(sch, pick)))
    start = pick(max(1, len(loops)))
    some = loops[start : start + 2 + pick(3)]
    sch.reorder(*[some.pop(pick(len(some))) for _ in range(len(some))])


def tile(sch: Schedule, pick: Pick) -> None:
    sch.tile(a_block(sch, pick), [a_factor(pick) for _ in range(1 + pick(2))])


def partition(sch: Schedule, pick: Pick) -> None:
    sch.loop_partition(a_loop(sch, pick), None if pick(2) else 1 + pick(4))


def parallel(sch: Schedule, pick: Pick) -> None:
    sch.parallel(a_loop(sch, pick))


def vectorize(sch: Schedule, pick: Pick) -> None:
    sch.vectorize(sch.get_loops(a_block(sch, pick))[-1])


def unroll(sch: Schedule, pick: Pick) -> None:
    sch.unroll(a_loop(sch, pick))


def bind(sch: Schedule, pick: Pick) -> None:
    sch.bind(a_loop(sch, pick), ("blockIdx.x", "threadIdx.x")[pick(2)])


def cache_read(sch: Schedule, pick: Pick) -> None:
    sch.cache_read(a_block(sch, pick), pick(2), ("global", "local")[pick(2)])


def cache_write(sch: Schedule, pick: Pick) -> None:
    sch.cache_write(a_block(sch, pick), 0, "local")


def pack(sch: Schedule, pick: Pick) -> None:
    layout, count = (("BA", 0), ("ABb", 1), ("BAb", 1), ("BAba", 2), ("Aa", 1))[pick(5)]
    sch.pack(a_block(sch, pick), pick(2), layout, [a_factor(pick) for _ in range(count)])


def transform_layout(sch: Schedule, pick: Pick) -> None:
    factor = a_factor(pick)
    index_map: Callable[..., object] = (
        (lambda i: (i // factor, i % factor)),
        (lambda i, j: (j, i)),
        (lambda i, j: (i // factor, j, i % factor)),
    )[pick(3)]
    sch.transform_layout(a_block(sch, pick), (("read", "write")[pick(2)], 0), index_map)


def compute_at(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    consumers = sch.get_consumers(block)
    if consumers:
        loops = sch.get_loops(consumers[pick(len(consumers))])
        sch.compute_at(block, loops[pick(len(loops))])


def reverse_compute_at(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    producers = sch.get_producers(block)
    if producers:
        loops = sch.get_loops(producers[pick(len(producers))])
        sch.reverse_compute_at(block, loops[pick(len(loops))])


def compute_inline(sch: Schedule, pick: Pick) -> None:
    sch.compute_inline(a_block(sch, pick))


def reverse_compute_inline(sch: Schedule, pick: Pick) -> None:
    sch.reverse_compute_inline(a_block(sch, pick))


def decompose_reduction(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    loops = sch.get_loops(block)
    sch.decompose_reduction(block, loops[pick(len(loops))])


def rfactor(sch: Schedule, pick: Pick) -> None:
    sch.rfactor(a_loop(sch, pick), pick(2))


def fuse_reduction_epilogue(sch: Schedule, pick: Pick) -> None:
    block = a_block(sch, pick)
    consumers = sch.get_consumers(block)
    if consumers:
        sch.fuse_reduction_epilogue(block, consumers[0])


STEPS = (
    split, split, sampled_split, fuse, reorder, reorder, tile, partition, parallel, vectorize,
    unroll, bind, cache_read, cache_write, pack, transform_layout, compute_at, compute_at,
    reverse_compute_at, compute_inline, reverse_compute_inline, decompose_reduction, rfactor,
    fuse_reduction_epilogue,
)  # fmt: skip


def apply_random_steps(sch: Schedule, pick: Pick, count: int, counts: Counter[str]) -> None:
    for _ in range(count):
        step = STEPS[pick(len(STEPS))]
        before = len(sch.trace)
        try:
            step(sch, pick)
        except (ScheduleError, IndexError):  # refused, or nothing to pick from
            continue
        counts.update(s.op for s in sch.trace.steps[before:])
