"""Steps that several rules share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...base import dtypes
from ...base.errors import ScheduleError
from ...schedule import Schedule
from ...schedule.find import find_block
from ...tir.ir import Block, Buffer, Dim, Label, Var

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
