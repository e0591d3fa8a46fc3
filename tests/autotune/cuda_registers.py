"""Registers as the estimate has them and as ptxas reports them.

    python -m tests.autotune.cuda_registers --count 300

compiles random candidates that are not pruned, and prints the rank correlation of both numbers and
the share of candidates that spill.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright import ops
from tilewright.autotune.model.cuda.launches import launches_of
from tilewright.autotune.model.cuda.registers import Registers
from tilewright.autotune.model.cuda.spans import Dims, Floats, Shapes
from tilewright.autotune.model.profile import Ints, Profile, profile
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.codegen.build import compile_func
from tilewright.codegen.cuda.generator import kernels_of
from tilewright.tir.ir import Func

from ..codegen.cuda.schedules import matmul_func
from .cuda_candidates import TARGET, scheduled, tiled_matmul

N = 1024
PROGRAMS: dict[str, Callable[[], Func]] = {
    "matmul": lambda: matmul_func(N, N, N),
    "add_relu": lambda: ops.add_relu_func(1 << 20),
    "add_relu of float16": lambda: ops.add_relu_func(1 << 20, dtype="float16"),
    "transpose": lambda: ops.transpose_func(N, N),
    "transpose of bfloat16": lambda: ops.transpose_func(N, N, dtype="bfloat16"),
    "softmax": lambda: ops.softmax_func(N, N),
    "softmax of bfloat16": lambda: ops.softmax_func(N, N, dtype="bfloat16"),
    "layer_norm": lambda: ops.layer_norm_func(N, N),
    "sums of rows": lambda: ops.reduction_func("sum", N, N),
    "sums of columns": lambda: ops.reduction_func("sum", N, N, axis=0),
    "sums of few rows": lambda: ops.reduction_func("sum", 4, 1 << 18),
    "conv2d": lambda: ops.conv2d_func(1, 16, 32, 32, 32),
}


@dataclass(frozen=True)
class Compiled:
    """A kernel of a candidate: the registers of a thread that are estimated, and what ptxas
    reports."""

    estimated: float
    registers: int
    spilled_bytes: int


def registers_of(source: Profile, rows: Ints) -> list[Floats]:
    """The registers of a thread of each launch of a profile, for rows (rows, variables)."""
    dims = Dims(dict(source.bounds))
    launches = [Registers(launch, Shapes(launch), dims) for launch in launches_of(source)]
    dims.evaluate(rows)
    return [np.broadcast_to(registers(), len(rows)) for registers in launches]


def spaces(program: str) -> tuple[Sketch, ...]:
    """The sketches of a program; of a product tiles in shared memory too."""
    found = sketches(PROGRAMS[program](), TARGET)
    return (*found, tiled_matmul(N, N, N)) if program == "matmul" else found


def drawn(count: int, seed: int = 0) -> Iterator[tuple[str, Sketch, np.ndarray]]:
    """About so many candidates, as many of each sketch; of tiles in shared memory more."""
    rng = np.random.default_rng(seed)
    every = [(name, sketch) for name in PROGRAMS for sketch in spaces(name)]
    each = -(-count // (len(every) + 3))
    for name, sketch in every:
        wanted = 4 * each if sketch.name == "tiled" else each
        rows = Rowspace(sketch).sample(rng, 4096)
        for row in rng.permutation(rows)[:wanted]:
            yield name, sketch, row


def compiled(name: str, sketch: Sketch, row: np.ndarray) -> list[Compiled]:
    """The kernels of a candidate. Raises `BuildError`."""
    program = scheduled(PROGRAMS[name](), sketch, row)
    estimates = registers_of(profile(sketch.func, sketch.space.bounds), row[None])
    kernels = kernels_of(compile_func(program, TARGET))[0]
    found = []
    for kernel, estimate in zip(kernels, estimates, strict=True):
        used = kernel.resources
        assert used is not None, "ptxas reports each kernel"
        limit = TARGET.limits.block_registers // kernel.threads
        spilled = used.spill_store_bytes + used.spill_load_bytes
        found.append(Compiled(min(float(estimate[0]), limit), used.registers, spilled))
    return found


def rank_correlation(kernels: Sequence[Compiled]) -> float:
    """Spearman's, of the registers that are estimated and reported."""
    a = _ranks(np.array([k.estimated for k in kernels]))
    b = _ranks(np.array([k.registers for k in kernels]))
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(numbers: np.ndarray) -> np.ndarray:
    """The places of numbers in order; equal ones share the mean of theirs."""
    _, place, count = np.unique(numbers, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="candidates, about")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    every: list[Compiled] = []
    spilling = candidates = 0
    for name, sketch, row in drawn(arguments.count, arguments.seed):
        kernels = compiled(name, sketch, row)
        every += kernels
        candidates += 1
        spilling += any(k.spilled_bytes for k in kernels)
        shown = ", ".join(f"{k.estimated:.0f} estimated, {k.registers} reported" for k in kernels)
        print(f"{name}, {sketch.name} {row.tolist()}: {shown}", flush=True)
    print(f"{candidates} candidates, {len(every)} kernels")
    print(f"rank correlation of registers: {rank_correlation(every):.3f}")
    print(f"candidates that spill: {spilling} ({spilling / candidates:.1%})")


if __name__ == "__main__":
    main()
