"""Programs of several products beside their kernels: `python -m benchmarks.division [NAMES]`.

A program is built, and each of its kernels as a program of its own. Two ratios of interleaved times
of one thread are printed: the program's over that of its kernels called one after the other on the
same arrays, and over the sum of the times of each called alone, whose operands then stay in caches
that do not hold those of all. The first tells what being one program costs, the second also what
the machine's caches do.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.rules.division import Operand, pieces_of
from tilewright.runtime import time_interleaved
from tilewright.tir.ir import Buffer, integers
from tilewright.tir.tensor import Tensor

from .zero import geometric

TARGET = "cpu -threads=1"
SHAPES = [
    "1x256x1024", "1x1024x2048", "16x256x1024", "16x512x2048",
    "128x256x256", "128x512x2048", "512x256x512", "512x512x1024",
]  # fmt: skip
"""Rows, columns of what goes in and comes out, and columns between the products."""


def weight(name: str, rows: int, columns: int) -> Tensor:
    return te.placeholder((rows, columns), name=name, constant=True)


def gelu(x: Tensor, columns: int) -> list[Tensor]:
    w, v = weight("W", x.extents[1], columns), weight("V", columns, x.extents[1])
    return [w, v, ops.matmul(ops.gelu(ops.matmul(x, w, name="H")), v, name="Y")]


def softmax(x: Tensor, columns: int) -> list[Tensor]:
    """No attention: what the softmax gives is an output too."""
    w, v = weight("W", x.extents[1], columns), weight("V", columns, x.extents[1])
    p = ops.softmax(ops.matmul(x, w, name="H"))
    return [w, v, p, ops.matmul(p, v, name="Y")]


def norm(x: Tensor, columns: int) -> list[Tensor]:
    scale, shift = (te.placeholder((x.extents[1],), name=name) for name in ("scale", "shift"))
    *weights, y = gelu(ops.layer_norm(x, scale, shift), columns)
    return [scale, shift, *weights, ops.add(y, x)]


def three(x: Tensor, columns: int) -> list[Tensor]:
    sizes = [x.extents[1], columns, columns, x.extents[1]]
    weights = [weight(name, *sizes[n : n + 2]) for n, name in enumerate("WVU")]
    for w in weights:
        x = ops.matmul(x, w, epilogue="relu", name=f"{w.name}_product")
    return [*weights, x]


def gated(x: Tensor, columns: int) -> list[Tensor]:
    w, u = (weight(name, x.extents[1], columns) for name in "WU")
    v = weight("V", columns, x.extents[1])
    a, b = ops.matmul(x, w, name="A"), ops.matmul(x, u, name="B")
    return [w, u, v, ops.matmul(ops.multiply(ops.multiply(a, ops.sigmoid(a)), b), v, name="Y")]


PROGRAMS: list[Callable[[Tensor, int], list[Tensor]]] = [gelu, softmax, norm, three, gated]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    ratios: list[tuple[float, float]] = []
    for shape in options.shape or SHAPES:
        rows, columns, hidden = map(int, shape.split("x"))
        for make in PROGRAMS:
            if options.names and make.__name__ not in options.names:
                continue
            x = te.placeholder((rows, columns), name="X")
            func = te.func([x, *make(x, hidden)], name=make.__name__)
            whole, after, *alone = timed(func, options)
            ratios.append((whole / after, whole / sum(alone)))
            print(
                f"{func.name:8} {shape:13} {len(alone)} kernels {whole * 1e6:9.1f} us"
                f"  one after the other {ratios[-1][0]:5.3f}  alone {ratios[-1][1]:5.3f}",
                flush=True,
            )
    means = [geometric(column) for column in zip(*ratios, strict=True)]
    print(f"geometric means {means[0]:.3f} and {means[1]:.3f} of {len(ratios)}")
    return 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="benchmarks.division", description=__doc__)
    found.add_argument("names", nargs="*", help=", ".join(make.__name__ for make in PROGRAMS))
    found.add_argument("--shape", action="append", help=f"such as {SHAPES[0]}; may be repeated")
    found.add_argument("--rounds", type=int, default=31)
    found.add_argument("--db", help="where records are looked up")
    return found


def timed(func: tw.Func, options: argparse.Namespace) -> list[float]:
    """The seconds of the program, of its kernels one after the other, and of each alone."""
    database = None if options.db is None else tw.TuningDatabase(options.db)
    whole = tw.build(func, TARGET, database)
    pieces = pieces_of(func, whole.target)
    arrays: dict[Operand, Any] = {}
    program = bound(whole, func.params, arrays)
    kernels = [bound(tw.build(p.func, TARGET, database), p.operands, arrays) for p in pieces]

    def after() -> None:
        for call in kernels:
            call()

    program()
    result = arrays[func.params[-1]]
    wanted = result.copy()
    result.fill(np.nan)
    after()
    assert np.array_equal(result, wanted), f"{func.name}: not what its kernels compute"
    calls = [program, after, *kernels]
    timings = time_interleaved(calls, rounds=options.rounds, clock=time.thread_time)
    return [timing.median for timing in timings]


def bound(
    module: tw.Module, operands: Sequence[Operand], arrays: dict[Operand, Any]
) -> Callable[[], object]:
    """A call with the operands' arrays, which are made where they are missing."""
    rng = np.random.default_rng(len(arrays))
    for operand in operands:
        if operand not in arrays:
            assert isinstance(operand, Buffer)
            values = rng.standard_normal(integers(operand.shape)).astype(np.float32)
            packed = operand.name in module.layouts
            arrays[operand] = module.pack(operand.name, values) if packed else values
    return module.bind(*(arrays[operand] for operand in operands))


if __name__ == "__main__":
    sys.exit(main())
