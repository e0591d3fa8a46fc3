"""The least time that a program can take on a GPU: its roofline.

The larger of two times: that of its operations on floats at the rate of all SMs, a multiplication
and the addition of its product being one, and that of moving each argument once from or to memory
(Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009).
"""

from __future__ import annotations

import numpy as np

from ....target import CudaTarget, Target
from ....tir.ir import Buffer, Func
from ...rules.common import nbytes
from ..profile import profile
from ..target_model import Roofline
from .counts import operations_of
from .estimate import multiplies


def roofline(func: Func, target: Target) -> Roofline:
    """The roofline of a concrete program on a resolved target, which is a GPU."""
    gpu = CudaTarget.of(target)
    rates, sms = gpu.rates, gpu.sms or gpu.limits.sms
    cycles = 0.0
    for visit in profile(func).visits:
        count = float(np.prod([float(n) for n in visit.extents if isinstance(n, int)]))
        operations, functions = operations_of(visit.block.body)
        fused = visit.accumulates and multiplies(visit.block.body)
        rate = rates.float64 if visit.dtype == "float64" else rates.float32
        cycles += count * max((operations - fused) / rate, functions / rates.special)
    size = sum(nbytes(p) for p in func.params if isinstance(p, Buffer))
    return Roofline(cycles / (rates.hertz * sms), size / rates.memory)
