"""Candidates of GPU sketches, and what the emulator and the estimate count of programs."""

from __future__ import annotations

import numpy as np

from tilewright import dtypes
from tilewright.autotune.model.cuda.counts import LaunchCounts, count
from tilewright.autotune.model.profile import profile
from tilewright.autotune.search.sketch import Sketch
from tilewright.codegen.cuda.emulate import emulate
from tilewright.codegen.lower import lower
from tilewright.codegen.passes.launches import launches_of
from tilewright.target import CudaTarget
from tilewright.tir.ir import Func

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
    found = launch.counts.of_row(row)
    found["barriers"] += found.pop("warp_barriers")
    return {name: found[name] for name in NAMES}


def scheduled(func: Func, sketch: Sketch, row: np.ndarray) -> Func:
    """A candidate as a program."""
    return sketch.trace.with_row(tuple(row.tolist())).apply(func).func
