from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import IRError, ops
from tilewright.tir import te


def reference(x: Any, dims: int = 1, epsilon: float = 1e-5) -> Any:
    x = x.astype(np.float64)
    axes = tuple(range(x.ndim - dims, x.ndim))
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "dims"), [((3, 7), 1), ((2, 3, 5), 2), ((4,), 1), ((2, 1), 1)])
def test_layer_norm(
    run: Any, make: Any, close: Any, shape: tuple[int, ...], dims: int, dtype: str
) -> None:
    x = make(shape, dtype)
    inner = shape[len(shape) - dims :]
    gamma, beta = make(inner, dtype), make(inner, dtype)
    out = run(lambda t, g, b: ops.layer_norm(t, g, b, dims=dims), x, gamma, beta)
    assert out.dtype == x.dtype
    wanted = reference(x, dims) * gamma.astype(np.float64) + beta.astype(np.float64)
    close(out, wanted, ulps=32)


def test_without_gamma_and_beta(run: Any, make: Any, close: Any) -> None:
    x = make((3, 5))
    close(run(lambda t: ops.layer_norm(t, epsilon=0.1), x), reference(x, 1, 0.1), ulps=32)


def test_data_far_from_zero_keeps_its_digits(run: Any) -> None:
    x = (np.arange(8, dtype=np.float32) + 1e5).reshape(1, 8)
    np.testing.assert_allclose(run(ops.layer_norm, x), reference(x), rtol=1e-4)


def test_func_and_empty_rows(run_func: Any, make: Any, close: Any) -> None:
    x, gamma, beta = make((3, 5)), make((5,)), make((5,))
    out = run_func(ops.layer_norm_func(3, 5), x, gamma, beta)
    close(out, reference(x) * gamma + beta, ulps=32)
    assert run_func(ops.layer_norm_func(0, 5), x[:0], gamma, beta).shape == (0, 5)


def test_refused() -> None:
    x = te.placeholder((2, 3), name="x")
    with pytest.raises(IRError):
        ops.layer_norm(x, te.placeholder((2,), name="g"))
    with pytest.raises(IRError):
        ops.layer_norm(x, dims=3)
    with pytest.raises(IRError):
        ops.layer_norm(te.placeholder((2, 3), "int8", name="x"))
