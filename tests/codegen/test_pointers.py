"""Pointers that LLVM makes of loops: results stay those of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.schedule import Schedule
from tilewright.tir.interpreter import interpret
from tilewright.tir.parser import parse


@pytest.mark.parametrize("condition", ["vi % 2 == 0", "vi < 1", "vi > 0"])
def test_a_loop_of_two_iterations_stores_to_either_element(condition: str) -> None:
    """Regression: `instcombine` joined the store of one iteration with the start of the next."""
    func = parse(f"""
@tw.script
def f(A: T.Buffer((2, 2), "int16"), B: T.Buffer((2,), "int32")):
    S = T.alloc((2,), "int32")
    P = T.alloc((3, 3), "int16")
    for p, q in T.grid(3, 3):
        with T.block("P"):
            vp, vq = T.axis.remap("SS", [p, q])
            P[vp, vq] = T.select((vq < 2) & (vp < 2), A[vq % 2, vp % 2], 0)
    for i in range(2):
        with T.block("start"):
            vi = T.axis.spatial(2, i)
            S[vi] = 0
        for k in range(2):
            with T.block("S"):
                vi, vk = T.axis.remap("SO", [i, k])
                if {condition}:
                    S[vi] = S[vi] // 2 + (S[vi] + T.int32(P[vi, vk]))
    for i in range(2):
        with T.block("B"):
            vi = T.axis.spatial(2, i)
            B[vi] = S[vi]
""")
    a = np.array([[101, 7], [-32, 55]], np.int16)
    found, wanted = np.zeros(2, np.int32), np.zeros(2, np.int32)
    tw.build(Schedule(func), "cpu -threads=1")(a, found)
    interpret(func, a, wanted)
    np.testing.assert_array_equal(found, wanted)
