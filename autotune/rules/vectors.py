"""Vectors: their lanes, and loops that become straight code."""

from __future__ import annotations

from collections.abc import Sequence

from ... import dtypes
from ...schedule import Schedule
from ...tir.ir import Label, Var


def lanes_for(vector_bits: int, dtype: str, extent: int) -> int:
    """Lanes of a vector of `dtype` with so many bits, fewer where the extent is less than that."""
    lanes = native_lanes(vector_bits, dtype)
    while lanes > 1 and lanes >= 2 * extent:
        lanes //= 2
    return lanes


def native_lanes(vector_bits: int, dtype: str) -> int:
    """Lanes of a vector of `dtype` with so many bits; 1 where there are no vectors."""
    return max(1, vector_bits // dtypes.info(dtype).bits)


def in_registers(sch: Schedule, loops: Sequence[Var]) -> None:
    """Unroll loops around the lanes of a vector, the last of them."""
    sch.vectorize(loops[-1])
    for loop in loops[:-1]:
        sch.unroll(loop)


def unroll_hint(sch: Schedule, hint: Label, step: Var) -> None:
    """Have a hint ask in each iteration of `step` for one line after the other, without a loop."""
    loops = sch.get_loops(hint)
    depth = next(n for n, v in enumerate(loops) if v is step)
    for lines in loops[depth + 1 :]:
        sch.unroll(lines)
