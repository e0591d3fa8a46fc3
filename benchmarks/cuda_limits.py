"""What a CUDA device allows: a kernel that copies, and one that multiplies and adds in registers.

They are programs of this package with schedules by hand, timed in the rounds of the kernels that
are compared with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.runtime import DeviceArray

THREADS = 256
_COPIES = 4
"""The accesses of 16 bytes that a thread has in flight."""
_SUMS = 16
"""The sums of a thread, which do not depend on each other."""


@dataclass(frozen=True)
class Limit:
    """A bound call that does so much `work`: bytes read and written, or operations."""

    name: str
    run: Callable[[], Any]
    work: float


def copy_schedule(blocks: int) -> tw.Schedule:
    """Copy float32, so many blocks of 16 KB."""
    n = blocks * THREADS * _COPIES * 4
    a = te.placeholder((n,), "float32", name="A")
    b = te.compute((n,), lambda i: a[i], name="B")
    sch = tw.Schedule(te.func([a, b], name="copy"))
    (i,) = sch.get_loops(sch.get_block("B"))
    block, access, thread, lane = sch.split(i, factors=[None, _COPIES, THREADS, 4])
    sch.reorder(block, thread, access, lane)
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.unroll(access)
    sch.vectorize(lane)
    return sch


def fma_schedule(blocks: int, steps: int) -> tw.Schedule:
    """`y[i] = sum(x[i] * w[k])` of float32 with `steps` terms, 4096 such sums a block.

    A thread reads four `w` at once, for 64 multiplications and additions.
    """
    n = blocks * THREADS * _SUMS
    x = te.placeholder((n,), "float32", name="X")
    w = te.placeholder((steps,), "float32", name="W")
    k = te.reduce_axis(steps, name="k")
    y = te.compute((n,), lambda i: te.sum(x[i] * w[k], axis=k), name="Y")
    sch = tw.Schedule(te.func([x, w, y], name="fma"))
    sums = sch.get_block("Y")
    i, r = sch.get_loops(sums)
    result = sch.cache_write(sums, 0, "local")
    block, thread, own = sch.split(i, factors=[None, THREADS, _SUMS])
    outer, inner = sch.split(r, factors=[None, 4])
    sch.reorder(block, thread, outer, inner, own)
    factors, weights = (sch.cache_read(sums, n, "local") for n in (0, 1))
    sch.compute_at(factors, thread)
    sch.compute_at(weights, outer)
    sch.reverse_compute_at(result, thread)
    sch.decompose_reduction(sums, outer)
    sch.vectorize(sch.get_loops(weights)[-1])
    sch.unroll(inner)
    sch.unroll(own)
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return sch


def limits(target: str, sms: int, *, small: bool = False) -> list[Limit]:
    """Both kernels on the device, with random data; `small` ones for trying things out."""
    copied, multiplied, steps = (1, 1, 8) if small else (1 << 14, 16 * sms, 2048)
    rng = np.random.default_rng(0)

    def bound(sch: tw.Schedule, *elements: int) -> Callable[[], Any]:
        arrays = [DeviceArray.of(rng.standard_normal(n, np.float32)) for n in elements]
        return tw.build(sch, target=target).bind(*arrays)

    n = copied * THREADS * _COPIES * 4
    m = multiplied * THREADS * _SUMS
    return [
        Limit("copy", bound(copy_schedule(copied), n, n), 8.0 * n),
        Limit("fma", bound(fma_schedule(multiplied, steps), m, steps, m), 2.0 * m * steps),
    ]
