"""Selects in vectors: the masks of what they read, and the size of the code."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import BuildError, IRError
from tilewright.codegen.build import compile_func
from tilewright.codegen.detect import resolve
from tilewright.codegen.lower import lower
from tilewright.codegen.passes.unroll import unroll
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Expr, Func, Load
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify
from tilewright.tir.visit import walk

from .machinery import SERIAL, check, check_passes

AVX2, SSE4 = "cpu -mcpu=x86-64-v3 -threads=1", "cpu -mcpu=x86-64-v2 -threads=1"
TARGETS = pytest.mark.parametrize("target", [SERIAL, AVX2, SSE4])
N = 130


def running_maximum(depth: int, *, tiled: bool) -> Func:
    """The greatest of `depth + 1` elements, each of which is compared with those before."""
    x = te.placeholder((N,), "float32", name="X")

    def element(i: Expr) -> Expr:
        greatest: Expr = x[i]
        for d in range(1, depth + 1):
            other = x[te.minimum(te.maximum(i * 3 + d, 0), N - 1)]
            greatest = te.select(greatest < other, other, greatest)
        return greatest

    return in_vectors(te.func([x, te.compute((N,), element, name="Y")]), tiled=tiled)


def quotients(depth: int) -> Func:
    """Divisions, each guarded by a comparison with the result of those before."""
    a, b = (te.placeholder((N,), "int32", name=name) for name in "AB")

    def element(i: Expr) -> Expr:
        value: Expr = a[i]
        for d in range(1, depth + 1):
            divisor = b[te.minimum(i + d, N - 1)]
            quotient = te.select(divisor > 0, value // divisor, 1)
            value = te.select(value < divisor, quotient, a[te.minimum(i + d, N - 1)])
        return value

    return in_vectors(te.func([a, b, te.compute((N,), element, name="Y")]), tiled=True)


def in_vectors(func: Func, *, tiled: bool) -> Func:
    sch = Schedule(func)
    (loop,) = sch.get_loops(sch.get_block("Y"))
    if tiled:
        _, loop = sch.split(loop, [None, 16], perfect=False)
    sch.vectorize(loop)
    return sch.func


def growth(func: Func, target: str) -> float:
    """How many times the nodes of `func` it has as vectors."""
    sizes = dict[str, int]()
    lower(func, resolve(target), watcher=lambda name, f: sizes.update({name: len(list(walk(f)))}))
    return sizes["vectorize"] / sizes["hoist"]


@pytest.mark.part(1)
@TARGETS
def test_a_running_maximum_grows_by_the_number_of_its_vectors(target: str) -> None:
    assert growth(running_maximum(6, tiled=True), target) < 4.5


@pytest.mark.part(1)
@TARGETS
def test_guarded_divisions_grow_no_faster_than_as_they_were_written(target: str) -> None:
    shallow, deep = growth(quotients(2), target), growth(quotients(6), target)
    assert deep < 2 * shallow


@TARGETS
@pytest.mark.parametrize("tiled", [False, True])
def test_values_of_a_running_maximum(target: str, tiled: bool) -> None:
    check(running_maximum(4, tiled=tiled), target=target)


@pytest.mark.part(2)
@TARGETS
@pytest.mark.parametrize("depth", [1, 3])
def test_values_of_guarded_divisions(target: str, depth: int) -> None:
    func = quotients(depth)
    rng = np.random.default_rng(7)
    arguments = [rng.integers(low, 9, N).astype(np.int32) for low in (-9, -3)]
    check(func, [*arguments, np.zeros(N, np.int32)], target=target)
    check_passes(func, target)


def test_what_guards_around_show_to_exist_is_read_without_a_mask() -> None:
    func = parse("""
def f(X: T.Buffer((40,), "float32"), Y: T.Buffer((40,), "float32")):
    for i in range(3):
        if i < 2:
            for j in T.vectorized(16):
                Y[i * 16 + j] = T.select(X[j] < 1.0, X[i * 16 + j], X[39 - i * 16 - j])
        else:
            for j in T.vectorized(8):
                Y[i * 16 + j] = T.select(X[j] < 1.0, X[i * 16 + j], 0.0)
""")
    lowered = lower(func, resolve(SSE4))
    assert not [n for n in walk(lowered) if type(n) is Load and n.mask is not None]
    check(func, target=SSE4)


def test_a_mask_is_what_its_condition_was_before_the_statements() -> None:
    func = parse("""
def f(X: T.Buffer((16,), "float32"), Y: T.Buffer((16,), "float32")):
    T.inplace(X)
    for i in T.vectorized(16):
        if X[i] < 1.0:
            X[i] = 2.0
            Y[i] = 3.0
        else:
            Y[i] = 4.0
""")
    x, y = np.linspace(-3, 3, 16, dtype=np.float32), np.zeros(16, np.float32)
    check(func, [x, y])


def test_a_condition_is_computed_only_in_a_branch_that_may_read_it() -> None:
    """The first select is the same for all lanes; beyond it, Z and B end."""
    func = parse("""
def f(Z: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32"), Y: T.Buffer((64,), "int32")):
    for i in range(4):
        for j in T.vectorized(16):
            Y[i * 16 + j] = T.select(i < 2, T.select(Z[i * 16 + j] + B[i * 16 + j] * 3 - Z[j] * B[j] > B[i * 16 + j] * 5 + Z[j], B[j] // T.maximum(Z[i * 16 + j], 1) + Z[j] // T.select(B[i * 16 + j] > 0, B[i * 16 + j], 1), 7), 9)
""")  # noqa: E501
    verify(func)
    check_passes(func)
    check(func)


def test_a_long_expression_is_refused() -> None:
    with pytest.raises(IRError):
        running_maximum(60, tiled=True)


def test_much_code_is_refused() -> None:
    row = " + ".join(f"X[i + {n}]" for n in range(100))
    func = parse(f"""
def f(X: T.Buffer((8192,), "float32"), Y: T.Buffer((4096,), "float32")):
    for i in T.unrolled(4096):
        Y[i] = {row}
""")
    with pytest.raises(BuildError) as refused:
        unroll(func)
    assert "unroll fewer loops" in str(refused.value)
    with pytest.raises(BuildError):
        compile_func(func, SERIAL)
