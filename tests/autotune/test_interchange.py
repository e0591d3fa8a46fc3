"""The program that results are checked against runs along memory, with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune.measure.interchange import interchanged
from tilewright.codegen.build import compile_func, to_module
from tilewright.tir.ir import Buffer, For, Func, integers
from tilewright.tir.parser import parse
from tilewright.tir.visit import walk


@pytest.mark.parametrize(
    ("op", "options", "turned"),
    [
        ("matmul", {"n": 33, "m": 50, "k": 17}, True),
        ("matmul", {"n": 9, "m": 19, "k": 16, "bias": True, "epilogue": "relu"}, True),
        ("matmul", {"n": 9, "m": 19, "k": 16, "transpose_b": True}, False),
        ("conv2d", {"c": 5, "h": 9, "w": 19, "o": 7}, True),
        ("reduction", {"n": 21, "m": 35, "axis": 0}, True),
        ("reduction", {"n": 21, "m": 35, "axis": 1, "kind": "argmax"}, False),
        ("add_relu", {"n": 131}, False),
    ],
)
def test_same_bits(op: str, options: dict[str, Any], turned: bool) -> None:
    func = getattr(ops, f"{op}_func")(**options)
    other = interchanged(func)
    assert (other is not func) is turned
    np.testing.assert_array_equal(result(other), result(func))


@pytest.mark.parametrize(("order", "turned"), [("ijk", True), ("ikj", False), ("kij", False)])
def test_loops_in_another_order_than_the_variables(order: str, turned: bool) -> None:
    """Those that are along memory already stay."""
    schedule = tw.Schedule(ops.matmul_func(13, 32, 8))
    loops = dict(zip("ijk", schedule.get_loops(schedule.get_block("C")), strict=True))
    schedule.reorder(*(loops[name] for name in order))
    func = schedule.func
    other = interchanged(func)
    assert (other is not func) is turned
    *_, innermost = (n.var for n in walk(other) if type(n) is For)
    assert innermost is loops["j"]
    np.testing.assert_array_equal(result(other), result(func))


def test_a_program_that_is_scheduled_stays_right() -> None:
    schedule = tw.Schedule(ops.matmul_func(13, 32, 8))
    i, j, k = schedule.get_loops(schedule.get_block("C"))
    outer, _ = schedule.split(k, factors=[None, 4])
    schedule.reorder(outer, i, j)
    func = schedule.func
    np.testing.assert_allclose(result(interchanged(func)), result(func), rtol=1e-6)


def test_blocks_of_one_name() -> None:
    func = parse("""
def f(
    A: T.Buffer((9, 8), "float32"),
    B: T.Buffer((8, 19), "float32"),
    C: T.Buffer((19, 19), "float32"),
    D: T.Buffer((9, 19), "float32"),
    E: T.Buffer((9, 19), "float32"),
):
    for i, j, k in T.grid(9, 19, 8):
        with T.block("X"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                D[vi, vj] = 0.0
            D[vi, vj] = D[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j, k in T.grid(9, 19, 19):
        with T.block("X"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                E[vi, vj] = 0.0
            E[vi, vj] = E[vi, vj] + D[vi, vk] * C[vk, vj]
""")
    other = interchanged(func)
    loops = [n.var.name for n in walk(other) if type(n) is For]
    assert loops.count("k") == 2
    assert all(loops[at + 1 : at + 2] == ["j"] for at, name in enumerate(loops) if name == "k")
    np.testing.assert_array_equal(result(other), result(func))


def result(func: Func) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    buffers = [p for p in func.params if isinstance(p, Buffer)]
    arrays = [rng.random(integers(b.shape)).astype(b.dtype) for b in buffers]
    to_module(compile_func(func, "cpu -threads=1"))(*arrays)
    return arrays[-1]
