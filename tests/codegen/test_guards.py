"""Compiled code divides, and reads, only where a guard lets it: else the process would end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Expr, Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..long import first_of
from .guarded import in_vectors, runs_here
from .machinery import check
from .random_nests import difference

ROOT = Path(__file__).resolve().parents[2]
N = 21
TARGETS = ("cpu -threads=1", "cpu -mcpu=x86-64 -threads=1")


@pytest.mark.parametrize("first", first_of(range(0, 24, 4)))
def test_random_guarded_divisions(first: int) -> None:
    """In a process of their own, which a division that should not have been made would end."""
    command = [sys.executable, "-m", "tests.codegen.guarded", str(first), str(first + 4)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    assert "48 computed" in done.stdout


@pytest.mark.parametrize("first", first_of(range(0, 12, 4)))
def test_random_guarded_elements_of_all_lanes(first: int) -> None:
    """In a process of their own, which a read that its guard forbids would end."""
    command = [sys.executable, "-m", "tests.codegen.shared_reads", str(first), str(first + 4)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-500:]}{done.stderr[-3000:]}"
    assert int(done.stdout.split()[0]) >= 4 * 2 * 3


def program(value: Callable[..., Any]) -> Func:
    """`value` of an index, elements `x` and `y`, one element `z` for all, an index and a number."""
    x, y = (te.placeholder((N,), "int32", name=name) for name in "xy")
    z, w = te.placeholder((1,), "int32", name="z"), te.placeholder((1,), "int64", name="w")
    n = te.scalar("int32", name="n")
    named: dict[str, Any] = {"x": x, "y": y, "z": z, "w": w, "n": n}
    used = [named[k] for k in value.__code__.co_varnames[1 : value.__code__.co_argcount]]
    return te.func([*used, te.compute((N,), lambda i: value(i, *used), name="C")], name="guarded")


SHARED: dict[str, Callable[..., Any]] = {
    "number": lambda i, x, n: te.select((x[i] > 0) & (n != 0), 7 // n, 0),
    "element": lambda i, x, z: te.select((x[i] > 0) & (z[0] != 0), 7 % z[0], 0),
    "index": lambda i, x, y, w: te.select(
        (x[i] > 0) & (w[0] > 0), y[te.minimum(i + 5 // w[0], N - 1)], 0
    ),
    "bound": lambda i, x, y, w: te.select(
        (x[i] > 0) & (w[0] != 0), te.select(i < 5 // w[0], y[i], 1), 0
    ),
    "condition": lambda i, x, y, n: te.select(
        (x[i] != 0) & (n != 0), te.select(7 // n > 2, y[i], 2), 0
    ),
    "inner": lambda i, x, y, n: te.select(x[i] != 0, te.select(n != 0, y[i] // n, 3) // x[i], 0),
    "place": lambda i, x, y, w: te.select((x[i] > 0) & (w[0] == 0), y[w[0] * 2**40], 0),
}
"""Expressions that all lanes of a vector share, under a condition that differs between lanes."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("value", SHARED.values(), ids=SHARED)
@pytest.mark.parametrize("shared", [0, 1, -1])
def test_what_lanes_share_is_not_computed_where_no_lane_is_on(
    value: Callable[[Expr], Any], target: str, shared: int
) -> None:
    if not runs_here(target):
        pytest.skip(f"{target} does not run here")
    func = program(value)
    verify(func)
    given: dict[str, Any] = {
        "x": (np.arange(N) % 5 - 2).astype(np.int32) if shared >= 0 else np.zeros(N, np.int32),
        "y": np.arange(N, dtype=np.int32),
        "z": np.array([shared], np.int32),
        "w": np.array([shared], np.int64),
        "n": shared,
        "C": np.zeros(N, np.int32),
    }
    arguments = [given[p.name] for p in func.params]
    check(in_vectors(func, None), arguments, original=func, target=target)


def test_guards_of_statements() -> None:
    func = parse("""
def main(
    x: T.Buffer((21,), "int32"), y: T.Buffer((21,), "int32"), C: T.Buffer((21,), "int32")
):
    for i in range(21):
        with T.block("C"):
            v = T.axis.spatial(21, i)
            if y[v] == 0:
                C[v] = 0
            else:
                C[v] = x[v] // y[v]
""")
    verify(func)
    sch = Schedule(func)
    (loop,) = sch.get_loops(sch.get_block("C"))
    sch.vectorize(loop)
    x, y = np.arange(21, dtype=np.int32), (np.arange(21) % 3 - 1).astype(np.int32)
    for form in (func, sch.func):
        check(form, [x, y, np.zeros(21, np.int32)], original=func)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_least_integer_divided_by_minus_one_wraps(dtype: str) -> None:
    """A guard against zero lets -1 through, and the quotient is no integer of the dtype."""
    x, y = te.placeholder((N,), dtype, name="x"), te.placeholder((N,), dtype, name="y")
    quotient = te.compute((N,), lambda i: te.select(y[i] != 0, x[i] // y[i], 0), name="Q")
    rest = te.compute((N,), lambda i: te.select(y[i] != 0, x[i] % y[i], 0), name="R")
    func = te.func([x, y, quotient, rest], name="least")
    low = np.iinfo(dtype).min
    given = [np.full(N, low, dtype), (np.arange(N) % 3 - 1).astype(dtype)]
    outputs = [np.zeros(N, dtype), np.zeros(N, dtype)]
    for form in (func, in_vectors(func, None)):
        check(form, [*given, *outputs], original=func)


@pytest.mark.parametrize("first", first_of(range(0, 1200, 60), 2))
def test_random_nests_of_plain_loops(first: int) -> None:
    """Conditions with and without `else`; thousands: `python -m tests.codegen.random_nests`."""
    failed = [told for told in map(difference, range(first, first + 60)) if told is not None]
    assert not failed, failed[0]
