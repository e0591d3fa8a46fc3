"""The emulator: runs the last lowered program of a GPU without one, and checks all it does.

The blocks of a launch run in batches. The threads of a batch are lanes of numpy arrays, and run
each statement together; where they diverge, a part of them is active. `codegen/cuda/lowering.py`
defines what the program means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import VerifyError
from ...tir.call_arguments import check, check_values, scalar
from ...tir.ir import Buffer, Func, Stmt, Var
from ...tir.visit import stored_buffers
from ..passes.arena import ALIGNMENT, KEY
from ..passes.launches import Launch, launches_of
from .emulate_batch import Array, Batch, Grid
from .emulate_code import Code
from .emulate_faults import Fault, Faults
from .emulate_memory import Counts, GlobalMemory, SharedMemory, elements
from .emulate_state import State

BATCH_THREADS = 8192
"""Threads of a batch, if its blocks have no more."""
BATCH_SHARED_BYTES = 1 << 24


@dataclass(frozen=True)
class StatementCounts:
    """What the threads of a launch did in a statement, without the statements in it."""

    launch: int
    statement: Stmt
    counts: Counts


@dataclass(frozen=True)
class Emulation:
    """What a run found: the faults, and counts of each statement in order of the program."""

    faults: tuple[Fault, ...]
    counts: tuple[StatementCounts, ...]


def emulate(func: Func, *arguments: Any, batch_threads: int = BATCH_THREADS) -> Emulation:
    """Run a lowered program on numpy arrays and numbers in the order of its parameters.

    An array has the shape of its parameter, or any shape with as many elements from the first to
    the last in memory. Outputs are written in place. Faults do not end the run: elements outside of
    a buffer are read as 0 and not written, and a read of an unwritten element gives any value.
    Raises `ArgumentError` for arguments that do not match, and `VerifyError` for a program that is
    not in the form of a lowered one.
    """
    outputs = stored_buffers(func)
    flat = [flat_view(p, a) for p, a in zip(func.params, arguments, strict=False)]
    check(func, (*flat, *arguments[len(flat) :]), outputs)
    check_values(func, arguments)  # of elements, not of what is between them in memory
    memories: dict[Buffer, GlobalMemory] = {}
    scalars: dict[Var, Array] = {}
    for param, argument in zip(func.params, flat, strict=True):
        if isinstance(param, Var):
            scalars[param] = number_array(param, argument)
        elif param in outputs and param not in func.inplace:
            memories[param] = unwritten(param)
        else:
            memories[param] = GlobalMemory(argument.copy() if param in outputs else argument, None)
    memories |= {b: unwritten(b) for b in func.allocs}
    faults = Faults()
    counts: list[StatementCounts] = []
    for number, launch in enumerate(launches_of(func)):
        counts += run_launch(number, launch, memories, scalars, faults, batch_threads)
    for param, argument in zip(func.params, flat, strict=True):
        if param in outputs:
            assert isinstance(param, Buffer)
            memory = memories[param]
            chosen = slice(None) if memory.written is None else memory.written
            argument[chosen] = memory.data[chosen]
    return Emulation(faults.all(), tuple(counts))


def run_launch(
    number: int,
    launch: Launch,
    memories: Mapping[Buffer, GlobalMemory],
    scalars: Mapping[Var, Array],
    faults: Faults,
    batch_threads: int,
) -> list[StatementCounts]:
    """Run a launch; add its faults, and return its counts."""
    grid = Grid(launch)
    offsets = shared_offsets(launch)
    blocks = max(1, min(grid.block_count, batch_threads // grid.block_threads))
    shared = None
    if launch.shared:
        shared = SharedMemory(launch.shared, offsets, 1)
        blocks = min(blocks, max(1, BATCH_SHARED_BYTES // (shared.size * shared.granule)))
        shared = SharedMemory(launch.shared, offsets, blocks)
    state = State(number, launch, memories, scalars, shared, faults)
    run = Code(state).statement(launch.code)
    with np.errstate(all="ignore"):
        for first in range(0, grid.block_count, blocks):
            batch = Batch(grid, first, min(blocks, grid.block_count - first))
            state.start(batch, first)
            run(batch.all)
            state.finish()
    return [StatementCounts(number, p.statement, p.counts) for p in state.places]


def shared_offsets(launch: Launch) -> Sequence[int]:
    """The offsets of the shared buffers of a launch. Raises `VerifyError` where they are wrong."""
    if not launch.threads or launch.threads[-1].thread != "threadIdx.x":
        raise VerifyError("a launch has no loop over threadIdx.x inside of its other threads")
    offsets = dict(launch.threads[-1].annotations).get(KEY, [])
    if (
        not isinstance(offsets, list)
        or len(offsets) != len(launch.shared)
        or any(type(n) is not int or n < 0 or n % ALIGNMENT for n in offsets)
    ):
        raise VerifyError(
            "the annotation {0} of threadIdx.x is {1!r}; expected multiples of {2} for {3}",
            KEY, offsets, ALIGNMENT, [b.name for b in launch.shared],
        )  # fmt: skip
    return offsets


def number_array(param: Var, argument: Any) -> Array:
    """A number as the value of a parameter that all threads have."""
    return np.array([scalar(param, argument)], dtypes.to_numpy(param.dtype))


def unwritten(buffer: Buffer) -> GlobalMemory:
    size = elements(buffer)
    return GlobalMemory(np.zeros(size, dtypes.to_numpy(buffer.dtype)), np.zeros(size, bool))


def flat_view(param: Buffer | Var, argument: Any) -> Any:
    """The elements of an array in memory as one dimension, where these are those of a parameter."""
    if not isinstance(param, Buffer) or not isinstance(argument, np.ndarray):
        return argument
    steps = [s // argument.itemsize for s in argument.strides]
    span = dtypes.span_bytes(argument.shape, steps, param.dtype) // dtypes.nbytes(param.dtype)
    if span != elements(param) or any(step < 0 for step in steps):
        return argument
    return strided(argument, (span,), (argument.itemsize,))


def strided(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A view of the memory of an array, of any dtype, with strides in bytes."""
    bits = array.view(f"u{array.itemsize}")  # numpy's interface does not know all of ml_dtypes
    return np.lib.stride_tricks.as_strided(bits, shape, strides).view(array.dtype)
