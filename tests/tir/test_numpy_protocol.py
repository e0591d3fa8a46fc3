"""Functions of numpy on expressions: they mean what they mean on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import IRError
from tilewright.tir import te
from tilewright.tir.interpreter import interpret

VALUES = np.array([-2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 40.0, np.inf, -np.inf, np.nan])
X = VALUES.astype(np.float32)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "absolute": np.absolute,
    "abs of Python": abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "log2": lambda x: np.log2(np.absolute(x)),
    "log10": lambda x: np.log10(np.absolute(x)),
    "tan": np.tan,
    "tanh": np.tanh,
    "arctan": np.arctan,
    "arcsin": lambda x: np.arcsin(np.tanh(x)),
    "arccos": lambda x: np.arccos(np.tanh(x)),
    "arctan2": lambda x: np.arctan2(x, 0.5) + np.arctan2(-1, x),
    "hypot": lambda x: np.hypot(x, 2),
    "cbrt": np.cbrt,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "arcsinh": np.arcsinh,
    "arccosh": lambda x: np.arccosh(np.absolute(x)),
    "arctanh": lambda x: np.arctanh(x / 40),
    "sqrt": np.sqrt,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "rint": np.rint,
    "round": np.round,
    "sign": np.sign,
    "copysign": lambda x: np.copysign(x, -0.0) + np.copysign(2, x + 0.5),
    "fmax": lambda x: np.fmax(x, 0.25) + np.fmin(1, x),
    "logaddexp": lambda x: np.logaddexp(x, 0.5),
    "signbit": lambda x: np.where(np.signbit(x), 1.0, 0.0),
    "isnan": lambda x: np.where(np.isnan(x), 1.0, 0.0),
    "isinf": lambda x: np.where(np.isinf(x), 1.0, 0.0),
    "isfinite": lambda x: np.where(np.isfinite(x), 1.0, 0.0),
    "maximum": lambda x: np.maximum(x, 0),
    "minimum, a scalar first": lambda x: np.minimum(np.float32(0.5), x),
    "clip": lambda x: np.clip(x, -1, 1),
    "clip above": lambda x: np.clip(x, None, 1),
    "a scalar of numpy": lambda x: np.float32(2) * x - np.float32(1) / x,
    "an array without dimensions": lambda x: np.array(2, np.float32) * x,
    "a square": lambda x: x**2,
    "a power": lambda x: np.power(np.absolute(x), 1.5),
    "the base is a number": lambda x: 2.0**x,
    "positive": lambda x: +x,
    "logic": lambda x: np.where(np.logical_and(x, np.logical_not(x > 1)), 1.0, 0.0),
    "either": lambda x: np.where(np.logical_xor(x > 0, np.logical_or(x, x < 1)), 1.0, 0.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_results_are_those_of_numpy(name: str) -> None:
    function = FUNCTIONS[name]
    x = te.placeholder(X.shape, "float32", name="X")
    y = te.compute(X.shape, lambda i: te.cast(function(x[i]), "float32"), name="Y")
    found = np.empty_like(X)
    with np.errstate(all="ignore"):
        interpret(te.func([x, y]), X, found)
        np.testing.assert_allclose(found, np.asarray(function(X), np.float32), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint32", "int64"])
@pytest.mark.parametrize("exponent", [1, 2, 3, 5, 8])
def test_powers_of_integers_wrap_around(dtype: str, exponent: int) -> None:
    x = np.array([0, 1, 2, 3, 7, 11], dtype)
    a = te.placeholder(x.shape, dtype, name="A")
    y = te.compute(x.shape, lambda i: a[i] ** exponent, name="Y")
    found = np.empty_like(x)
    interpret(te.func([a, y]), x, found)
    np.testing.assert_array_equal(found, x**exponent)


def test_a_power_of_0_is_1() -> None:
    assert repr(te.placeholder((4,), "int8", name="A")[0] ** 0) == "T.int8(1)"


def test_operators_with_a_number_first() -> None:
    x = np.array([0, 1, 5], np.int32)
    a = te.placeholder(x.shape, "int32", name="A")
    quotient, rest = divmod(a[0], 3)
    assert repr((quotient, rest)) == "(A[0] // 3, A[0] % 3)"
    y = te.compute(x.shape, lambda i: (1 << a[i]) + (64 >> a[i]), name="Y")
    found = np.empty_like(x)
    interpret(te.func([a, y]), x, found)
    np.testing.assert_array_equal(found, (1 << x) + (64 >> x))


def test_constants_have_the_dtype_of_their_number() -> None:
    assert [te.const(v).dtype for v in (True, 3, 1.5)] == ["bool", "int64", "float32"]
    assert te.const(1.5, "float64").dtype == "float64"


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float16", "float64"])
def test_signs(dtype: str) -> None:
    x = np.array([0, 1, 5] if dtype == "uint8" else [0, 1, -5], dtype)
    a = te.placeholder(x.shape, dtype, name="A")
    y = te.compute(x.shape, lambda i: te.sign(a[i]), name="Y")
    found = np.empty_like(x)
    interpret(te.func([a, y]), x, found)
    np.testing.assert_array_equal(found, np.sign(x))
    assert y.dtype == dtype


@pytest.mark.parametrize("function", [np.fabs, np.reciprocal])
def test_functions_that_differ_for_integers_ask_for_floats(function: Any) -> None:
    x = te.placeholder((4,), "int32", name="X")
    with pytest.raises(IRError):
        te.compute((4,), lambda i: function(x[i]), name="Y")
