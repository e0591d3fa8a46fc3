"""Random schedules for GPUs: programs after random steps, bound to axes in some way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.block_queries import feeding
from tilewright.schedule.find import blocks_in, find_block, find_loop, loops_above
from tilewright.tir.equality import flat
from tilewright.tir.ir import Block, For, ForKind, Func, IterKind, Label, Stmt, Var
from tilewright.tir.visit import walk

from ...schedule.random_cases import MOST_VISITS, Tally, a_case, apply_random_steps, visits
from ...schedule.random_stages import Pick
from ...schedule.random_targets import NoTarget, a_block, an_input, one_of, referred

BindingStep: TypeAlias = Callable[[Schedule, Pick], None]
MOST_STEPS = 12
AXES = ("blockIdx.x", "threadIdx.x", "threadIdx.y", "blockIdx.y")
EXTENTS = (2, 3, 8, 32, 40)
"""Threads that the loop of a phase is split into."""


def a_bound_program(seed: int, tally: Tally | None = None) -> Func:
    """A random program with a random schedule, bound to axes of a GPU where that is possible.

    `tally` counts the steps before the bindings.
    """
    rng = np.random.default_rng(seed)

    def pick(n: int) -> int:
        return int(rng.integers(n))

    func, steps = a_case(pick)
    sch, _ = apply_random_steps(
        Schedule(func, seed=seed), pick, pick(MOST_STEPS), tally or Tally(), steps
    )
    for block in blocks_in(sch.func.body):
        sch = _attempted(sch, partial(_in_order, referred(sch, block.label)), pick)
    for _ in range(pick(MOST_STEPS)):
        sch = _attempted(sch, one_of(pick, STEPS), pick)
    return _bound_at_all(sch, pick).func


def threads_of(stmt: Stmt) -> dict[str, int]:
    """The extents of the axes that are bound in a statement."""
    return {
        n.thread: n.extent
        for n in walk(stmt)
        if type(n) is For and n.thread is not None and isinstance(n.extent, int)
    }


def _attempted(sch: Schedule, step: BindingStep, pick: Pick) -> Schedule:
    """`sch` after a step, or as it is where that is refused or makes it too large."""
    trial = sch.copy()
    try:
        step(trial, pick)
    except (ScheduleError, NoTarget):
        return sch
    return sch if visits(trial.func.body) > MOST_VISITS else trial


def _bound_at_all(sch: Schedule, pick: Pick) -> Schedule:
    """`sch` with a loop over threads in each nest, as far as possible."""
    for root in flat(sch.func.body):
        first = next(blocks_in(root), None)
        if first is None or threads_of(root):
            continue
        block, before = referred(sch, first.label), sch
        for n in range(len(loops_above(sch.func, first.label))):
            if sch is before:
                sch = _attempted(sch, partial(_bind_to_threads, block, n), pick)
        if sch is before:
            sch = _attempted(sch, partial(_bind_a_new_loop, block), pick)
    return sch


def _in_order(block: Label, sch: Schedule, _: Pick) -> None:
    for loop in sch.get_loops(block):
        if find_loop(sch.func, loop).kind is ForKind.PARALLEL:
            sch.serial(loop)


def _bind_to_threads(block: Label, n: int, sch: Schedule, _: Pick) -> None:
    sch.bind(sch.get_loops(block)[n], AXES[1])


def _bind_a_new_loop(block: Label, sch: Schedule, _: Pick) -> None:
    sch.bind(sch.add_unit_loop(block), AXES[1])


def bind(sch: Schedule, pick: Pick) -> None:
    loop = one_of(pick, [v for v in sch.get_loops(a_block(sch, pick)) if not _is_bound(sch, v)])
    sch.bind(loop, AXES[pick(2) if pick(3) else pick(4)])


def bind_a_part(sch: Schedule, pick: Pick) -> None:
    """Bind the inner part of a loop to threads, and perhaps the outer one to blocks."""
    loop = one_of(pick, [v for v in sch.get_loops(a_block(sch, pick)) if not _is_bound(sch, v)])
    outer, inner = sch.split(loop, factors=[None, one_of(pick, EXTENTS)])
    sch.bind(inner, AXES[1])
    if pick(2):
        sch.bind(outer, AXES[0])


def set_scope(sch: Schedule, pick: Pick) -> None:
    """Of what a launch keeps for itself."""
    block = a_block(sch, pick, _is_of_a_launch)
    sch.set_scope(block, 0, ("shared", "local")[pick(2)])


def _is_of_a_launch(sch: Schedule, block: Block) -> bool:
    """Whether what it writes is used in its nest only."""
    written = {r.buffer for r in block.writes}
    users = [root for root in flat(sch.func.body) if not written.isdisjoint(walk(root))]
    return len(users) == 1 and written.isdisjoint(sch.func.params)


def copy_to_shared(sch: Schedule, pick: Pick) -> None:
    """Copy what a block reads to shared memory, by the threads that it is computed by."""
    block = a_block(sch, pick)
    loops = sch.get_loops(block)
    copy = sch.cache_read(block, an_input(sch, pick, block), "shared")
    at = one_of(pick, loops)
    sch.compute_at(copy, at)
    threads = threads_of(find_loop(sch.func, at).body).get(AXES[1]) or one_of(pick, EXTENTS)
    inside = [v for v in sch.get_loops(copy) if v not in set(loops)]
    _, t = sch.split(sch.fuse(*inside), factors=[None, threads])
    sch.bind(t, AXES[1])


def reduce_by_threads(sch: Schedule, pick: Pick) -> None:
    """Add up in parts by threads, which a last loop combines."""
    block = a_block(sch, pick, lambda _, b: b.init is not None)
    found = find_block(sch.func, block)
    summed = feeding(found, IterKind.REDUCE)
    loop = one_of(pick, [v for v in sch.get_loops(block) if v in summed])
    _, inner = sch.split(loop, factors=[None, one_of(pick, EXTENTS)])
    part = sch.rfactor(inner, 0)
    sch.set_scope(part, 0, "shared")
    sch.bind(sch.get_loops(part)[-1], AXES[1])
    if pick(2):
        sch.compute_at(part, one_of(pick, sch.get_loops(block)))


def _is_bound(sch: Schedule, loop: Var) -> bool:
    return find_loop(sch.func, loop).thread is not None


STEPS: tuple[BindingStep, ...] = (
    bind, bind, bind_a_part, set_scope, set_scope, copy_to_shared, copy_to_shared,
    reduce_by_threads,
)  # fmt: skip
