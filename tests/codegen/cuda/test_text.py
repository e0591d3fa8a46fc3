"""The text of kernels means what `tir/ir.py` says: run by g++, and compared with the interpreter.

Threads run in turns between barriers, in two orders; see `host_run.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import (
    COMPARISONS,
    FLOAT_FUNCTIONS,
    ROUNDINGS,
    Binary,
    Buffer,
    Cast,
    Expr,
    For,
    ForKind,
    Func,
    Load,
    Op,
    Store,
    Var,
    call,
    const,
    select,
    seq,
)
from tilewright.tir.visit import walk

from ..machinery import assert_close, random_arguments
from . import host_run, schedules
from .host_run import emitted, run_text

SCHEDULED: dict[str, Callable[[], Func]] = {
    "matmul": lambda: schedules.matmul(64, 32, 24),
    "matmul of odd sizes": lambda: schedules.matmul(65, 31, 19),
    "matmul by vectors": lambda: schedules.matmul(64, 32, 16, lanes=4),
    "matmul of odd sizes by vectors": lambda: schedules.matmul(33, 35, 11, lanes=4),
    "matmul of bfloat16": lambda: schedules.matmul(32, 32, 16, "bfloat16", lanes=4),
    "transpose": lambda: schedules.transpose(45, 70),
    "transpose of int8": lambda: schedules.transpose(33, 31, "int8"),
    "elementwise": lambda: schedules.elementwise(1003),
    "elementwise of float16": lambda: schedules.elementwise(4099, "float16", lanes=8),
    "softmax by warps": lambda: schedules.softmax(6, 100),
    "softmax by parts of warps": lambda: schedules.softmax(7, 33, rows=8, threads=16),
    "softmax by odd threads": lambda: schedules.softmax(3, 70, rows=2, threads=24),
    "softmax by blocks": lambda: schedules.softmax(3, 500, rows=1, threads=128),
    "softmax by several blocks of warps": lambda: schedules.softmax(5, 200, rows=2, threads=64),
    "sum in two launches": lambda: schedules.sum_in_two_launches(5, 1000),
    "sum in two launches by warps": lambda: schedules.sum_in_two_launches(40, 99, 3, 32),
    "conv": lambda: schedules.conv(1, 3, 9, 4, 16),
}


@pytest.mark.part(3)
@pytest.mark.parametrize("name", SCHEDULED)
def test_schedules_compute_what_the_interpreter_does(name: str, tmp_path: Path) -> None:
    func = SCHEDULED[name]()
    expected = random_arguments(func)
    found = [a.copy() if isinstance(a, np.ndarray) else a for a in expected]
    interpret(func, *expected)
    run_text(func, tmp_path, *found)
    for p, a, b in zip(func.params, found, expected, strict=True):
        assert_close(b, a, None, p.name)


def test_a_missing_barrier_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    func = schedules.transpose(45, 70)
    arguments = random_arguments(func)
    text = emitted(func).text
    assert text.count("__syncthreads();") == 1
    monkeypatch.setattr(host_run, "CHANGED", {"__syncthreads();": ""})
    with pytest.raises(AssertionError):
        run_text(func, tmp_path, *arguments)


GROUPS = {
    "floats": ("float16", "bfloat16", "float32", "float64"),
    "float8": ("float8_e4m3fn", "float8_e5m2", "bool"),
    "integers": ("int8", "int16", "int32", "int64"),
    "unsigned": ("uint8", "uint16", "uint32", "uint64"),
}


def values_of(dtype: str) -> np.ndarray[Any, Any]:
    """Values at which arithmetic is special, each next to each other one once."""
    kind = dtypes.info(dtype).kind
    if kind == "bool":
        return np.array([False, True])
    if kind == "float":
        numbers = [0.0, -0.0, 1.0, -1.0, 0.1, 2.5, -3.7, 7.0, 1e4, -3e4, np.inf, -np.inf, np.nan]
        with np.errstate(all="ignore"):
            return np.array(numbers).astype(dtypes.to_numpy(dtype))
    low, high = dtypes.int_limits(dtype)
    near = (0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 100, -1, -2, -7, high, low, high - 1)
    numbers = [n for n in near if low <= n <= high]
    return np.array(numbers, dtypes.to_numpy(dtype))


def expressions_of(dtype: str, a: Expr, b: Expr) -> list[Expr]:
    """What is computed of two values of a dtype."""
    facts = dtypes.info(dtype)
    found: list[Expr] = [Binary(op, a, b, "bool") for op in sorted(COMPARISONS)]
    if facts.kind == "bool":
        found += [Binary(op, a, b, dtype) for op in (Op.AND, Op.OR, Op.XOR, Op.MIN, Op.MAX)]
        return [*found, call("not", a)]
    found += [Binary(op, a, b, dtype) for op in (Op.ADD, Op.SUB, Op.MUL, Op.MIN, Op.MAX)]
    found += [call("neg", a), call("abs", a)]
    if facts.kind == "float":
        found += [Binary(op, a, b, dtype) for op in (Op.DIV, Op.FLOORDIV, Op.MOD)]
        return [*found, *(call(fn, a) for fn in (*sorted(ROUNDINGS), "sqrt"))]
    found += [Binary(op, a, b, dtype) for op in (Op.AND, Op.OR, Op.XOR)]
    found.append(call("not", a))
    nonzero = select(Binary(Op.NE, b, const(0, dtype), "bool"), b, const(3, dtype))
    found += [Binary(op, a, nonzero, dtype) for op in (Op.FLOORDIV, Op.MOD)]
    amount = Binary(Op.AND, b, const(facts.bits - 1, dtype), dtype)
    return [*found, *(Binary(op, a, n, dtype) for op in (Op.SHL, Op.SHR) for n in (amount, b))]


def casts_of(dtype: str, a: Expr) -> list[Expr]:
    return [Cast(a, other) for other in dtypes.SCALARS if other != dtype]


def program(group: str) -> tuple[Func, list[np.ndarray[Any, Any]]]:
    """A function of all expressions of some dtypes, a launch for each dtype, and its arguments."""
    params, launches, arguments = list[Buffer](), list[For](), list[np.ndarray[Any, Any]]()
    for dtype in GROUPS[group]:
        values = values_of(dtype)
        pairs = np.array([(x, y) for x in values for y in values], values.dtype)
        n, t = len(pairs), Var("t")
        left, right = Buffer(f"{dtype}_a", (n,), dtype), Buffer(f"{dtype}_b", (n,), dtype)
        params += [left, right]
        arguments += [pairs[:, 0].copy(), pairs[:, 1].copy()]
        a, b = Load(left, (t,), dtype), Load(right, (t,), dtype)
        stores = list[Store]()
        for k, e in enumerate([*expressions_of(dtype, a, b), *casts_of(dtype, a)]):
            out = Buffer(f"{dtype}_{k}", (n,), e.dtype)
            params.append(out)
            arguments.append(np.zeros(n, dtypes.to_numpy(e.dtype)))
            stores.append(Store(out, (t,), e))
        launches.append(For(t, n, seq(*stores), ForKind.THREAD, "threadIdx.x"))
    return Func("expressions", tuple(params), (), seq(*launches)), arguments


@pytest.mark.parametrize("group", GROUPS)
def test_expressions_mean_what_the_interpreter_says(group: str, tmp_path: Path) -> None:
    func, arguments = program(group)
    expected = [a.copy() for a in arguments]
    interpret(func, *expected)
    run_text(func, tmp_path, *arguments)
    expressions = [n.value for n in walk(func.body) if type(n) is Store]
    outputs = [n for n, p in enumerate(func.params) if p.name.rpartition("_")[2].isdigit()]
    assert len(expressions) == len(outputs)
    for n, e in zip(outputs, expressions, strict=True):
        found, wanted = (np.asarray(x[n]) for x in (arguments, expected))
        if dtypes.is_float(e.dtype):
            found, wanted = found.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_array_equal(found, wanted, err_msg=str(e))


def functions() -> tuple[Func, list[np.ndarray[Any, Any]]]:
    """A function of all functions that are not exact, and its arguments."""
    inexact = sorted(FLOAT_FUNCTIONS.keys() - ROUNDINGS)
    t, params, stores = Var("t"), list[Buffer](), list[Store]()
    arguments = list[np.ndarray[Any, Any]]()
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        numbers = np.array([-2.5, -1.0, -0.3, 0.0, 0.1, 0.5, 1.0, 1.5, 3.0, 7.7])
        a, b = (Buffer(f"{dtype}_{name}", (10,), dtype) for name in "ab")
        params += [a, b]
        arguments += [numbers.astype(dtypes.to_numpy(dtype)) for _ in (a, b)]
        x, y = Load(a, (t,), dtype), Load(b, (t,), dtype)
        for fn in inexact:
            e = call(fn, *(x, y)[: FLOAT_FUNCTIONS[fn]])
            out = Buffer(f"{dtype}_{fn}", (10,), dtype)
            params.append(out)
            arguments.append(np.zeros(10, dtypes.to_numpy(dtype)))
            stores.append(Store(out, (t,), e))
    body = For(t, 10, seq(*stores), ForKind.THREAD, "threadIdx.x")
    return Func("functions", tuple(params), (), body), arguments


def test_functions_are_those_of_the_interpreter(tmp_path: Path) -> None:
    func, arguments = functions()
    expected = [a.copy() for a in arguments]
    interpret(func, *expected)
    run_text(func, tmp_path, *arguments)
    for p, found, wanted in zip(func.params, arguments, expected, strict=True):
        digits = 2.0 ** -dtypes.info(p.dtype).mantissa
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=4 * digits, atol=digits * 1e-3, err_msg=p.name)


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float16", "bfloat16", "float32", "float64"])
def test_constants_beyond_their_dtype_are_infinite(dtype: str, tmp_path: Path) -> None:
    a, c, t = Buffer("A", (2,), dtype), Buffer("C", (2,), dtype), Var("t")
    beyond = const(-1e300, dtype)
    smaller = Binary(Op.MAX, Load(a, (t,), dtype), beyond, dtype)
    loop = For(t, 2, Store(c, (t,), smaller), ForKind.THREAD, "threadIdx.x")
    given = np.array([-np.inf, 1.0]).astype(dtypes.to_numpy(dtype))
    found = np.zeros_like(given)
    run_text(Func("f", (a, c), (), loop), tmp_path, given, found)
    least = -1e300 if dtype == "float64" else -np.inf
    assert list(found.astype(np.float64)) == [least, 1.0]


def test_each_operand_is_printed_once() -> None:
    a, c, t = Buffer("A", (2,), "int32"), Buffer("C", (2,), "int32"), Var("t")
    value: Expr = Load(a, (t,), "int32")
    for n in range(9):
        value = call("abs", value - const(n, "int32"))
    loop = For(t, 2, Store(c, (t,), value), ForKind.THREAD, "threadIdx.x")
    assert emitted(Func("f", (a, c), (), loop)).text.count("A[") == 1


HOSTILE = (
    "float",
    "threadIdx",
    "NULL",
    "9 lives",
    "ü",
    "_x",
    "min",
    "a__b",
    "EOF",
    "x",
    "x",
    "M_PI",
)


def test_names_that_mean_something_in_c_are_changed(tmp_path: Path) -> None:
    params = tuple(Buffer(name, (4,), "float32") for name in HOSTILE)
    t = Var("expf")
    stores = [Store(p, (t,), Load(params[0], (t,), "float32")) for p in params[1:]]
    func = Func("matmul", params, (), For(t, 4, seq(*stores), ForKind.THREAD, "threadIdx.x"))
    arguments = [np.full(4, n, np.float32) for n in range(len(params))]
    arguments[0][:] = [1, 2, 3, 4]
    run_text(func, tmp_path, *arguments)
    assert all((a == [1, 2, 3, 4]).all() for a in arguments)


def test_shuffles_of_bools_are_of_all_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one operand decides, a thread might leave the other one out, and its shuffle."""
    func = schedules.extremum("max", 3, 32, "bool", 32)
    array, found = np.zeros((3, 32), np.bool_), np.zeros(3, np.bool_)
    array[1, 20] = array[2, 3] = True
    run_text(func, tmp_path, array, found)
    np.testing.assert_array_equal(found, [False, True, True])
    monkeypatch.setitem(host_run.CHANGED, " | ", " || ")
    with pytest.raises(AssertionError, match="a shuffle diverges"):
        run_text(func, tmp_path, array, found)
