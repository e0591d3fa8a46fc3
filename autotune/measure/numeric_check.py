"""How much results may differ, as `runtime/measure/comparison.py` measures errors."""

from __future__ import annotations

import math

from ...base import dtypes
from ...base.errors import TilewrightError
from ...runtime.measure.comparison import (
    ROUNDING_FACTOR,
    Deviation,
    Exact,
    check_outputs,
    deviation,
    largest_error,
    typical_size,
)
from ...tir.ir import Block, Buffer, Func, IterKind, Store
from ...tir.visit import reads_from, stored_buffers, walk

__all__ = [
    "ROUNDING_FACTOR",
    "Deviation",
    "Exact",
    "check_outputs",
    "deviation",
    "largest_error",
    "require_tolerance",
    "tolerance_of",
    "typical_size",
]


def tolerance_of(func: Func) -> float:
    """The largest error that rounding explains in an unscheduled program."""
    rounded, accumulated, length = 0.0, 0.0, 0
    for block in walk(func):
        if type(block) is not Block:
            continue
        written = [s.buffer for s in walk(block) if type(s) is Store]
        epsilon = max([_epsilon(b) for b in written], default=0.0)
        rounded = max(rounded, epsilon)
        repeated = [i.extent for i in block.iters if i.kind is not IterKind.SPATIAL]
        terms = math.prod(n for n in repeated if isinstance(n, int))
        if terms > 1 and _accumulates(block):
            accumulated = max(accumulated, epsilon)
            length += terms
    return 8 * rounded + accumulated * (16 + 4 * math.sqrt(length))


def require_tolerance(tolerance: float | None, error: type[TilewrightError]) -> None:
    """Raise `error` unless `tolerance` is `None` or more than 0 and at most 1."""
    number = isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool)
    if tolerance is not None and not (number and 0 < tolerance <= 1):
        raise error(
            "tolerance={0!r}: expected an error of more than 0 and at most 1, relative to the "
            "typical size of the results",
            tolerance,
        )


def _accumulates(block: Block) -> bool:
    """Whether a block reads what it writes."""
    return reads_from(block.body, stored_buffers(block.body))


def _epsilon(buffer: Buffer) -> float:
    facts = dtypes.info(buffer.dtype)
    return 2.0**-facts.mantissa if facts.kind == "float" else 0.0
