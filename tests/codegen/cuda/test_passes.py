"""Golden tests of the lowering passes of GPUs: the program before and after each."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.errors import BuildError
from tilewright.codegen.calling_convention import signature_of
from tilewright.codegen.cuda.emulate import emulate
from tilewright.codegen.cuda.kernels import emit
from tilewright.codegen.cuda.lowering import passes
from tilewright.codegen.generator import Part
from tilewright.codegen.lower import lower
from tilewright.codegen.passes.launches import launches_of
from tilewright.target import CudaTarget
from tilewright.tir.equality import flat
from tilewright.tir.ir import Alloc, For, Func, If, Store, integers, seq
from tilewright.tir.parser import parse
from tilewright.tir.printer import func_text
from tilewright.tir.visit import walk
from tilewright.tir.wellformed import check_structure

from ...golden import check_golden
from . import schedules
from .emulate_check import check_program

GOLDENS = Path(__file__).parent / "goldens"
RULE = "-" * 40
PASSES = {step.name: step.run for step in passes()}

PROGRAMS = {
    "phases": """
def f(A: T.Buffer((2, 4, 8), "float32"), C: T.Buffer((2, 8), "float32"), D: T.Buffer((2,), "float32")):
    T.inplace(C)
    S = T.alloc((8,), "float32", scope="shared")
    for b in T.thread("blockIdx.x", 2):
        for k in range(4):
            for t in T.thread("threadIdx.x", 8):
                S[t] = A[b, k, t]
            for u in T.thread("threadIdx.x", 8):
                C[b, u] = C[b, u] + S[7 - u]
        D[b] = 1.0
""",  # noqa: E501
    "phases_of_several_launches": """
def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32")):
    for i in T.thread("blockIdx.y", 4):
        for j in T.thread("threadIdx.x", 8):
            B[j, i] = A[i, j]
    for k in T.thread("threadIdx.x", 8):
        for x in range(4):
            C[k, x] = B[k, x]
""",  # noqa: E501
    "phases_lacking_axes": """
