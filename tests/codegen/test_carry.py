"""What serial loops store and load again is carried in registers, and only that."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import ops
from tilewright.base import dtypes
from tilewright.codegen.build import compile_func
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.detect import resolve
from tilewright.codegen.lower import lower
from tilewright.schedule import Schedule
from tilewright.tir.ir import For, Func, Load, Store
from tilewright.tir.parser import parse
from tilewright.tir.visit import walk

from .machinery import SERIAL, check, random_arguments

N = 40
ONE = {
    "alone": "Y[i, 5] = Y[i, 5] * 0.5 + X[i, t]",
    "others made of it": "Y[i, 5] = Y[i, 5] * 0.5 + X[i, t]\n            Z[i, t] = Y[i, 5]",
    "another beside it": "Y[i, 5] = Y[i, 6] + X[i, t]\n            Y[i, 6] = Y[i, 5] * 0.5",
    "in some rows": "if i != 2:\n                Y[i, 5] = Y[i, 5] * 0.5 + X[i, t]",
    "at times changed": "Y[i, 5] = Y[i, 5] + X[i, t]\n            if X[i, t] > 0.0:\n"
    "                Y[i, 5] = Y[i, 5] * 0.5",
    "seen by other loads": "Y[i, 5] = Y[i, 5] * 0.5 + X[i, t] * Y[i, P[t]]",
}
CARRIED = {
    "first order": ("range(1, 40)", "Y[i, t] = 0.5 * Y[i, t - 1] + X[i, t]"),
    "second order": ("range(2, 40)", "Y[i, t] = 0.5 * Y[i, t - 1] - 0.3 * Y[i, t - 2] + X[i, t]"),
    "second element only": ("range(2, 40)", "Y[i, t] = 0.5 * Y[i, t - 2] + X[i, t]"),
    "fourth order": ("range(4, 40)", "Y[i, t] = Y[i, t - 4] * 0.5 + X[i, t] + Y[i, t - 1] * 0.1"),
    "back in time": ("range(39)", "Y[i, 38 - t] = 0.5 * Y[i, 39 - t] + X[i, t]"),
    "in place": ("range(1, 40)", "Y[i, t] = Y[i, t] * 0.5 + Y[i, t - 1] * 0.25"),
    "every second": ("range(1, 20)", "Y[i, 2 * t] = Y[i, 2 * t - 2] * 0.5 + Y[i, 2 * t - 1]"),
    "first case": ("range(40)", "Y[i, t] = T.select(t > 0, Y[i, t - 1], 0.0) * 0.5 + X[i, t]"),
    "first case set apart": (
        "range(40)",
        "if t > 0:\n                Y[i, t] = Y[i, t - 1] * 0.5 + X[i, t]\n"
        "            else:\n                Y[i, t] = X[i, t]",
    ),
    "two cases": (
        "range(40)",
        "Y[i, t] = T.select(t > 1, Y[i, t - 1] + T.select(t > 3, Y[i, t - 2], X[i, t]), 1.0) * 0.5",
    ),
    "case by data": (
        "range(1, 40)",
        "Y[i, t] = T.select(X[i, t] > 0.0, Y[i, t - 1], 0.5) + 0.25",
    ),
    "guard of rows": (
        "range(1, 40)",
        "if i != 2:\n                Y[i, t] = Y[i, t - 1] + X[i, t]",
    ),
    "twice": (
        "range(1, 40)",
        "Y[i, t] = Y[i, t - 1] + X[i, t]\n            Y[i, t] = T.minimum(Y[i, t], 1.0)",
    ),
    "changed under a condition": (
        "range(1, 40)",
        "Y[i, t] = Y[i, t - 1] + X[i, t]\n"
        "            if X[i, t] > 0.0:\n                Y[i, t] = Y[i, t] * 0.5",
    ),
    "stored before its turn": (
        "range(1, 39)",
        "Y[i, t] = Y[i, t - 1] + X[i, t]\n            Y[i, t + 1] = X[i, t]",
    ),
    "stored again later": (
        "range(2, 40)",
        "Y[i, t] = Y[i, t - 2] + X[i, t]\n            Y[i, t - 1] = X[i, t]",
    ),
    "two buffers": (
        "range(1, 40)",
        "Y[i, t] = 0.5 * Y[i, t - 1] + Z[i, t - 1]\n"
        "            Z[i, t] = Y[i, t] + Z[i, t - 1] * 0.5",
    ),
    **{f"one element, {name}": ("range(40)", body) for name, body in ONE.items()},
}
"""The loop over `t` and its body."""
IN_MEMORY = {
    "stored sometimes": (
        "range(1, 40)",
        "if X[i, t] > 0.0:\n                Y[i, t] = Y[i, t - 1] + X[i, t]",
    ),
    "overwritten at places of data": (
        "range(1, 40)",
        "Y[i, t] = Y[i, t - 1] + X[i, t]\n            Y[i, P[t]] = X[i, t]",
    ),
    "overwritten after": (
        "range(1, 40)",
        "Y[i, t] = Y[i, t - 1] + X[i, t]\n            Y[i, 39 - t] = X[i, t]",
    ),
    "not yet stored": ("range(39)", "Y[i, t] = Y[i, t + 1] * 0.5 + X[i, t]"),
    "at places of data": ("range(1, 40)", "Y[i, t] = Y[i, P[t]] + X[i, t]"),
    "another distance each time": ("range(1, 40)", "Y[i, t] = Y[i, t // 2] + X[i, t]"),
    "one element, stored sometimes": (
        "range(40)",
        "if X[i, t] > 0.0:\n                Y[i, 5] = Y[i, 5] + X[i, t]",
    ),
    "one element that another store meets": (
        "range(1, 40)",
        "Y[i, 5] = Y[i, 5] * 0.5 + X[i, t]\n            Y[i, t] = X[i, t]",
    ),
    "too long ago": ("range(8, 40)", "Y[i, t] = Y[i, t - 8] + X[i, t]"),
}


def program(loop: str, body: str) -> Func:
    return parse(f"""
