from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from tilewright import IRError, ops
from tilewright.tir import te


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", list(ops.ACTIVATIONS))
def test_activations(
    run: Any, make: Any, close: Any, activations: Any, kind: str, dtype: str
) -> None:
    x = make((3, 5), dtype)
    out = run(lambda t: ops.activation(t, kind), x)
    assert out.dtype == x.dtype
    wanted = activations[kind](x.astype(np.float64))
    close(out, wanted, ulps=16 if dtype in ("float64", "float32") else 1)


@pytest.mark.parametrize("name", ["relu", "gelu", "sigmoid", "tanh"])
def test_activations_by_name(run: Any, make: Any, close: Any, activations: Any, name: str) -> None:
    x = make((7,))
    close(run(getattr(ops, name), x), activations[name](x.astype(np.float64)))


def test_relu_of_integers_and_nan(run: Any) -> None:
    assert run(ops.relu, np.array([-3, 0, 4], np.int8)).tolist() == [0, 0, 4]
    out = run(ops.relu, np.array([np.nan, -1, np.inf], np.float32))
    np.testing.assert_array_equal(out, [np.nan, 0, np.inf])


@pytest.mark.parametrize(
    ("name", "fn"),
    [
        ("add", operator.add),
        ("subtract", operator.sub),
        ("multiply", operator.mul),
        ("divide", operator.truediv),
    ],
)
@pytest.mark.parametrize(
    ("a", "b"), [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2,)), ((0, 3), (3,))]
)
def test_binary_operators_broadcast(
    run: Any, make: Any, name: str, fn: Any, a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    x, y = make(a), make(b)
    np.testing.assert_array_equal(run(getattr(ops, name), x, y), fn(x, y))


def test_operands_promote(run: Any, make: Any) -> None:
    x, y = make((4,), "int16"), make((4,), "float32")
    out = run(ops.add, x, y)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, x + y)


def test_any_number_of_operands(run: Any, make: Any) -> None:
    x, y, z = make((2, 3)), make((3,)), make((2, 1))
    out = run(lambda *t: ops.elementwise(lambda a, b, c: te.minimum(a, b) - c, *t), x, y, z)
    np.testing.assert_array_equal(out, np.minimum(x, y) - z)


def test_add_relu(run_func: Any, make: Any) -> None:
    x, y = make((11,)), make((11,))
    out = run_func(ops.add_relu_func(11), x, y)
    np.testing.assert_array_equal(out, np.maximum(x + y, 0))


def test_activation_func(run_func: Any, make: Any) -> None:
    x = make((5,), "bfloat16")
    out = run_func(ops.activation_func(5, "relu", "bfloat16"), x)
    np.testing.assert_array_equal(out, np.maximum(x, 0))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_bias_add(run: Any, make: Any, axis: int) -> None:
    x = make((3, 4))
    bias = make((x.shape[axis],))
    out = run(lambda a, b: ops.bias_add(a, b, axis=axis), x, bias)
    np.testing.assert_array_equal(out, x + (bias[:, None] if axis == 0 else bias))


def test_refused() -> None:
    x, y = te.placeholder((2, 3), name="x"), te.placeholder((2,), name="y")
    with pytest.raises(IRError):
        ops.add(x, y)
    with pytest.raises(IRError):
        ops.bias_add(x, y)
    with pytest.raises(IRError):
        ops.bias_add(x, y, axis=2)
