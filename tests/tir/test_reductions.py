"""Reduce iterations: which updates are verified, and what their order does to the others."""

from __future__ import annotations

from textwrap import indent

import numpy as np
import pytest

from tilewright.base.errors import VerifyError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.reductions import check_reductions
from tilewright.tir.verify import verify

ROWS, TERMS = 3, 7


def program(
    body: str, dtype: str = "float32", *, init: str = "B[vi] = 1", axes: str = "SR"
) -> Func:
    """A block of a row `vi` and a term `vk`, which updates B, and may update C, from A and M."""
    start = f"with T.init():\n{indent(init, '    ')}\n" if init else ""
    return parse(f"""
def f(A: T.Buffer(({ROWS}, {TERMS}), "{dtype}"), M: T.Buffer(({ROWS}, {TERMS}), "int32"),
      B: T.Buffer(({ROWS},), "{dtype}"), C: T.Buffer(({ROWS},), "int32")):
    {"pass" if init else "T.inplace(B, C)"}
    for i, k in T.grid({ROWS}, {TERMS}):
        with T.block("B"):
            vi, vk = T.axis.remap("{axes}", [i, k])
{indent(start + body, " " * 12)}
""")


UPDATES = {
    "sum": "B[vi] = B[vi] + A[vi, vk]",
    "from the right": "B[vi] = A[vi, vk] + B[vi]",
    "difference": "B[vi] = B[vi] - A[vi, vk]",
    "product": "B[vi] = B[vi] * A[vi, vk]",
    "minimum": "B[vi] = T.minimum(A[vi, vk], B[vi])",
    "several terms": "B[vi] = B[vi] + A[vi, vk] * 2 - A[vi, 0] + 1",
    "several steps": "B[vi] = B[vi] + A[vi, vk]\nB[vi] = B[vi] + A[vi, 0]",
    "where": "if M[vi, vk] > 0:\n    B[vi] = B[vi] + A[vi, vk]",
    "either": "if M[vi, vk] > 0:\n    B[vi] = B[vi] + 1\nelse:\n    B[vi] = B[vi] - 1",
    "chosen": "B[vi] = T.select(M[vi, vk] > 0, B[vi] + A[vi, vk], B[vi])",
    "bound": "old = B[vi]\nnew = T.maximum(old, A[vi, vk])\nB[vi] = new",
    "inner loop": "for j in range(2):\n    B[vi] = B[vi] + A[vi, vk]",
    "by the term": "B[vi] = B[vi] + T.cast(DTYPE, vk)",
}


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("update", UPDATES)
def test_updates_by_one_operator_are_verified_and_have_no_order(update: str, dtype: str) -> None:
    func = program(UPDATES[update].replace("DTYPE", f'"{dtype}"'), dtype)
    verify(func)
    sch = Schedule(func)
    _, k = sch.get_loops(sch.get_block("B"))
    sch.reorder(*sch.split(k, [None, 3])[::-1])
    verify(sch.func)
    for a, b in zip(results(func, dtype), results(sch.func, dtype), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def results(func: Func, dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (ROWS, TERMS)).astype(dtype)
    m = rng.integers(-1, 2, (ROWS, TERMS)).astype("int32")
    outputs = [np.zeros(ROWS, dtype), np.zeros(ROWS, "int32")]
    interpret(func, a, m, *outputs)
    return outputs


def test_narrow_numbers_may_be_combined_in_a_wider_dtype() -> None:
    verify(program("B[vi] = T.float16(T.float32(B[vi]) + T.float32(A[vi, vk]))", "float16"))
    verify(program("B[vi] = T.float16(T.maximum(T.float32(B[vi]), 2.0))", "float16"))
    verify(program("B[vi] = T.int8(T.int32(B[vi]) + M[vi, vk])", "int8"))
    verify(program("B[vi] = T.uint8(T.int32(B[vi]) * M[vi, vk])", "uint8"))
    for other in ("T.int8(T.maximum(T.int32(B[vi]), M[vi, vk]))", "T.int8(T.float32(B[vi]) + 0.5)"):
        refused(program(f"B[vi] = {other}", "int8"))


ORDERED = {
    "decay": "B[vi] = B[vi] * 0.5 + A[vi, vk]",
    "last": "B[vi] = A[vi, vk]",
    "last where": "if A[vi, vk] > 0.5:\n    B[vi] = A[vi, vk]",
    "reversed": "B[vi] = A[vi, vk] - B[vi]",
    "quotient": "B[vi] = A[vi, vk] / B[vi]",
    "two operators": "B[vi] = B[vi] + A[vi, vk]\nB[vi] = B[vi] * 2",
    "two in one": "B[vi] = T.maximum(B[vi] + A[vi, vk], 0)",
    "itself": "B[vi] = B[vi] + B[vi]",
    "another element": "B[vi] = B[0] + A[vi, vk]",
    "another result": "B[vi] = B[vi] + 1\nC[vi] = C[vi] + T.int32(B[vi])",
    "under what is stored": "if B[vi] < 3:\n    B[vi] = B[vi] + A[vi, vk]",
    "chosen by what is stored": "B[vi] = T.select(B[vi] < 3, B[vi] + A[vi, vk], B[vi])",
    "first best": "if A[vi, vk] > B[vi]:\n    B[vi] = A[vi, vk]\n    C[vi] = T.int32(vk)",
    "old name": "old = B[vi]\nB[vi] = old * 0.5 + A[vi, vk]",
    "where it was": "at = C[vi]\nB[T.minimum(T.maximum(at, 0), 2)] = 1\nC[vi] = C[vi] + 1",
}  # fmt: skip


@pytest.mark.parametrize("update", ORDERED)
def test_updates_whose_order_matters_are_refused_where_an_axis_is_declared_reduce(
    update: str,
) -> None:
    body = ORDERED[update]
    init = "B[vi] = 1\nC[vi] = 0"
    refused(program(body, init=init))
    check_reductions(program(body, init="", axes="SO"))


def refused(func: Func) -> None:
    with pytest.raises(VerifyError) as error:
        verify(func)
    assert error.value.arguments[0] == "B"
    assert "T.axis.opaque" in str(error.value.hint)


def test_ordered_updates_run_in_order_and_for_other_rows_first() -> None:
    body = ORDERED["decay"]
    func = program(body, init="", axes="SO")
    verify(func)
    sch = Schedule(func)
    i, k = sch.get_loops(sch.get_block("B"))
    sch.reorder(k, i)
    verify(sch.func)
    a = np.random.default_rng(1).standard_normal((ROWS, TERMS)).astype("float32")
    expected = np.zeros(ROWS, "float32")
    for column in a.T:
        expected = expected * np.float32(0.5) + column
    for f in (func, sch.func):
        b = np.zeros(ROWS, "float32")
        interpret(f, a, np.zeros((ROWS, TERMS), "int32"), b, np.zeros(ROWS, "int32"))
        np.testing.assert_allclose(b, expected, rtol=1e-6)


def test_an_init_of_opaque_axes_alone_is_refused() -> None:
    with pytest.raises(VerifyError) as error:
        verify(program(ORDERED["decay"], axes="SO"))
    assert "in a block of its own" in str(error.value.hint)


INDEXED = {
    "itself": "B[vi, vk] = B[vi, vk] + A[vi, vk]",
    "in a sum": "B[vi, (vi + vk) % 7] = B[vi, (vi + vk) % 7] + A[vi, vk]",
    "bound": "x = vk\nB[vi, x] = B[vi, x] + A[vi, vk]",
    "by data": "B[vi, D[vk]] = B[vi, D[vk]] + A[vi, vk]",
}


@pytest.mark.parametrize("init", ["B[vi, 0] = 0", "B[vi, vk] = 0", ""])
@pytest.mark.parametrize("body", INDEXED)
def test_a_reduce_variable_indexes_no_store(body: str, init: str) -> None:
    start = f"with T.init():\n                {init}" if init else "pass"
    func = parse(f"""
def f(A: T.Buffer((3, 7), "float32"), D: T.Buffer((7,), "int64", value_range=(0, 7)),
      B: T.Buffer((3, 7), "float32")):
    {"pass" if init else "T.inplace(B)"}
    for i, k in T.grid(3, 7):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            {start}
{indent(INDEXED[body], " " * 12)}
""")
    with pytest.raises(VerifyError) as error:
        verify(func)
    assert "reduce axis" in str(error.value)
    hint = str(error.value.hint)
    assert "T.axis.spatial" in hint
    assert "T.axis.opaque" in hint


@pytest.mark.parametrize("combiner", [te.argmax, te.argmin])
def test_pairs_are_verified_in_tiles_too(combiner: object) -> None:
    x = te.placeholder((4, 8), "float32", name="X")
    r = te.reduce_axis(8, name="r")
    index, value = te.compute((4,), lambda i: combiner(x[i, r], axis=r), name="best")  # type: ignore[operator]
    sch = Schedule(te.func([x, index, value], name="f"))
    block = sch.get_block(0)
    _, inner = sch.split(sch.get_loops(block)[1], [None, 4])
    sch.decompose_reduction(block, sch.get_loops(block)[1])
    sch.blockize(inner)
    verify(sch.func)
