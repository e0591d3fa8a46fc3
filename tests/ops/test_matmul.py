from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import IRError, ops
from tilewright.tir import te
from tilewright.tir.ir import Buffer

DTYPES = ["float64", "float32", "float16", "bfloat16"]


def product(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "m", "k"), [(3, 5, 7), (1, 1, 1), (1, 9, 4), (6, 1, 3)])
def test_matmul(run: Any, make: Any, close: Any, n: int, m: int, k: int, dtype: str) -> None:
    a, b = make((n, k), dtype), make((k, m), dtype)
    out = run(ops.matmul, a, b)
    assert out.dtype == a.dtype
    close(out, product(a, b), ulps=2 if dtype in ("float16", "bfloat16") else 32)


@pytest.mark.parametrize(("n", "m", "k"), [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_empty_operands(run: Any, make: Any, n: int, m: int, k: int, dtype: str) -> None:
    a, b = make((n, k), dtype), make((k, m), dtype)
    np.testing.assert_array_equal(run(ops.matmul, a, b), np.zeros((n, m)))


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_transposed(run: Any, make: Any, close: Any, transpose_a: bool, transpose_b: bool) -> None:
    a = make((7, 3) if transpose_a else (3, 7))
    b = make((5, 7) if transpose_b else (7, 5))
    out = run(lambda x, y: ops.matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b), a, b)
    close(out, product(a.T if transpose_a else a, b.T if transpose_b else b), ulps=32)


@pytest.mark.parametrize(
    ("lead_a", "lead_b"), [((3,), (3,)), ((2, 3), (2, 3)), ((2, 1), (3,)), ((), (2,)), ((4,), ())]
)
def test_batches_broadcast(
    run: Any, make: Any, close: Any, lead_a: tuple[int, ...], lead_b: tuple[int, ...]
) -> None:
    a, b = make((*lead_a, 2, 5)), make((*lead_b, 5, 3))
    close(run(ops.matmul, a, b), product(a, b), ulps=32)


def test_int8_operands_accumulate_in_int32(run_func: Any, make: Any) -> None:
    a, b = make((3, 50), "uint8"), make((50, 4), "int8")
    out = run_func(ops.int8_matmul_func(3, 4, 50), a, b)
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, a.astype(np.int64) @ b.astype(np.int64))
    extreme = run_func(
        ops.int8_matmul_func(1, 1, 9),
        np.full((1, 9), 255, np.uint8),
        np.full((9, 1), -128, np.int8),
    )
    assert extreme == 9 * 255 * -128


def test_bfloat16_products_are_summed_in_float32(run: Any) -> None:
    import ml_dtypes

    a = np.ones((1, 300), ml_dtypes.bfloat16)
    assert run(lambda x: ops.matmul(x, x, transpose_b=True), a).astype(int) == 300


@pytest.mark.parametrize("epilogue", [None, *ops.ACTIVATIONS])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bias_and_epilogue(
    run: Any, make: Any, close: Any, activations: Any, epilogue: str | None, dtype: str
) -> None:
    a, b, bias = make((3, 4), dtype), make((4, 5), dtype), make((5,), dtype)
    out = run(lambda x, y, z: ops.matmul(x, y, bias=z, epilogue=epilogue), a, b, bias)
    wanted = product(a, b) + bias.astype(np.float64)
    if epilogue is not None:
        wanted = activations[epilogue](wanted)
    close(out, wanted, ulps=64 if dtype == "float32" else 2)


def test_a_function_as_epilogue(run: Any, make: Any, close: Any) -> None:
    a, b = make((3, 4)), make((4, 5))
    out = run(lambda x, y: ops.matmul(x, y, epilogue=lambda v: te.minimum(v, 0) * 2), a, b)
    close(out, np.minimum(product(a, b), 0) * 2, ulps=32)


def test_func_has_the_arguments_asked_for() -> None:
    func = ops.matmul_func(2, 3, 4, bias=True, epilogue="relu", constant_b=True)
    assert [p.name for p in func.params] == ["A", "B", "bias", "C"]
    assert [p.name for p in func.params if isinstance(p, Buffer) and p.constant] == ["B"]
    assert [b.name for b in func.allocs] == ["C_sum"]
    assert ops.matmul_func(2, 3, 4).allocs == ()


def test_func_of_a_batch(run_func: Any, make: Any, close: Any) -> None:
    a, b = make((2, 4, 3)), make((2, 5, 4))
    func = ops.matmul_func(3, 5, 4, batch=2, transpose_a=True, transpose_b=True)
    close(run_func(func, a, b), product(a.transpose(0, 2, 1), b.transpose(0, 2, 1)), ulps=32)


@pytest.mark.parametrize(
    ("a", "b", "bias", "message"),
    [
        ((2, 3), (4, 5), None, "inner extents 3 and 4"),
        ((3,), (3, 5), None, "two dimensions or more"),
        ((2, 3), (3, 5), (4,), r"bias has shape \(4,\), expected \(5,\)"),
        ((2, 2, 3), (3, 3, 5), None, "do not broadcast"),
    ],
)
def test_shapes_that_do_not_fit(
    a: tuple[int, ...], b: tuple[int, ...], bias: tuple[int, ...] | None, message: str
) -> None:
    c = None if bias is None else te.placeholder(bias, name="c")
    with pytest.raises(IRError, match=message):
        ops.matmul(te.placeholder(a, name="a"), te.placeholder(b, name="b"), bias=c)


def test_unknown_epilogue() -> None:
    with pytest.raises(IRError):
        ops.matmul_func(2, 2, 2, epilogue="elu")
