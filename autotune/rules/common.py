"""Steps that several rules share.

Vectors: their lanes, and loops that become straight code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...base import dtypes
from ...base.errors import ScheduleError
from ...schedule import Schedule
from ...schedule.find import find_block
from ...tir.ir import INDEX, Binary, Block, Buffer, Call, Dim, Label, Var
from ...tir.visit import walk

T = TypeVar("T")


def widest(block: Block) -> str:
    """The widest dtype that a block reads or writes, which decides how many lanes fit."""
    buffers: list[Buffer] = [r.buffer for r in (*block.reads, *block.writes)]
    return max((b.dtype for b in buffers), key=dtypes.nbytes)


def elements(buffer: Buffer) -> int:
    """The elements of a buffer of known size; none where a size is open."""
    return math.prod(n if isinstance(n, int) else 0 for n in buffer.shape)


def nbytes(buffer: Buffer) -> int:
    """The bytes of a buffer of known size."""
    return elements(buffer) * dtypes.nbytes(buffer.dtype)


def powers(most: int) -> list[int]:
    """1, 2, 4, .. up to `most`."""
    values = [1]
    while values[-1] * 2 <= most:
        values.append(values[-1] * 2)
    return values


def succeeds(step: Callable[..., Any], *arguments: Any) -> bool:
    """Take a step of a schedule if it is legal. Returns whether it was."""
    try:
        step(*arguments)
    except ScheduleError:
        return False
    return True


def result_or_none(step: Callable[..., T], *arguments: Any) -> T | None:
    """Returns the result of a step, or `None` where it is refused."""
    try:
        return step(*arguments)
    except ScheduleError:
        return None


def fused(sch: Schedule, loops: Sequence[Var]) -> Var:
    """One loop for several, which follow each other inwards."""
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def block_loops(sch: Schedule, label: Label) -> dict[Var, Var]:
    """The innermost loops around a block, one for each of its variables."""
    block = find_block(sch.func, label)
    loops = sch.get_loops(label)[-len(block.iters) :]
    return dict(zip([i.var for i in block.iters], loops, strict=True))


def sampled(sch: Schedule, values: Sequence[int]) -> Dim:
    """One of some values; the only one is no decision."""
    return sch.sample_categorical(values) if len(values) > 1 else values[0]


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
