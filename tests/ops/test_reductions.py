from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import IRError, ops
from tilewright.tir import te

AXES = [None, 0, 1, -1, (0, 2), (0, 1, 2), ()]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("kind", ["sum", "prod", "mean", "max", "min"])
def test_against_numpy(
    run: Any, make: Any, close: Any, kind: str, axis: Any, keepdims: bool
) -> None:
    x = make((2, 3, 5))
    out = run(lambda t: getattr(ops, kind)(t, axis, keepdims=keepdims), x)
    close(out, getattr(np, kind)(x.astype(np.float64), axis=axis, keepdims=keepdims), ulps=32)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_positions(
    run: Any, make: Any, kind: str, axis: int | None, keepdims: bool, dtype: str
) -> None:
    x = make((3, 4, 5), dtype)
    x[0, 0] = x[1, 1] = x[2, 3]
    out = run(lambda t: getattr(ops, kind)(t, axis, keepdims=keepdims), x)
    assert out.dtype == np.int64
    np.testing.assert_array_equal(out, getattr(np, kind)(x, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("index", ["int32", "int8", "uint64"])
@pytest.mark.parametrize("axis", [None, 0, 2])
def test_positions_as_another_dtype(
    run: Any, make: Any, kind: str, index: str, axis: int | None
) -> None:
    x = make((3, 4, 9))
    x[0, 0] = x[1, 1] = x[2, 3]
    out = run(lambda t: getattr(ops, kind)(t, axis, dtype=index), x)
    assert out.dtype == np.dtype(index)
    np.testing.assert_array_equal(out, getattr(np, kind)(x, axis=axis))


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_positions_of_nan_and_infinities(run: Any, kind: str) -> None:
    inf = np.inf
    x = np.array([[1, np.nan, np.nan], [inf, inf, 1], [-inf, -inf, -inf]], np.float32)
    out = run(lambda t: getattr(ops, kind)(t, 1), x)
    np.testing.assert_array_equal(out, getattr(np, kind)(x, axis=1))


@pytest.mark.parametrize("kind", ["max", "min"])
def test_nan_wins(run: Any, kind: str) -> None:
    x = np.array([[1, np.nan, 2], [3, 4, 5]], np.float32)
    out = run(lambda t: getattr(ops, kind)(t, 1), x)
    np.testing.assert_array_equal(out, getattr(np, kind)(x, axis=1))


@pytest.mark.parametrize(("dtype", "result"), [("int8", "int32"), ("uint8", "int32")])
def test_narrow_integers_are_summed_in_int32(run: Any, dtype: str, result: str) -> None:
    x = np.full((40,), 100, dtype)
    out = run(ops.sum, x)
    assert out.dtype == np.dtype(result)
    assert out == 4000
    mean = run(ops.mean, x)
    assert mean.dtype == np.float64
    assert mean == 100


def test_narrow_floats_are_summed_in_float32(run: Any) -> None:
    import ml_dtypes

    x = np.ones(600, ml_dtypes.bfloat16)
    assert run(ops.sum, x) == 600
    assert run(ops.sum, x).dtype == np.float32
    mean = run(ops.mean, x)
    assert mean.dtype == ml_dtypes.bfloat16
    assert mean == 1


def test_dtype_of_the_sum(run: Any) -> None:
    x = np.array([200, 100], np.uint8)
    assert run(lambda t: ops.sum(t, dtype="uint8"), x) == 300 - 256
    assert run(lambda t: ops.prod(t, dtype="float64"), x) == 20000


def test_empty_axes_and_empty_tensors(run: Any) -> None:
    x = np.zeros((3, 0), np.float32)
    np.testing.assert_array_equal(run(lambda t: ops.sum(t, 1), x), np.zeros(3))
    np.testing.assert_array_equal(run(lambda t: ops.mean(t, 1), x), np.full(3, np.nan))
    assert run(lambda t: ops.sum(t, 0), x).shape == (0,)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["sum", "mean", "argmin"])
def test_func(run_func: Any, make: Any, close: Any, kind: Any, axis: int) -> None:
    x = make((5, 7))
    out = run_func(ops.reduction_func(kind, 5, 7, axis), x)
    close(out, getattr(np, kind)(x.astype(np.float64), axis=axis), ulps=32)


def test_refused() -> None:
    x = te.placeholder((2, 3), name="x")
    with pytest.raises(IRError):
        ops.sum(x, 2)
    with pytest.raises(IRError):
        ops.sum(x, (0, -2))
    with pytest.raises(IRError):
        ops.argmax(te.placeholder((2, 0), name="x"), 1)
