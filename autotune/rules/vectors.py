"""Vectors: their lanes, and loops that become straight code."""

from __future__ import annotations

from collections.abc import Sequence

from ...base import dtypes
from ...schedule import Schedule
from ...tir.ir import INDEX, Binary, Block, Call, Label, Var
from ...tir.visit import walk

MAX_OPERATIONS = 1024
"""Operations of an unrolled body, at most: where one copy has many, more hide no latency, and LLVM
takes seconds for them."""
OF_A_CALL = 16
"""Operations that a function counts for: `exp` and `erf` are polynomials."""


def lanes_for(vector_bits: int, dtype: str, extent: int) -> int:
    """Lanes of a vector of `dtype` with so many bits, fewer where the extent is less than that."""
    lanes = native_lanes(vector_bits, dtype)
    while lanes > 1 and lanes >= 2 * extent:
        lanes //= 2
    return lanes


def native_lanes(vector_bits: int, dtype: str) -> int:
    """Lanes of a vector of `dtype` with so many bits; 1 where there are no vectors."""
    return max(1, vector_bits // dtypes.info(dtype).bits)


def unroll_counts(blocks: Sequence[Block], counts: Sequence[int]) -> list[int]:
    """The counts, of which the first is 1, for which unrolled bodies of the blocks stay short."""
    longest = max(operations(b) for b in blocks)
    return [n for n in counts if n == 1 or n * longest <= MAX_OPERATIONS]


def operations(block: Block) -> int:
    """Operations on elements of one iteration."""
    nodes = [n for n in walk(block.body) if type(n) is Binary or type(n) is Call]
    return sum(OF_A_CALL if type(n) is Call else 1 for n in nodes if n.dtype != INDEX)


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