def f(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32"), D: T.Buffer((4,), "float32"), E: T.Buffer((1,), "float32")):
    for y in T.thread("threadIdx.y", 4):
        for x in T.thread("threadIdx.x", 8):
            C[y, x] = A[y, x]
        D[y] = A[y, 0]
        D[y] = D[y] + A[y, 1]
    E[0] = 0.0
""",  # noqa: E501
    "phases_under_a_condition": """
def f(A: T.Buffer((4, 8), "float32"), C: T.Buffer((8,), "float32")):
    for k in range(4):
        if k == 0:
            for t in T.thread("threadIdx.x", 8):
                C[t] = 0.0
        for u in T.thread("threadIdx.x", 8):
            T.prefetch(A[k + 1, u])
            C[u] = C[u] + A[k, u]
""",
    "compact_shared_and_owned": """
def f(A: T.Buffer((64, 32), "float32"), C: T.Buffer((64,), "float32")):
    S = T.alloc((64, 32), "float32", scope="shared")
    R = T.alloc((64,), "float32", scope="local")
    G = T.alloc((64,), "float32")
    for b in T.thread("blockIdx.x", 4):
        for t in T.thread("threadIdx.x", 4):
            for i in range(4):
                R[b * 16 + i * 4 + t] = 0.0
            for k in range(4):
                for n in range(32):
                    S[b * 16 + n // 2, k * 8 + n % 2 * 4 + t] = A[b * 16 + n // 2, k * 8 + n % 2 * 4 + t]
                for i, l in T.grid(4, 8):
                    R[b * 16 + i * 4 + t] = R[b * 16 + i * 4 + t] + S[b * 16 + i * 4 + t, k * 8 + l]
            for i in range(4):
                G[b * 16 + i * 4 + t] = R[b * 16 + i * 4 + t]
                C[b * 16 + i * 4 + t] = G[b * 16 + i * 4 + t]
""",  # noqa: E501
    "barriers": """
def f(A: T.Buffer((4, 64), "float32"), C: T.Buffer((64,), "float32")):
    T.inplace(C)
    with T.scratch((64,), "float32", scope="shared") as S:
        for tx in T.thread("threadIdx.x", 64, annotations={"shared": [0]}):
            for k in range(4):
                S[tx] = A[k, tx]
                C[tx] = C[tx] + S[63 - tx]
""",
    "barriers_of_two_stages": """
def f(A: T.Buffer((8, 64), "float32"), C: T.Buffer((64,), "float32")):
    T.inplace(C)
    with T.scratch((2, 64), "float32", scope="shared") as S:
        for tx in T.thread("threadIdx.x", 64, annotations={"shared": [0]}):
            S[0, tx] = A[0, tx]
            for k in range(7):
                S[(k + 1) % 2, tx] = A[k + 1, tx]
                C[tx] = C[tx] + S[k % 2, 63 - tx]
            C[tx] = C[tx] + S[1, 63 - tx]
""",
    "barriers_of_warps": """
def f(A: T.Buffer((4, 32), "float32"), C: T.Buffer((4, 32), "float32"), D: T.Buffer((128,), "float32")):
    with T.scratch((4, 32), "float32", scope="shared") as S:
        for ty in T.thread("threadIdx.y", 4):
            for tx in T.thread("threadIdx.x", 32, annotations={"shared": [0]}):
                S[ty, tx] = A[ty, tx]
                C[ty, tx] = S[ty, 31 - tx]
                S[ty, tx] = C[ty, tx]
                D[ty * 32 + tx] = S[3 - ty, tx]
""",  # noqa: E501
    "barriers_none": """
def f(A: T.Buffer((4, 64), "float32"), C: T.Buffer((4, 64), "float32")):
    with T.scratch((64,), "float32", scope="shared") as S:
        for tx in T.thread("threadIdx.x", 64, annotations={"shared": [0]}):
            for k in range(4):
                S[tx] = A[k, tx]
                C[k, tx] = S[tx] + S[tx]
""",
    "barriers_of_global_memory": """
def f(A: T.Buffer((4, 64), "float32"), C: T.Buffer((4, 64), "float32"), D: T.Buffer((4, 64), "float32")):
    for bx in T.thread("blockIdx.x", 4):
        for tx in T.thread("threadIdx.x", 64):
            C[bx, tx] = A[bx, tx]
            if bx < 3:
                D[bx, tx] = C[bx, tx // 2 * 2]
""",  # noqa: E501
    "barriers_between_overlaid": """
def f(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    with T.scratch((64,), "float32", scope="shared") as S:
        with T.scratch((64,), "int32", scope="shared") as R:
            for tx in T.thread("threadIdx.x", 64, annotations={"shared": [0, 0]}):
                S[tx] = A[tx]
                C[tx] = S[tx]
                R[tx] = T.int32(tx)
                C[tx] = C[tx] + T.float32(R[tx])
""",
    "arena": """
def f(A: T.Buffer((1024,), "float32"), C: T.Buffer((1024,), "float32")):
    with T.scratch((3,), "int8", scope="shared") as P:
        with T.scratch((1024,), "float32", scope="shared") as Q:
            with T.scratch((512,), "float64", scope="shared") as R:
                with T.scratch((1024,), "float32", scope="shared") as S:
                    for tx in T.thread("threadIdx.x", 1024):
                        Q[tx] = A[tx]
                        S[tx] = Q[1023 - tx]
                        if tx < 512:
                            R[tx] = T.float64(S[tx])
                            P[tx % 3] = T.int8(0)
                        C[tx] = T.float32(R[tx // 2])
""",
    "arena_of_little": """
def f(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    with T.scratch((3,), "int8", scope="shared") as P:
        with T.scratch((64,), "float32", scope="shared") as Q:
            for tx in T.thread("threadIdx.x", 64):
                Q[tx] = A[tx]
                C[tx] = Q[63 - tx]
                if tx < 3:
                    P[tx] = T.int8(0)
""",
    "collectives": """
def f(A: T.Buffer((4, 96), "float32"), C: T.Buffer((4, 32), "float32"), D: T.Buffer((4,), "float32")):
    P = T.alloc((32, 4), "float32", scope="shared")
    R = T.alloc((4,), "float32", scope="shared")
    Q = T.alloc((4,), "float32")
    for b in T.thread("blockIdx.x", 2):
        for ty in T.thread("threadIdx.y", 2):
            for tx in T.thread("threadIdx.x", 32):
                P[tx, b * 2 + ty] = 0.0
                for k in range(3):
                    P[tx, b * 2 + ty] = P[tx, b * 2 + ty] + A[b * 2 + ty, k * 32 + tx]
                if (tx == 0) & (b * 2 + ty < 3):
                    R[b * 2 + ty] = 0.0
                    for r in range(32):
                        R[b * 2 + ty] = R[b * 2 + ty] + P[r, b * 2 + ty]
                    Q[b * 2 + ty] = 1.0 / R[b * 2 + ty]
                    D[b * 2 + ty] = R[b * 2 + ty]
                if b * 2 + ty < 3:
                    C[b * 2 + ty, tx] = A[b * 2 + ty, tx] * Q[b * 2 + ty]
""",  # noqa: E501
    "collectives_of_blocks": """
def f(A: T.Buffer((4, 128), "int32"), C: T.Buffer((4,), "int32")):
    P = T.alloc((4, 128), "int32", scope="shared")
    for b in T.thread("blockIdx.x", 2):
        for tx in T.thread("threadIdx.x", 128):
            for i in range(2):
                P[b * 2 + i, tx] = A[b * 2 + i, tx]
            if tx == 0:
                for i in range(2):
                    C[b * 2 + i] = T.int32(7)
                    for r in range(100):
                        C[b * 2 + i] = T.maximum(P[b * 2 + i, r], C[b * 2 + i])
""",
    "collectives_of_other_rows": """
def f(A: T.Buffer((4, 32), "float32"), C: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
    P = T.alloc((4, 32), "float32", scope="shared")
    for ty in T.thread("threadIdx.y", 4):
        for tx in T.thread("threadIdx.x", 32):
            P[ty, tx] = A[ty, tx]
            if (tx == 0) & (ty == 0):
                for i in range(4):
                    C[i] = 0.0
                    for r in range(32):
                        C[i] = C[i] + P[i, r]
                for i in T.vectorized(4):
                    if C[i] < 0.0:
                        D[i] = 0.0
                    else:
                        D[i] = 1.0
""",
    "collectives_none": """
def f(A: T.Buffer((64,), "float32"), C: T.Buffer((1,), "float32")):
    P = T.alloc((64,), "float32", scope="shared")
    for tx in T.thread("threadIdx.x", 64):
        P[63 - tx] = A[tx]
        if tx == 0:
            C[0] = 0.0
            for r in range(64):
                C[0] = C[0] + P[r]
""",
    "vectors": """
def f(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "bfloat16"), C: T.Buffer((256,), "float32"), D: T.Buffer((256,), "float32")):
    for bx in T.thread("blockIdx.x", 4):
        for tx in T.thread("threadIdx.x", 8):
            for v in T.vectorized(8):
                C[bx * 64 + tx * 8 + v] = A[bx * 64 + tx * 8 + v] + T.float32(B[bx * 64 + tx * 8 + v]) * A[tx]
            for v in T.vectorized(4):
                D[bx * 64 + tx * 4 + v] = A[bx * 64 + tx * 4 + v]
            for v in T.vectorized(4):
                D[bx * 64 + tx + v * 8 + 32] = A[bx * 64 + tx * 4 + v + 1]
""",  # noqa: E501
    "vectors_under_guards": """
def f(A: T.Buffer((250,), "float32"), B: T.Buffer((250,), "float32"), C: T.Buffer((250,), "float32"), n: T.int64):
    for bx in T.thread("blockIdx.x", 8):
        for tx in T.thread("threadIdx.x", 8):
            for v in T.vectorized(4):
                if bx * 32 + tx * 4 + v < 248:
                    B[bx * 32 + tx * 4 + v] = A[bx * 32 + tx * 4 + v]
            for v in T.vectorized(4):
                if (bx * 32 + tx * 4 + v < 250) & (bx < 7):
                    C[bx * 32 + tx * 4 + v] = A[bx * 32 + tx * 4 + v]
            for v in T.vectorized(4):
                if A[bx * 8 + v] < 0.0:
                    C[bx * 32 + tx * 4 + v] = A[bx * 8 + v]
""",  # noqa: E501
    "vectors_or_zeros": """
def f(A: T.Buffer((250,), "float32"), B: T.Buffer((256,), "float32"), n: T.int64):
    for bx in T.thread("blockIdx.x", 8):
        for tx in T.thread("threadIdx.x", 8):
            for v in T.vectorized(4):
                B[bx * 32 + tx * 4 + v] = T.select((bx < n) & (bx * 32 + tx * 4 + v < 248), T.select(tx < n, A[bx * 32 + tx * 4 + v], 1.0), 0.0)
            for v in T.vectorized(4):
                B[bx * 32 + tx * 4 + v] = T.select(bx * 32 + tx * 4 + v < 250, A[bx * 32 + tx * 4 + v], 0.0)
            for v in T.vectorized(4):
                B[bx * 32 + tx * 4 + v] = T.select(bx < n, A[bx * 30 + v], 0.0)
""",  # noqa: E501
    "unroll_owned": """
def f(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for tx in T.thread("threadIdx.x", 4):
        with T.scratch((16,), "float32", scope="local") as R:
            for i in range(16):
                R[i] = A[tx * 16 + i]
            for k, i in T.grid(2, 16):
                j = 15 - i
                C[tx * 16 + i] = R[j]
""",
    "narrow": """
def f(A: T.Buffer((64,), "float32"), L: T.Buffer((64,), "int64"), H: T.Buffer((5000000000,), "int8"), n: T.int64):
    T.inplace(H)
    for tx in T.thread("threadIdx.x", 64):
        k = tx * 3 // 7
        A[k] = T.float32(k * 5 % 64)
        L[tx] = L[tx] * 2 + tx
        if tx + n < 64:
            A[tx] = 0.0
        for i in range(70000000):
            H[i * 71 + tx] = T.int8(i * 3 < 100)
        A[T.ramp(tx // 4 * 4, 1, 4)] = A[T.ramp(0, 1, 4)]
""",  # noqa: E501
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    before = parse(f"@tw.script{PROGRAMS[name]}")
    step = max((step for step in PASSES if name.startswith(step)), key=len)
    after = PASSES[step](before)
    check_structure(after, lowering=True)
    text = f"{func_text(before)}\n{RULE}\n{func_text(after)}\n"
    check_golden(GOLDENS / f"{name}.txt", text, update=request.config.getoption("--update"))


def test_each_golden_has_its_program() -> None:
    assert {path.stem for path in GOLDENS.glob("*.txt")} == set(PROGRAMS)


def lowered(text: str, until: str = "barriers") -> Func:
    func = parse(f"@tw.script\n{text}")
    for name, run in PASSES.items():
        func = run(func)
        if name == until:
            break
    return func


REFUSED = {
    "unbound": (
        """
def f(A: T.Buffer((4, 8), "float32")):
    for i, j in T.grid(4, 8):
        with T.block("A"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = 0.0
""",
        ["the nest of loops i, j is bound to no axis", 'sch.bind(i, "blockIdx.x")'],
    ),
    "parallel": (
        """
def f(A: T.Buffer((4,), "float32")):
    for i in T.parallel(4):
        A[i] = 0.0
""",
        ["loop i is parallel", "bind it to an axis"],
    ),
    "extents": (
        """
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((8,), "float32")):
    for k in range(2):
        for i in T.thread("threadIdx.x", 4):
            A[i] = 0.0
        for i in T.thread("threadIdx.x", 8):
            B[i] = 0.0
""",
        ["threadIdx.x has 4 and 8 iterations in one launch"],
    ),
    "not owned": (
        """
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    R = T.alloc((8,), "float32", scope="local")
    for k in range(2):
        for i in T.thread("threadIdx.x", 8):
            R[i] = A[i]
        for i in T.thread("threadIdx.x", 8):
            B[i] = R[7 - i]
""",
        [
            "elements of R, of scope local",
            "one thread each (along threadIdx.x)",
            "R[0] is used at tx=0 and at tx=7",
        ],
    ),
    "threads of other blocks": (
        """
def f(A: T.Buffer((6, 5), "float32"), S: T.float32):
    for i in T.thread("threadIdx.y", 6):
        for j in T.thread("blockIdx.x", 5):
            A[i, j] = 0.0
        for j in T.thread("threadIdx.x", 5):
            A[i, j] = A[i, j] + S
""",
        [
            "elements of A, of scope global",
            "one block each (along blockIdx.x)",
            "A[0, 1] is used at",
        ],
    ),
    "two launches": (
        """
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    S = T.alloc((8,), "float32", scope="shared")
    for i in T.thread("threadIdx.x", 8):
        S[i] = A[i]
    for i in T.thread("threadIdx.x", 8):
        B[i] = S[7 - i]
""",
        ["S, of scope shared, is used by more than one launch", "the loops over blockIdx"],
    ),
    "blocks share": (
        """
def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    for k in range(2):
        for i in T.thread("blockIdx.x", 4):
            A[i, 0] = 0.0
        for i in T.thread("blockIdx.x", 4):
            B[i, 0] = A[3 - i, 0]
""",
        ["elements of A, of scope global", "one block each", "a launch of its own"],
    ),
    "each block its own": (
        """
def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    G = T.alloc((8,), "float32")
    for b in T.thread("blockIdx.x", 4):
        for i in T.thread("threadIdx.x", 8):
            G[i] = A[b, i]
        for i in T.thread("threadIdx.x", 8):
            B[b, i] = G[7 - i]
""",
        ["elements of G, of scope global", "one block each", 'set_scope(.., "shared")'],
    ),
    "each thread its own": (
        """
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    S = T.alloc((1,), "float32", scope="shared")
    for i in T.thread("threadIdx.x", 8):
        S[0] = A[i]
        B[i] = S[0]
""",
        [
            "elements of S, of scope shared",
            "one thread each",
            "write S in a phase of its own",
            "compute_at a loop outside of threadIdx.x",
            'set_scope(.., "local")',
        ],
    ),
    "divergent": (
        """
def f(A: T.Buffer((4, 64), "float32"), B: T.Buffer((4, 64), "float32")):
    S = T.alloc((4, 64), "float32", scope="shared")
    for y in T.thread("threadIdx.y", 4):
        if y < 3:
            for x in T.thread("threadIdx.x", 64):
                S[y, x] = A[y, x]
            for x in T.thread("threadIdx.x", 64):
                B[y, x] = S[y, 63 - x]
""",
        [
            "threads wait for each other where y < 3, which does not hold for all",
            "tiles that divide",
        ],
    ),
    "divergent by a variable": (
        """
def f(A: T.Buffer((4, 64), "float32"), B: T.Buffer((2, 4, 64), "float32")):
    S = T.alloc((4, 64), "float32", scope="shared")
    for b in T.thread("blockIdx.x", 2):
        for y in T.thread("threadIdx.y", 4):
            p = A[y, 0]
            if p > 0.0:
                for x in T.thread("threadIdx.x", 64):
                    S[y, x] = A[y, x]
                for x in T.thread("threadIdx.x", 64):
                    B[b, y, x] = S[y, 63 - x]
""",
        ["threads wait for each other where p > 0.0, which does not hold for all"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_to_do(name: str) -> None:
    text, words = REFUSED[name]
    with pytest.raises(BuildError) as error:
        lowered(text.lstrip())
    assert [word for word in words if word not in str(error.value)] == [], str(error.value)


def test_axes_of_one_iteration_make_one_launch() -> None:
    func = lowered(
        """
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    S = T.alloc((8,), "float32", scope="shared")
    for o in T.thread("blockIdx.x", 1):
        for i in T.thread("threadIdx.x", 8):
            S[i] = A[i]
        for i in T.thread("threadIdx.x", 8):
            B[i] = S[7 - i]
""".lstrip()
    )
    assert len(launches_of(func)) == 1
    assert "blockIdx" not in str(func)


@pytest.mark.parametrize("around", ["range(1)", "T.unrolled(1)"])
def test_phases_in_a_loop_of_one_iteration_are_one_launch(around: str) -> None:
    func = lowered(
        f"""
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    S = T.alloc((8,), "float32", scope="shared")
    for k in {around}:
        for i in T.thread("threadIdx.x", 8):
            S[i] = A[i + k]
        for i in T.thread("threadIdx.x", 8):
            B[i] = S[7 - i - k]
""".lstrip()
    )
    (launch,) = launches_of(func)
    assert launch.extents("threadIdx") == (8, 1, 1)
    assert "for k" not in str(func)


def test_a_reduction_of_one_iteration_around_threads_starts_in_its_launch() -> None:
    func = lowered(
        """
def f(A: T.Buffer((8, 1), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for o in range(1):
        for k in range(1):
            for i in T.thread("threadIdx.x", 8):
                with T.block("B"):
                    v = T.axis.spatial(8, i)
                    r = T.axis.reduce(1, k)
                    with T.init():
                        B[v] = 0.0
                    B[v] = B[v] + A[v, r]
        for i in T.thread("threadIdx.x", 8):
            C[i] = B[i]
""".lstrip()
    )
    (launch,) = launches_of(func)
    assert "for k" not in str(func)
    assert len([s for s in flat(launch.code) if type(s) is Store]) == 3


def test_branches_may_be_one_object() -> None:
    func = parse(
        """
def f(A: T.Buffer((3,), "float32"), B: T.Buffer((3,), "float32")):
    L = T.alloc((3,), "float32", scope="local")
    for c in range(3):
        for t in T.thread("threadIdx.x", 3):
            L[t] = A[t]
        if c < 1:
            B[c] = L[c]
""".lstrip()
    )
    assert type(func.body) is For
    copy, branch = flat(func.body.body)
    assert type(branch) is If
    body = replace(func.body, body=seq(copy, replace(branch, other=branch.then)))
    with pytest.raises(BuildError):
        PASSES["phases"](replace(func, body=body))


def test_axes_of_one_iteration_bind_a_nest() -> None:
    func = lowered(
        """
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((1,), "float32")):
    for o in T.thread("blockIdx.x", 1):
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(1, o)
                r = T.axis.reduce(8, i)
                with T.init():
                    B[v] = 0.0
                B[v] = B[v] + A[r]
""".lstrip()
    )
    assert 'T.thread("threadIdx.x", 1' in str(func)


def test_barriers_of_warps_may_stand_where_whole_warps_diverge() -> None:
    func = lowered(
        """
def f(A: T.Buffer((4, 32), "float32"), B: T.Buffer((4, 32), "float32")):
    S = T.alloc((4, 32), "float32", scope="shared")
    for y in T.thread("threadIdx.y", 4):
        if y < 3:
            for x in T.thread("threadIdx.x", 32):
                S[y, x] = A[y, x]
            for x in T.thread("threadIdx.x", 32):
                B[y, x] = S[y, 31 - x]
""".lstrip()
    )
    assert str(func).count('T.barrier("warp")') == 1
    assert "block" not in str(func).replace("blockIdx", "")


@pytest.mark.parametrize(("value", "shuffles"), [("A[0, y]", 0), ("y * 2", 0), ("n", 4)])
def test_what_not_all_threads_get_to_is_not_combined_by_them(value: str, shuffles: int) -> None:
    """Half of a warp may get to it: the condition is on a variable that differs between threads."""
    func = lowered(
        f"""
def f(A: T.Buffer((4, 16), "int32"), B: T.Buffer((1, 4), "int32"), n: T.int64):
    P = T.alloc((4, 16), "int32", scope="shared")
    for b in T.thread("blockIdx.x", 1):
        for y in T.thread("threadIdx.y", 4):
            p = {value}
            if p > 1:
                for x in T.thread("threadIdx.x", 16):
                    P[y, x] = A[y, x]
                B[b, y] = 0
                for r in range(16):
                    B[b, y] = B[b, y] + P[y, r]
""".lstrip(),
        until="collectives",
    )
    assert str(func).count("shuffle") == shuffles


@pytest.mark.parametrize(
    ("first", "second"), [("S[3 - y, x]", "0.0"), ("A[3 - y, x]", "S[3 - y, x]")]
)
def test_all_threads_wait_before_a_branch_that_only_some_warps_take(
    first: str, second: str
) -> None:
    """What the branch reads of other warps is waited for outside of it, whichever phase reads."""
    func = lowered(
        f"""
def f(A: T.Buffer((4, 32), "float32"), B: T.Buffer((2, 2, 32), "float32")):
    S = T.alloc((4, 32), "float32", scope="shared")
    W = T.alloc((4, 32), "float32", scope="shared")
    for b in T.thread("blockIdx.x", 2):
        for y in T.thread("threadIdx.y", 4):
            for x in T.thread("threadIdx.x", 32):
                S[y, x] = A[y, x]
        for y in T.thread("threadIdx.y", 4):
            if y < 2:
                for x in T.thread("threadIdx.x", 32):
                    W[y, x] = {first}
                for x in T.thread("threadIdx.x", 32):
                    B[b, y, x] = W[y, 31 - x] + {second}
""".lstrip(),
        until="narrow",
    )
    before, branch = str(func).split("if ")
    assert before.count('T.barrier("block")') == 1
    assert 'T.barrier("block")' not in branch
    assert branch.count('T.barrier("warp")') == 1
    arrays = [np.arange(128, dtype=np.float32).reshape(4, 32), np.zeros((2, 2, 32), np.float32)]
    assert emulate(func, *arrays).faults == ()


@pytest.mark.parametrize(
    "alone",
    [
        "for v in T.vectorized(4):\n    C[v] = A[v]",
        "if n > 2:\n    C[0] = A[0]\nelse:\n    C[0] = A[1]",
    ],
)
def test_what_one_thread_does_alone_may_combine_nothing(alone: str) -> None:
    code = indent(alone, "            ")
    func = parse(
        f"""
@tw.script
def f(A: T.Buffer((4,), "float32"), n: T.int64, C: T.Buffer((4,), "float32")):
    for tx in T.thread("threadIdx.x", 32):
        if tx == 0:
{code}
"""
    )
    assert PASSES["collectives"](func) is func


def test_an_element_outlives_the_iteration_where_only_the_other_branch_writes_it() -> None:
    func = parse(
        """
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((4, 8), "float32")):
    L = T.alloc((8,), "float32", scope="local")
    for t in T.thread("threadIdx.x", 8):
        for k in range(4):
            if k % 4 < 1:
                L[t] = A[t]
                B[k, t] = L[t]
            else:
                B[k, t] = L[t]
""".lstrip()
    )
    arguments = [np.arange(8, dtype=np.float32), np.zeros((4, 8), np.float32)]
    check = check_program(func, CudaTarget.named("sm_90a"), arguments)
    assert check.right, str(check)


@pytest.mark.parametrize("rows", [16, 12])
@pytest.mark.parametrize(
    "condition", ["t < ROWS", "t * 4 + v < ROWS * 4", "t * 4 + v < ROWS * 4 - 2"]
)
def test_a_choice_that_reads_memory_is_made_where_guards_hold(rows: int, condition: str) -> None:
    text = f"""
def f(P: T.Buffer(({rows},), "float32"), A: T.Buffer(({rows}, 4), "float32"), B: T.Buffer(({rows}, 4), "float32")):
    T.inplace(B)
    for t in T.thread("threadIdx.x", 32):
        for v in T.vectorized(4):
            if {condition.replace("ROWS", str(rows))}:
                B[t, v] = T.select(P[t] < 8.0, A[t, v], 0.0)
"""  # noqa: E501
    func = lowered(text.lstrip(), until="narrow")
    p, b = np.arange(rows, dtype=np.float32), np.full(rows * 4, -1, np.float32)
    a = np.arange(rows * 4, dtype=np.float32)
    assert not emulate(func, p, a, b).faults
    expected = np.where(np.repeat(p, 4) < 8, a, 0)
    if condition.endswith("2"):
        expected[-2:] = -1
    assert b.tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32", "float8_e4m3fn"])
def test_lanes_without_a_part_change_no_extremum(name: str, dtype: str) -> None:
    """24 parts by 32 threads: eight of them combine the identity, in every dtype."""
    program = schedules.extremum(name, 2, 24, dtype, 32)
    func = lower(program, CudaTarget.named("sm_90a"))
    assert str(func).count("shuffle") == 5
    numbers = np.arange(48).reshape(2, 24) % 7 + 1
    if dtypes.is_float(dtype) or dtype == "int8":
        numbers = numbers if name == "min" else -numbers
    array, found = numbers.astype(dtypes.to_numpy(dtype)), np.zeros(2, dtypes.to_numpy(dtype))
    assert emulate(func, array, found).faults == ()
    expected = array.max(axis=1) if name == "max" else array.min(axis=1)
    np.testing.assert_array_equal(found, expected)
    text = emit(
        [Part(func, signature_of(program))], CudaTarget.named("sm_90a"), strict_fp=False
    ).text
    assert not re.search(r"(&&|\|\|) *__shfl", text)  # all threads take part in a shuffle


def test_registers_at_an_index_by_name_are_no_more_than_they_were() -> None:
    """Nothing is known of the values of a name."""
    func = lowered(
        """
def f(A: T.Buffer((4, 6), "float32"), B: T.Buffer((4, 6), "float32")):
    L = T.alloc((4, 6), "float32", scope="register")
    for t in T.thread("threadIdx.x", 4):
        same = t
        for k in range(6):
            L[same, k] = A[same, k]
        for k in range(6):
            B[same, k] = L[same, k]
""".lstrip(),
        until="compact",
    )
    sizes = [math.prod(integers(n.buffer.shape)) for n in walk(func) if type(n) is Alloc]
    assert sizes
    assert max(sizes) <= 24
