from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import IRError, ops
from tilewright.tir import te

from ..refusals import refused


def reference(x: Any, axis: int) -> Any:
    x = x.astype(np.float64)
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 7), -1), ((3, 7), 0), ((2, 3, 4), 1), ((5,), 0)])
def test_softmax(
    run: Any, make: Any, close: Any, shape: tuple[int, ...], axis: int, dtype: str
) -> None:
    x = make(shape, dtype)
    out = run(lambda t: ops.softmax(t, axis=axis), x)
    assert out.dtype == x.dtype
    close(out, reference(x, axis))


def test_large_values_do_not_overflow(run: Any, close: Any) -> None:
    x = np.array([[1e4, 1e4 - 1, -1e4], [-3e38, 3e38, 0]], np.float32)
    close(run(ops.softmax, x), reference(x, 1))


def test_minus_infinity_takes_no_part(run: Any) -> None:
    inf = np.inf
    x = np.array([[0, -inf, 0], [-inf, -inf, -inf], [np.nan, 0, 0]], np.float32)
    out = run(ops.softmax, x)
    np.testing.assert_array_equal(out, [[0.5, 0, 0.5], [np.nan] * 3, [np.nan] * 3])


def test_sizes_of_one_and_zero(run: Any) -> None:
    assert run(ops.softmax, np.zeros((1, 1), np.float32)) == 1
    for shape in ((0, 3), (3, 0)):
        assert run(ops.softmax, np.zeros(shape, np.float32)).shape == shape


LOGS = {
    "log_softmax": lambda x, axis: np.log(reference(x, axis)),
    "logsumexp": lambda x, axis: np.logaddexp.reduce(x.astype(np.float64), axis),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 7), -1), ((3, 7), 0), ((2, 3, 4), 1), ((5,), 0)])
@pytest.mark.parametrize("name", LOGS)
def test_logarithms(
    run: Any, make: Any, close: Any, name: str, shape: tuple[int, ...], axis: int, dtype: str
) -> None:
    x = make(shape, dtype)
    out = run(lambda t: getattr(ops, name)(t, axis=axis), x)
    assert out.dtype == x.dtype
    close(out, LOGS[name](x, axis), ulps=32)


@pytest.mark.parametrize("name", LOGS)
def test_logarithms_of_special_values(run: Any, name: str) -> None:
    inf = np.inf
    x = np.array([[1e4, 0], [-inf, 0], [-3e38, 3e38], [np.nan, 0], [-inf, -inf], [inf, 0]])
    out = run(getattr(ops, name), x.astype(np.float32))
    wanted: Any = np.array([1e4, 0, 3e38, np.nan, -inf, inf])
    if name == "log_softmax":
        wanted = [[0, -1e4], [-inf, 0], [-inf, 0], *[[np.nan] * 2] * 3]
        out = np.where(out < -1e38, -inf, out)  # -6e38 is not in float32
    np.testing.assert_allclose(out, wanted)
    assert run(getattr(ops, name), np.zeros((0, 3), np.float32)).shape[0] == 0


def test_func(run_func: Any, make: Any, close: Any) -> None:
    func = ops.softmax_func(3, 5)
    assert [b.name for b in func.allocs] == ["Y_max", "Y_exp", "Y_sum"]
    x = make((3, 5))
    close(run_func(func, x), reference(x, 1))


def test_integers_are_refused() -> None:
    with refused(IRError, "int32"):
        ops.softmax(te.placeholder((2, 3), "int32", name="x"))
    with refused(IRError, "int32"):
        ops.logsumexp(te.placeholder((2, 3), "int32", name="x"))
