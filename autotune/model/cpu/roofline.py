"""The least time that a program can take on a processor: its roofline.

The larger of two times: that of its floating-point operations at the peak rate of all cores, and
that of bringing each argument once from the innermost cache that holds them all, or from memory
(Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009). The rates are those of the target:
measured ones, or those of the table of processors.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ....target import CpuTarget, Target
from ....tir.instruction_set import products_of
from ....tir.ir import Buffer, Func
from ...rules.common import nbytes
from ...rules.vectors import native_lanes
from ..profile import Visit, profile
from ..target_model import Roofline
from .estimate import USABLE


def roofline(func: Func, target: Target) -> Roofline:
    """The roofline of a concrete program on a resolved target, which is a processor."""
    target = CpuTarget.of(target)
    cores = max(1, min(target.threads, target.cores))
    cycles = 0.0
    for visit in profile(func).visits:
        count = prod(n for n in visit.extents if isinstance(n, int))
        lanes = native_lanes(target.vector_bits, visit.dtype)
        each = visit.operations / (2.0 * lanes * target.rates.fma)
        cycles += count * min([each, *_products(visit, target)])
    size = sum(nbytes(p) for p in func.params if isinstance(p, Buffer))
    rate = _rate(size, cores, target)
    return Roofline(cycles / (target.rates.hertz * cores), size / rate if rate else 0.0)


def _products(visit: Visit, target: CpuTarget) -> Iterator[float]:
    """Cycles of one product and its sum, by each instruction that the target has for such."""
    sums = {a.buffer for a in visit.accesses if a.stores}
    factors = [a.buffer.dtype for a in visit.accesses if a.buffer not in sums]
    if not visit.accumulates or len(factors) != 2:
        return
    for _, product, cost in products_of(target):
        if product.dtypes == (visit.dtype, *factors):
            yield cost.cycles / product.count


def _rate(size: int, cores: int, target: CpuTarget) -> float | None:
    """Bytes per second from where `size` bytes stay between calls; `None` for L1."""
    bandwidths = target.bandwidths
    rooms = (
        (target.l1_bytes * cores, None),
        (target.l2_bytes * cores, bandwidths.get("L2")),
        (target.l3_bytes, bandwidths.get("L3")),
    )
    for room, rate in rooms:
        if size <= USABLE * room:
            return rate
    return bandwidths["memory"]
