"""Candidates of GPU sketches, and what the emulator and the estimate count of programs."""

from __future__ import annotations

import numpy as np

from tilewright.autotune.model.cuda.counts import LaunchCounts, count
from tilewright.autotune.model.profile import profile
from tilewright.autotune.search.sketch import Sketch
from tilewright.base import dtypes
from tilewright.codegen.cuda.emulate import emulate
from tilewright.codegen.lower import lower
from tilewright.codegen.passes.launches import launches_of
from tilewright.schedule import Schedule
from tilewright.target import CudaTarget
from tilewright.tir.ir import Func, as_expr

from ..codegen.cuda.schedules import matmul_func
from ..codegen.machinery import random_arguments

TARGET = CudaTarget.named("sm_90a")
NAMES = (
    "global_requests",
    "sectors_read",
    "sectors_written",
    "shared_requests",
    "wavefronts",
    "shuffles",
    "barriers",
    "operations",
)
Numbers = dict[str, float]


def emulated(func: Func) -> list[Numbers]:
    """What the emulator counts of each launch of a scheduled program."""
    lowered = lower(func, TARGET)
    found = emulate(lowered, *random_arguments(func))
    assert not found.faults, "\n".join(map(str, found.faults))
    launches = [dict.fromkeys(NAMES, 0.0) for _ in launches_of(lowered)]
    for c in found.counts:
        total = launches[c.launch]
        for name in NAMES:
            if name == "operations":
                operations = c.counts.operations
                total[name] += sum(n for d, n in operations.items() if dtypes.is_float(d))
            else:
                total[name] += getattr(c.counts, name)
    return launches


def estimated(func: Func) -> list[Numbers]:
    """What the estimate counts of each launch of a scheduled program."""
    launches = count(profile(func), np.zeros((1, 0), dtype=np.int64))
    return [numbers(launch, 0) for launch in launches]


def numbers(launch: LaunchCounts, row: int) -> Numbers:
    """The counts of a row, barriers of warps among those of blocks."""
    columns = {name: np.asarray(column) for name, column in vars(launch.counts).items()}
    found = {name: float(c[row] if c.ndim else c) for name, c in columns.items()}
    found["barriers"] += found.pop("warp_barriers")
    return {name: found[name] for name in NAMES}


def scheduled(func: Func, sketch: Sketch, row: np.ndarray) -> Func:
    """A candidate as a program."""
    return sketch.trace.with_row(tuple(row.tolist())).apply(func).func


def tiled_matmul(n: int, m: int, k: int) -> Sketch:
    """A product by tiles in shared memory, whose sizes are open.

    The decisions are the steps of a tile, the threads and the elements of a thread along rows, and
    both along columns.
    """
    sch = Schedule(matmul_func(n, m, k), symbolic=True)
    b = sch.get_block("C")
    i, j, r = sch.get_loops(b)
    acc = sch.cache_write(b, 0, "local")
    step = sch.sample_categorical([4, 8, 16, 32])
    ty, iy, tx, jx = (
        sch.sample_categorical(values)
        for values in (
            [1, 2, 4, 8, 16, 32],
            [1, 2, 4, 8, 16],
            [1, 2, 4, 8, 16, 32],
            [1, 2, 4, 8, 16],
        )
    )
    bi, ti, ii = sch.split(i, factors=[None, ty, iy])
    bj, tj, jj = sch.split(j, factors=[None, tx, jx])
    k0, k1 = sch.split(r, factors=[None, step])
    sch.reorder(bi, bj, k0, ti, tj, k1, ii, jj)
    sch.bind(bi, "blockIdx.x")
    sch.bind(bj, "blockIdx.y")
    copies = [sch.cache_read(b, number, "shared") for number in (0, 1)]
    for c in copies:
        sch.compute_at(c, k0)
    sch.reverse_compute_at(acc, bj)
    init = sch.decompose_reduction(b, k0)
    for c in copies:
        _, t = sch.split(sch.fuse(*sch.get_loops(c)[-2:]), factors=[None, ty * tx])
        sch.bind(t, "threadIdx.x")
    sch.bind(sch.fuse(ti, tj), "threadIdx.x")
    sch.bind(sch.fuse(*sch.get_loops(init)[2:4]), "threadIdx.x")
    rows, columns = sch.get_loops(acc)[-2:]
    own_rows, own_columns = sch.split(rows, factors=[ty, iy]), sch.split(columns, factors=[tx, jx])
    sch.reorder(own_rows[0], own_columns[0], own_rows[1], own_columns[1])
    sch.bind(sch.fuse(own_rows[0], own_columns[0]), "threadIdx.x")
    limits, threads, held = TARGET.limits, ty * tx, iy * jx + iy + jx + 32
    prune = {
        "a block has a warp of threads": threads >= 32,
        "a block has no more threads than the device runs": threads <= limits.block_threads,
        "what a thread holds fits its registers": held <= limits.thread_registers,
        "the threads of a block share the registers": threads * held <= limits.block_registers,
    }
    return Sketch.of(sch, "tiled", prune=[(name, as_expr(e)) for name, e in prune.items()])