@tw.script
def f(
    X: T.Buffer((5, {N}), "float32"),
    P: T.Buffer(({N},), "int32", value_range=(0, {N})),
    Y: T.Buffer((5, {N}), "float32"),
    Z: T.Buffer((5, {N}), "float32"),
):
    T.inplace(Y, Z)
    for i in range(5):
        for t in {loop}:
            {body}
            Z[i, 0] = 1.0
""")


def loads_of(func: Func, name: str) -> int:
    """How many loads of a buffer in memory there are in the loop over time."""
    (time,) = [s for s in walk(func.body) if type(s) is For and s.var.name == "t"]
    return sum(type(n) is Load and n.buffer.name == name for n in walk(time))


@pytest.mark.parametrize("name", CARRIED)
def test_what_was_stored_is_carried(name: str) -> None:
    func = program(*CARRIED[name])
    before, after = loads_of(func, "Y"), loads_of(lower(func, resolve(SERIAL)), "Y")
    assert after < before
    check(func)
    check(func, strict_fp=True)


@pytest.mark.parametrize("name", ONE)
def test_one_element_is_stored_behind_the_loop(name: str) -> None:
    func = lower(program("range(40)", ONE[name]), resolve(SERIAL))
    (time,) = [s for s in walk(func.body) if type(s) is For and s.var.name == "t"]
    stores = [n for n in walk(time) if type(n) is Store and n.buffer.name == "Y"]
    assert bool(stores) == (name in ("another beside it", "in some rows", "seen by other loads"))


@pytest.mark.parametrize("name", IN_MEMORY)
def test_what_may_have_changed_is_loaded(name: str) -> None:
    func = program(*IN_MEMORY[name])
    assert loads_of(lower(func, resolve(SERIAL)), "Y") == loads_of(func, "Y") > 0
    check(func)


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float8_e4m3fn", "float64", "int8", "uint16", "int64", "bool"]
)
def test_values_are_rounded_as_in_memory(dtype: str) -> None:
    value = "~Y[i, t - 1] ^ X[i, t]" if dtype == "bool" else "Y[i, t - 1] * X[i, t] + X[i, t]"
    func = parse(f"""
@tw.script
def f(X: T.Buffer((3, 50), "{dtype}"), Y: T.Buffer((3, 50), "{dtype}")):
    for i in range(3):
        Y[i, 0] = X[i, 0]
        for t in range(1, 50):
            Y[i, t] = {value}
""")
    (x, _) = arguments = random_arguments(func)
    if dtypes.info(dtype).kind == "float":
        x *= np.asarray(0.25, x.dtype)
    assert loads_of(lower(func, resolve(SERIAL)), "Y") == 0
    check(func, arguments, rtol=0.0, strict_fp=True)


@pytest.mark.parametrize("rows", [16, 20, 5, 100])
def test_vectors_are_carried(rows: int) -> None:
    func = parse(f"""
@tw.script
def f(X: T.Buffer((30, {rows}), "float32"), Y: T.Buffer((30, {rows}), "float32")):
    T.inplace(Y)
    for i in T.parallel(1):
        for t in range(1, 30):
            for j in T.vectorized({rows}):
                Y[t, j] = 0.5 * Y[t - 1, j] + X[t, j]
""")
    assert loads_of(lower(func, resolve("cpu -mcpu=x86-64-v3 -threads=1")), "Y") == 0
    check(func)


@pytest.mark.parametrize("rows", [2, 8, 40])
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v4"])
def test_sums_of_hundreds_of_vectors_are_compiled_from_deep_calls(rows: int, cpu: str) -> None:
    """As unrolled rows of a matrix product have; the more of them, the fewer fit in registers."""
    sch = Schedule(ops.matmul_func(64, 64, 32))
    i, j, k = sch.get_loops(sch.get_block(0))
    i0, i1 = sch.split(i, factors=[None, rows])
    sch.reorder(i0, k, i1, j)
    sch.vectorize(j)
    sch.unroll(i1)
    target = resolve(f"cpu -mcpu={cpu} -threads=1")

    def compiled(depth: int) -> Compiled:
        return compiled(depth - 1) if depth else compile_func(sch.func, target)

    assert compiled(300).image


def test_what_is_carried_may_be_an_index() -> None:
    func = parse("""
@tw.script
def f(A: T.Buffer((6, 5), "float32"), R: T.Buffer((1,), "int64"), Y: T.Buffer((2, 5), "float32")):
    T.inplace(Y, R)
    for i in range(6):
        R[0] = 1 - R[0]
        for j in range(5):
            Y[T.minimum(T.maximum(R[0], 0), 1), j] = A[i, j]
            Y[T.minimum(T.maximum(1 - R[0], 0), 1), j] = A[T.minimum(T.maximum(R[0], 0), 5), j]
""")
    a, _, y = random_arguments(func)
    for first in (0, 1):
        check(func, [a, np.array([first]), y], rtol=0.0)
