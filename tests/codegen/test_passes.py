"""Golden tests of the lowering passes: the program before and after each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.cpu.lowering import passes
from tilewright.codegen.generator import Pass
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Buffer, Func
from tilewright.tir.parser import parse
from tilewright.tir.printer import func_text
from tilewright.tir.wellformed import check_structure

from ..golden import check_golden
from ..hosts import processor
from .machinery import assert_close, random_arguments

GOLDENS = Path(__file__).parent / "goldens"
RULE = "-" * 40
TARGET = "cpu -mcpu=skylake-avx512 -threads=2"
PASSES = passes(processor(TARGET))

PROGRAMS = {
    "blocks": """
def f(A: T.Buffer((6, 8), "float32"), C: T.Buffer((6,), "float32")):
    for i, k0, k1 in T.grid(6, 2, 4):
        with T.block("C"):
            vi = T.axis.spatial(6, i)
            vk = T.axis.reduce(8, k0 * 4 + k1)
            with T.init():
                C[vi] = 0.0
            C[vi] = C[vi] + A[vi, vk]
""",
    "blocks_init_among_others": """
def f(A: T.Buffer((3, 4), "float32"), C: T.Buffer((3,), "float32"), D: T.Buffer((4,), "float32")):
    for k in range(4):
        for i in range(3):
            with T.block("C"):
                vi = T.axis.spatial(3, i)
                vk = T.axis.reduce(4, k)
                with T.init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vi, vk]
        with T.block("D"):
            v = T.axis.spatial(4, k)
            D[v] = A[0, v]
""",
    "blocks_init_alone": """
def f(C: T.Buffer((3,), "float32"), D: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 4):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 1.0
            pass
    for k0, i, k1 in T.grid(2, 3, 2):
        with T.block("D"):
            vi = T.axis.spatial(3, i)
            vk = T.axis.reduce(4, k0 * 2 + k1)
            with T.init():
                D[vi] = 2.0
            pass
""",
    "blocks_predicate": """
