"""LLVM compiles shuffles of near elements, and their sums, in bounded time."""

from __future__ import annotations

import subprocess
import sys

import pytest

SECONDS = 20
"""Of a child's time on a processor. It takes 1 to 2, and for ever where LLVM does not return."""

CHILD = f"""
import resource, sys
import tilewright as tw
from tilewright import te
from tilewright.base import dtypes
from tilewright.codegen.build import compile_func
from tilewright.codegen.detect import resolve
from tilewright.target import CpuTarget

resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
target = resolve(sys.argv[1])
for dtype in ("int8", "uint8", "int16", "float16", "int32", "float32", "float64"):
    bits = dtypes.info(dtype).bits
    lanes = CpuTarget.of(target).vector_bits // bits
    for by in (2, 4):
        a = te.placeholder((2, 2 * lanes), dtype, name="A")
        def row(i, j):
            near = [a[i, (j + 4 * k) // by] for k in range(2)]
            near += [a[i, te.minimum(te.maximum(j + k, 0), lanes // 2)] for k in (-1, 2)]
            total = near[0] + near[0]
            for k, v in enumerate(near):
                total = total + v * te.const(k + 1, dtype)
            return total + total
        schedule = tw.Schedule(te.func([a, te.compute((2, 2 * lanes), row, name="B")]))
        _, j = schedule.get_loops(schedule.get_block("B"))
        schedule.vectorize(schedule.split(j, factors=[None, lanes])[1])
        text = compile_func(schedule.func, target).source("llvm")
        assert "shufflevector" in text, (dtype, by)
        print(dtype, by, flush=True)
"""


@pytest.mark.part(2)
@pytest.mark.parametrize(
    "processor", ["skylake-avx512", "znver5", "x86-64-v3", "x86-64-v2", "neoverse-n1"]
)
def test_sums_of_near_elements(processor: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, f"cpu -mcpu={processor} -threads=1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"after {done.stdout.split()[-2:]}: {done.stderr[-800:]}"
