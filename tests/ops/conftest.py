"""Running operators through the interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Buffer, Func

from ..wellformed import keep_structure

Array: TypeAlias = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def lowering_keeps_the_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_structure(monkeypatch)


def run_func(func: Func, *inputs: Array) -> Array:
    """The result of a program with one output, its last parameter."""
    output = func.params[-1]
    assert isinstance(output, Buffer)
    shape = [d for d in output.shape if isinstance(d, int)]
    result = np.empty(shape, dtypes.to_numpy(output.dtype))
    interpret(func, *inputs, result)
    return result


def run_operator(operator: Callable[..., te.Tensor], *inputs: Array) -> Array:
    """The result of an operator for arrays, by placeholders of their shapes and dtypes."""
    tensors = [
        te.placeholder(x.shape, dtypes.from_numpy(x.dtype), name=f"x{k}")
        for k, x in enumerate(inputs)
    ]
    return run_func(te.func([*tensors, operator(*tensors)]), *inputs)


@pytest.fixture(name="run_func")
def run_func_fixture() -> Callable[..., Array]:
    return run_func


@pytest.fixture(name="run")
def run_fixture() -> Callable[..., Array]:
    return run_operator


@pytest.fixture
def make() -> Callable[..., Array]:
    """Numbers of any dtype: floats in [-2, 2), integers in [-100, 100) or [0, 100)."""
    rng = np.random.default_rng(0)

    def array(shape: tuple[int, ...], dtype: str = "float32") -> Array:
        if dtypes.is_float(dtype):
            return rng.uniform(-2, 2, shape).astype(dtypes.to_numpy(dtype))
        low = -100 if dtypes.info(dtype).kind == "int" else 0
        return rng.integers(low, 100, shape).astype(dtypes.to_numpy(dtype))

    return array


@pytest.fixture
def close() -> Callable[..., None]:
    """Equality up to the rounding of the result's dtype, against a reference in float64."""

    def check(found: Array, wanted: Array, ulps: float = 8) -> None:
        assert found.shape == wanted.shape
        name = dtypes.from_numpy(found.dtype)
        if not dtypes.is_float(name):
            np.testing.assert_array_equal(found, wanted)
            return
        epsilon = 2.0 ** -dtypes.info(name).mantissa
        tolerance = ulps * epsilon
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
        )

    return check


@pytest.fixture
def activations() -> dict[str, Callable[[Array], Array]]:
    """Activations of float64 arrays by their definitions."""
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return {
        "relu": lambda x: np.where(x > 0, x, 0),
        "gelu": lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))),
        "silu": lambda x: x / (1 + np.exp(-x)),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "tanh": np.tanh,
        "exp": np.exp,
    }