def f(A: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32")):
    for i0, i1 in T.grid(2, 4):
        with T.block("C"):
            v = T.axis.spatial(7, i0 * 4 + i1)
            T.where(i0 * 4 + i1 < 7)
            C[v] = A[v]
""",
    "trim": """
def f(A: T.Buffer((13,), "float32")):
    for i, j in T.grid(4, 8):
        if i * 8 + j < 13:
            A[i * 8 + j] = 1.0
""",
    "trim_repeats": """
def f(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    R = T.alloc((8,), "float32")
    for x in range(2):
        for j in range(4):
            if x * 4 + j < 4:
                R[x * 4 + j] = A[x * 4 + j]
        for j in range(4):
            C[j] = R[j] + 1.0
""",
    "hoist": """
def f(A: T.Buffer((4, 8), "float32"), S: T.Buffer((4,), "float32"), C: T.Buffer((4, 8), "float32")):
    for i in range(4):
        for j0 in range(2):
            for j1 in T.vectorized(4):
                if A[i, 0] > 0.0:
                    C[i, j0 * 4 + j1] = A[i, j0 * 4 + j1] * S[i]
                C[i, j0 * 4 + j1] = (A[i, j0 * 4 + j1] - S[i] / 8.0) * (S[i] / 8.0 + C[i, 0])
""",
    "compact": """
def f(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
    B = T.alloc((32,), "float32")
    for i in T.parallel(4):
        for j in range(8):
            B[i * 8 + j] = A[i * 8 + j] + 1.0
        for j in range(8):
            C[i * 8 + j] = B[i * 8 + j] * 2.0
""",
    "compact_carried": """
def f(A: T.Buffer((4,), "float32"), C: T.Buffer((4, 2), "float32")):
    B = T.alloc((4,), "float32")
    for k, i in T.grid(2, 4):
        if k == 0:
            B[i] = 0.0
        B[i] = B[i] + A[i]
        C[i, k] = B[i]
""",
    "trim_else": """
def f(A: T.Buffer((8, 4), "float32"), X: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i, j in T.grid(8, 4):
        if i < 3:
            X[j] = A[i, j]
        else:
            C[j] = A[0, j]
""",
    "trim_what_is_read_between": """
def f(A: T.Buffer((8, 4), "float32"), X: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for j in range(4):
        X[j] = 0.0
    for i, j in T.grid(8, 4):
        if i < 3:
            X[j] = A[i, j]
        C[j] = X[(j + 1) % 4]
""",
    "trim_what_is_read_after": """
def f(A: T.Buffer((8, 4), "float32"), X: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(8):
        for j in range(4):
            if i < 3:
                X[j] = A[i, j]
        for j in range(4):
            C[j] = X[(j + 1) % 4]
""",
    "tails": """
def f(A: T.Buffer((29,), "float32")):
    for i in range(4):
        for j in T.unrolled(8):
            if i * 8 + j < 29:
                A[i * 8 + j] = 1.0
""",
    "tails_fused": """
def f(A: T.Buffer((2, 29), "float32")):
    for f in T.parallel(4):
        for i in range(2):
            for j in T.unrolled(8):
                if f % 2 * 16 + i * 8 + j < 29:
                    A[f // 2, f % 2 * 16 + i * 8 + j] = 1.0
""",
    "tails_without_prefetch_beyond": """
def f(A: T.Buffer((29,), "float32"), B: T.Buffer((64,), "float32")):
    for f in T.parallel(2):
        for i in range(4):
            for k in range(2):
                T.prefetch(B[f * 32 + i * 8 + k])
                for j in T.unrolled(8):
                    if f * 32 + i * 8 + j < 29:
                        A[f * 32 + i * 8 + j] = B[f * 32 + i * 8 + j]
""",
    "tails_with_unguarded": """
def f(A: T.Buffer((9,), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        C[i] = 2.0
        for j in T.unrolled(4):
            if i * 4 + j < 9:
                A[i * 4 + j] = 1.0
""",
    "tails_that_are_none": """
def f(A: T.Buffer((3,), "float32"), C: T.Buffer((6,), "float32")):
    for k in range(3):
        A[k] = 1.0
        for i in range(6):
            if k < 5:
                C[i] = 2.0
""",
    "flatten": """
def f(A: T.Buffer((4, 6), "float32", strides=(1, 4)), C: T.Buffer((4, 6), "float32")):
    for i, j in T.grid(4, 6):
        C[i, j] = A[i, j]
""",
    "instructions": """
def f(
    A: T.Buffer((8,), "uint8"), B: T.Buffer((32,), "int8"), C: T.Buffer((96,), "int32")
):
    T.inplace(C)
    for n, m in T.grid(3, 2):
        for j in T.serial(8, annotations={"tensor_intrin": "dot_8x4_vnni"}):
            for k in range(4):
                C[n * 32 + j] = C[n * 32 + j] + T.int32(A[m * 4 + k]) * T.int32(B[j * 4 + k])
""",
    "instructions_scattered": """
def f(A: T.Buffer((8,), "uint8"), B: T.Buffer((128,), "int8"), C: T.Buffer((64,), "int32")):
    T.inplace(C)
    for m in range(2):
        for j in T.serial(8, annotations={"tensor_intrin": "dot_8x4_vnni"}):
            for k in range(4):
                C[j * 2] = C[j * 2] + T.int32(B[j * 16 + k]) * T.int32(A[m * 4 + k])
""",
    "vectorize": """
def f(A: T.Buffer((20,), "float32"), C: T.Buffer((20,), "float32")):
    for j in T.vectorized(20):
        C[j] = A[j] * 2.0
""",
    "vectorize_repeated": """
def f(A: T.Buffer((33,), "float32"), B: T.Buffer((64,), "float32")):
    for j_0 in range(4):
        for j_1 in T.vectorized(16):
            B[j_0 * 16 + j_1] = A[(j_0 * 16 + j_1) // 2] + A[(j_0 * 16 + j_1 + 1) // 2]
""",
    "vectorize_around_a_loop": """
def f(A: T.Buffer((120,), "float32"), C: T.Buffer((120,), "float32")):
    for i in T.vectorized(40):
        for j in range(3):
            C[i * 3 + j] = A[i * 3 + j] * 2.0
""",
    "vectorize_masks": """
def f(n: T.int64, A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for j in T.vectorized(16):
        C[j] = T.select(j < n, A[j + n], 0.0)
""",
    "vectorize_masks_unneeded": """
def f(n: T.int64, A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for j in T.vectorized(16):
        C[j] = T.select(j < n, A[j], A[T.maximum(j - n, 0)])
""",
    "vectorize_near": """
def f(A: T.Buffer((36,), "float32"), B: T.Buffer((23,), "float32")):
    for j in T.vectorized(23):
        B[j] = A[T.minimum(T.maximum(j - 2, 0), 19)] + A[(j + 22) % 23] + A[T.maximum(j * 2 - 9, 0)]
""",
    "vectorize_unbent": """
def f(A: T.Buffer((150,), "float32"), B: T.Buffer((144,), "float32")):
    for i in T.parallel(3):
        for j_0 in range(2):
            for j_1 in T.vectorized(24):
                B[i * 48 + j_0 * 24 + j_1] = A[T.maximum(i - 1, 0) * 50 + T.minimum(T.maximum(j_0 * 24 + j_1 - 3, 0), 49)] + A[i * 50 + (j_0 * 24 + j_1 + 47) % 50]
""",  # noqa: E501
    "vectorize_unbent_reflected": """
def f(A: T.Buffer((150,), "float32"), B: T.Buffer((144,), "float32")):
    for i in T.parallel(3):
        for j_0 in range(6):
            for j_1 in T.vectorized(8):
                B[i * 48 + j_0 * 8 + j_1] = A[i * 50 + T.abs(j_0 * 8 + j_1 - 3)] + A[i * 50 + T.select(j_0 * 8 + j_1 >= 45, 92 - j_0 * 8 - j_1, j_0 * 8 + j_1 + 5)]
""",  # noqa: E501
    "vectorize_unbent_selected": """
def f(A: T.Buffer((40,), "float32"), B: T.Buffer((48,), "float32")):
    for j_0 in range(6):
        for j_1 in T.vectorized(8):
            B[j_0 * 8 + j_1] = A[T.select(j_0 >= 5, 79 - j_0 * 8 - j_1, j_0 * 8 + j_1)]
""",
    "vectorize_unbent_unknown": """
def f(n: T.int64, A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for j in T.vectorized(16):
        C[j] = A[T.minimum(T.maximum(j - n, 0), 15)]
""",
    "vectorize_shared": """
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((64,), "float32"), D: T.Buffer((64,), "float32"), E: T.Buffer((64,), "float32")):
    for i in range(8):
        for j in T.vectorized(8):
            C[i * 8 + j] = T.select(j < i, A[i - 1], 0.0)
        for j in T.vectorized(8):
            D[i * 8 + j] = T.select(j < i, A[i], 0.0)
        for j in T.vectorized(8):
            E[i * 8 + j] = T.select(j <= i, A[i * (7 - i) // 2], 0.0)
""",  # noqa: E501
    "vectorize_prefetch": """
def f(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32"), P: T.Buffer((64,), "int64")):
    for j in T.vectorized(20):
        T.prefetch(A[j + 100])
        T.prefetch(A[j * 8])
        T.prefetch(A[7])
        T.prefetch(A[P[j]])
        if j < 18:
            T.prefetch(A[P[0]])
        C[j] = A[j]
""",
    "flatten_prefetch": """
def f(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
    for i, j in T.grid(4, 8):
        T.prefetch(A[i + 1, j])
        C[i, j] = A[i, j]
""",
    "trim_prefetch": """
def f(A: T.Buffer((13,), "float32"), C: T.Buffer((13,), "float32")):
    for i in range(4):
        for j in range(8):
            if i * 8 + j < 13:
                C[i * 8 + j] = A[i * 8 + j]
    for l in range(2):
        T.prefetch(A[l * 16])
""",
    "tree_reduce": """
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
    with T.scratch((8,), "float32", scope="register") as R:
        for j in T.unrolled(8):
            R[j] = A[j]
        C[0] = 0.0
        for j in T.unrolled(8):
            C[0] = C[0] + R[j]
""",
    "tree_reduce_in_order": """
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
    with T.scratch((8,), "float32", scope="register") as R:
        with T.scratch((8,), "float32", scope="register") as Q:
            for j in T.unrolled(8):
                R[j] = A[j]
                Q[j] = A[j]
            C[0] = 0.0
            for j in T.unrolled(8):
                Q[7] = Q[7] + R[j]
                C[0] = C[0] + Q[j]
""",
    "tree_reduce_several": """
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32"), D: T.Buffer((1,), "float32")):
    with T.scratch((8,), "float32", scope="register") as R:
        for j in T.unrolled(8):
            R[j] = A[j]
        C[0] = 0.0
        D[0] = 0.0
        for j in T.unrolled(8):
            C[0] = C[0] + R[j]
            D[0] = T.maximum(D[0], R[j])
""",
    "unroll": """
def f(A: T.Buffer((6,), "float32"), C: T.Buffer((6,), "float32")):
    for i in range(2):
        for j in T.unrolled(3):
            if j < 2:
                C[i * 3 + j] = A[i * 3 + j]
            else:
                C[i * 3 + j] = 0.0
""",
    "carry": """
def f(X: T.Buffer((96,), "float32"), Y: T.Buffer((96,), "float32")):
    for i in range(3):
        Y[i * 32] = X[i * 32]
        for t in range(1, 32):
            Y[i * 32 + t] = Y[i * 32 + t - 1] * 0.5 + X[i * 32 + t]
""",
    "carry_second_order": """
def f(X: T.Buffer((32,), "float32"), Y: T.Buffer((32,), "float32")):
    for t in range(32):
        Y[t] = X[t] + T.select(t > 1, Y[t - 2] * 0.5 + Y[t - 1], 0.0)
""",
    "carry_vectors": """
def f(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
    T.inplace(Y)
    for t in range(15):
        T.store(Y[T.ramp(t * 4 + 4, 1, 4)], Y[T.ramp(t * 4, 1, 4)] + X[T.ramp(t * 4, 1, 4)])
        T.store(Y[T.ramp(t * 4 + 4, 1, 4)], Y[T.ramp(t * 4 + 4, 1, 4)] * X[T.ramp(0, 1, 4)])
""",
    "registers": """
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
    with T.scratch((8,), "float32", scope="register") as R:
        R[T.ramp(0, 1, 4)] = A[T.ramp(0, 1, 4)]
        R[T.ramp(4, 1, 4)] = A[T.ramp(4, 1, 4)]
        C[0] = R[1] + R[6]
""",
    "peel": """
def f(A: T.Buffer((3, 100), "float32"), B: T.Buffer((3, 100), "float32")):
    for i, j_0 in T.grid(3, 7):
        for j_1 in T.vectorized(16):
            if j_0 * 16 + j_1 < 100:
                B[i, j_0 * 16 + j_1] = A[i, T.minimum(T.maximum(j_0 * 16 + j_1 - 2, 0), 99)] + A[i, T.minimum(j_0 * 16 + j_1 + 1, 99)]
""",  # noqa: E501
    "peel_wrapped": """
def f(A: T.Buffer((4, 50), "float32"), B: T.Buffer((4, 50), "float32")):
    for i, j in T.grid(4, 50):
        B[i, j] = A[(i + 1) % 4, (j + 1) % 50] + A[i, (j + 49) % 50]
""",
    "peel_reflected": """
def f(A: T.Buffer((4, 50), "float32"), B: T.Buffer((4, 50), "float32")):
    for i, j in T.grid(4, 50):
        B[i, j] = A[T.abs(i - 1), T.select(j - 1 < 0, 1 - j, j - 1)] + A[i, 49 - T.abs(47 - j)]
""",
    "peel_digits_of_conditions": """
def f(A: T.Buffer((40,), "float32"), B: T.Buffer((48,), "float32")):
    for j_0, j_1 in T.grid(3, 2):
        for j_2 in T.vectorized(8):
            B[j_0 * 16 + j_1 * 8 + j_2] = A[T.maximum(j_0 * 16 + j_1 * 8 + j_2 - 9, 0)] + A[T.select(j_0 * 2 + j_1 >= 5, 79 - j_0 * 16 - j_1 * 8 - j_2, j_0 * 16 + j_1 * 8 + j_2)]
""",  # noqa: E501
    "peel_masked": """
def f(A: T.Buffer((30,), "float32"), B: T.Buffer((32,), "float32")):
    for j in T.vectorized(32):
        B[j] = T.select((j - 1 >= 0) & (j - 1 < 30), A[T.minimum(T.maximum(j - 1, 0), 29)], 0.0)
""",
    "peel_halves": """
def f(A: T.Buffer((32,), "float32"), B: T.Buffer((64,), "float32")):
    for j in range(64):
        B[j] = A[j // 2] + A[T.minimum((j + 1) // 2, 31)]
""",
    "peel_whole_vectors": """
def f(A: T.Buffer((48,), "float32"), B: T.Buffer((48,), "float32")):
    for j_0 in range(2):
        for j_1 in T.unrolled(2):
            for j_2 in T.vectorized(16):
                if j_0 * 2 + j_1 < 3:
                    B[j_0 * 32 + j_1 * 16 + j_2] = A[T.maximum(j_0 * 32 + j_1 * 16 + j_2 - 1, 0)]
""",
    "peel_dependent": """
def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    T.inplace(B)
    for j in range(64):
        B[j] = A[j] + B[T.maximum(j - 1, 0)]
""",
    "peel_shared_result": """
def f(A: T.Buffer((64,), "float32"), B: T.Buffer((66,), "float32")):
    T.inplace(B)
    for j, k in T.grid(64, 3):
        B[j + k] = B[j + k] + A[T.maximum(j - 1, 0)]
""",
    "drop_masks": """
def f(A: T.Buffer((2,), "float32"), B: T.Buffer((3,), "float32"), C: T.Buffer((3,), "float32")):
    with T.scratch((4,), "float32", scope="register") as R:
        R[T.ramp(0, 1, 4)] = T.broadcast(T.float32(0.0), 4)
        T.store(R[T.ramp(0, 1, 4)], T.load(R[T.ramp(0, 1, 4)], mask=T.ramp(0, 1, 4) < T.broadcast(3, 4)) + T.load(A[T.broadcast(1, 4)], mask=T.ramp(0, 1, 4) < T.broadcast(3, 4)) * T.load(B[T.ramp(0, 1, 4)], mask=T.ramp(0, 1, 4) < T.broadcast(3, 4)), mask=T.ramp(0, 1, 4) < T.broadcast(3, 4))
        T.store(C[T.ramp(0, 1, 4)], T.load(R[T.ramp(0, 1, 4)], mask=T.ramp(0, 1, 4) < T.broadcast(3, 4)), mask=T.ramp(0, 1, 4) < T.broadcast(3, 4))
""",  # noqa: E501
    "drop_masks_seen": """
def f(B: T.Buffer((3,), "float32"), C: T.Buffer((4,), "float32")):
    with T.scratch((4,), "float32", scope="register") as R:
        R[T.ramp(0, 1, 4)] = T.broadcast(T.float32(1.0), 4)
        T.store(R[T.ramp(0, 1, 4)], T.load(B[T.ramp(0, 1, 4)], mask=T.ramp(0, 1, 4) < T.broadcast(3, 4)), mask=T.ramp(0, 1, 4) < T.broadcast(3, 4))
        C[T.ramp(0, 1, 4)] = R[T.ramp(0, 1, 4)]
""",  # noqa: E501
    "drop_masks_picked": """
def f(A: T.Buffer((6,), "float32"), C: T.Buffer((2,), "float32"), D: T.Buffer((4,), "float32")):
    with T.scratch((4,), "float32", scope="register") as R:
        with T.scratch((4,), "float32", scope="register") as S:
            R[T.ramp(0, 1, 4)] = T.broadcast(T.float32(0.0), 4)
            S[T.ramp(0, 1, 4)] = T.broadcast(T.float32(0.0), 4)
            T.store(R[T.ramp(0, 1, 4)], T.load(A[T.ramp(0, 1, 4)], mask=T.ramp(0, 1, 4) < T.broadcast(3, 4)), mask=T.ramp(0, 1, 4) < T.broadcast(3, 4))
            T.store(S[T.ramp(0, 1, 4)], T.load(A[T.ramp(3, 1, 4)], mask=T.ramp(0, 1, 4) < T.broadcast(3, 4)), mask=T.ramp(0, 1, 4) < T.broadcast(3, 4))
            C[T.ramp(0, 1, 2)] = T.shuffle(R[T.ramp(0, 1, 4)] * S[T.ramp(0, 1, 4)], R[T.ramp(0, 1, 4)], [2, 5])
            D[T.ramp(0, 1, 4)] = T.shuffle(S[T.ramp(0, 1, 4)], S[T.ramp(0, 1, 4)], [0, 1, 2, 7])
""",  # noqa: E501
    "partial_sums": """
def f(X: T.Buffer((2, 300), "float32"), C: T.Buffer((1,), "float32")):
    with T.scratch((1,), "float32", scope="register") as R:
        R[0] = 0.0
        for k in range(300):
            R[0] = R[0] + X[0, k]
            R[0] = R[0] + X[1, k]
        C[0] = R[0]
""",
    "partial_sums_rest": """
def f(X: T.Buffer((4, 131), "float32"), C: T.Buffer((4,), "float32")):
    with T.scratch((4,), "float32", scope="register") as R:
        R[T.ramp(0, 1, 4)] = T.broadcast(T.float32(0.0), 4)
        for k in range(131):
            for i in range(4):
                R[T.ramp(0, 1, 4)] = R[T.ramp(0, 1, 4)] + T.broadcast(X[i, k], 4)
        C[T.ramp(0, 1, 4)] = R[T.ramp(0, 1, 4)]
""",
    "partial_sums_products": """
def f(X: T.Buffer((2, 300), "float32"), C: T.Buffer((1,), "float32")):
    with T.scratch((1,), "float32", scope="register") as R:
        R[0] = 0.0
        for k in range(300):
            R[0] = R[0] + X[0, k] * X[1, k]
        C[0] = R[0]
""",
    "partial_sums_read": """
def f(X: T.Buffer((300,), "float32"), C: T.Buffer((300,), "float32")):
    with T.scratch((1,), "float32", scope="register") as R:
        R[0] = 0.0
        for k in range(300):
            R[0] = R[0] + X[k]
            C[k] = R[0]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    before = parse(f"@tw.script{PROGRAMS[name]}")
    after = pass_of(name).run(before)
    text = f"{func_text(before)}\n{RULE}\n{func_text(after)}\n"
    check_golden(GOLDENS / f"{name}.txt", text, update=request.config.getoption("--update"))
    check_structure(after, lowering=True)
    check_meaning(before, after)


def check_meaning(before: Func, after: Func) -> None:
    expected, found = random_arguments(before), random_arguments(before)
    interpret(before, *expected)
    shaped = [
        flat(a) if isinstance(p, Buffer) and p.shape != np.shape(a) else a
        for a, p in zip(found, after.params, strict=True)
    ]
    interpret(after, *shaped)
    for p, x, y in zip(before.params, expected, found, strict=True):
        assert_close(np.asarray(x), np.asarray(y), None, p.name)


def flat(a: np.ndarray) -> np.ndarray:
    """The memory of an array that covers all of its own."""
    return a.reshape(-1) if a.flags.c_contiguous else a.T.reshape(-1)


def pass_of(program: str) -> Pass:
    """The pass whose name a program's starts with."""
    (found,) = [p for p in PASSES if f"{program}_".startswith(f"{p.name}_")]
    return found


def test_each_pass_has_a_golden_file_and_each_file_a_program() -> None:
    assert {p.name for p in PASSES} <= PROGRAMS.keys()
    assert {p.stem for p in GOLDENS.iterdir()} == PROGRAMS.keys()


def test_a_pass_that_has_nothing_to_do_gives_the_same_program() -> None:
    program = parse(
        """
@tw.script
def f(C: T.Buffer((4,), "float32")):
    for i in range(4):
        C[i] = 1.0
"""
    )
    for step in PASSES:
        if step.name != "flatten":
            assert step.run(program) is program, step.name
