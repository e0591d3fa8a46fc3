"""Every function and operator of `te`, at the values where functions differ, against numpy.

What numpy computes is the reference, for floats that are narrower than its own arithmetic rounded
from that. NaN, infinities and the signs of zeros are exactly those of numpy, but for the sign of
the larger or smaller of two zeros, which numpy leaves to the processor.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.detect import resolve
from tilewright.tir import te, te_activations, te_functions

from ..hosts import LESSER, runs
from .machinery import Array
from .test_values import Function, pairs, program, special, vectorized

TARGETS = ["", *(f" -mcpu={name}" for name in LESSER)]
FLOATS = [d for d in dtypes.SCALARS if dtypes.is_float(d)]
INTEGERS = [d for d in dtypes.SCALARS if dtypes.is_integer(d)]
ULPS = {"gelu": 16, "mish": 8, "logaddexp": 16}
"""How far results may be off, by default 4; those of gelu and logaddexp may be a difference."""

erf = np.vectorize(math.erf, otypes=[np.float64])
SAME_NAME = (
    "abs acos acosh asin asinh atan atanh cbrt ceil cos cosh exp exp2 expm1 floor isfinite isinf "
    "isnan log log10 log1p log2 round sign sin sinh sqrt square tan tanh trunc"
)


def below(fn: Function, scale: float = 1.0) -> Function:
    """`scale * x` where x is positive, and `fn(x)` elsewhere."""
    return lambda x: np.where(x > 0, scale * x, fn(x))


def softplus(x: Array) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-abs(x)))


SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772
ACTIVATIONS: dict[str, Function] = {
    "celu": below(np.expm1),
    "elu": below(np.expm1),
    "gelu": lambda x: x * 0.5 * (erf(x * math.sqrt(0.5)) + 1),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "leaky_relu": below(lambda x: x * 0.01),
    "log_sigmoid": lambda x: np.minimum(x, 0) - np.log1p(np.exp(-abs(x))),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "selu": below(lambda x: SCALE * (ALPHA * np.expm1(x)), SCALE),
    "silu": lambda x: x * (1 / (1 + np.exp(-x))),
    "softplus": softplus,
    "softsign": lambda x: x / (1 + abs(x)),
}
UNARY: dict[str, Function] = {
    **{name: getattr(np, name) for name in SAME_NAME.split()},
    **ACTIVATIONS,
    "erf": erf,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "signbit": lambda x: np.signbit(x) & ~np.isnan(x),
}
BINARY: dict[str, Function] = {
    "atan2": np.arctan2, "copysign": lambda x, y: np.copysign(x, np.where(np.isnan(y), 1, y)),
    "fmax": np.fmax, "fmin": np.fmin, "hypot": np.hypot, "logaddexp": np.logaddexp,
    "maximum": np.maximum, "minimum": np.minimum, "pow": np.power,
}  # fmt: skip
OTHERS = {"cast", "clip", "const", "select", "where"}
OPERATORS: list[Function] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
EXPONENTS = (-1, 0, 0.5, 1, 2, 2.0, 3, -0.5, 0.25, -1.5)
BOUNDS: list[tuple[float, float]] = [(0, 1), (-0.0, 1), (-1, 0.0), (-1, -0.0), (2, 1), (-9, 9)]
ANY_ZERO = {
    te.maximum, te.minimum, te.fmax, te.fmin, te.relu, te.relu6, te.hardsigmoid, te.hardswish,
    te.log_sigmoid,
}  # fmt: skip


def wide(x: Array) -> Array:
    """Floats as numpy computes on them."""
    return x.astype(np.float64) if dtypes.from_numpy(x.dtype) in FLOATS else x


def computed(fns: list[Function], target: str, *inputs: Array) -> list[list[Array]]:
    """The results of each function, by elements and in vectors."""
    resolved = resolve(f"cpu{target} -threads=1")
    if not runs(resolved):
        pytest.skip(f"this machine does not run {resolved}")
    func = program(fns, *inputs)
    outputs = func.params[len(inputs) :]
    results = []
    for form in (func, vectorized(func)):
        found = [np.zeros(inputs[0].shape, dtypes.to_numpy(p.dtype)) for p in outputs]
        to_module(compile_func(form, resolved))(*inputs, *found)
        results.append(found)
    return [list(forms) for forms in zip(*results, strict=True)]


def require(
    found: list[Array], exact: Any, inputs: tuple[Array, ...], name: object, *, any_zero: bool
) -> None:
    """The results are those of numpy, rounded to their dtype."""
    for result in found:
        with np.errstate(all="ignore"):
            expected = np.asarray(exact).astype(result.dtype)
            same = result == expected
            if dtypes.is_float(dtypes.from_numpy(result.dtype)):
                a, b = result.astype(np.float64), expected.astype(np.float64)
                limits: Any = ml_dtypes.finfo(result.dtype)  # type: ignore[no-untyped-call]
                unit = np.maximum(abs(b) * float(limits.eps), float(limits.smallest_subnormal))
                both = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
                same |= (np.isnan(a) & np.isnan(b)) | (
                    both & (abs(a - b) <= ULPS.get(str(name), 4) * unit)
                )
                same &= any_zero | (np.signbit(a) == np.signbit(b)) | np.isnan(b)
        for k in np.nonzero(~same)[0][:3]:
            at = ", ".join(str(x[k]) for x in inputs)
            raise AssertionError(f"{name}({at}) is {result[k]!r}, of numpy {expected[k]!r}")


def check(
    table: list[tuple[object, Function, Function]], target: str, *inputs: Array, exact: Any = wide
) -> None:
    """Names, functions of expressions, and those of numpy."""
    results = computed([fn for _, fn, _ in table], target, *inputs)
    for (name, fn, reference), found in zip(table, results, strict=True):
        with np.errstate(all="ignore"):
            value = reference(*(exact(x) for x in inputs))
        require(found, value, inputs, name, any_zero=fn in ANY_ZERO)


def test_every_function_is_in_a_table() -> None:
    modules = (te_activations, te_functions)
    functions = {n for n in te.__all__ if any(callable(getattr(r, n, None)) for r in modules)}
    assert functions - {"Expr", "Operand", "Tensor"} == UNARY.keys() | BINARY.keys() | OTHERS


@pytest.mark.grid
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_a_float(dtype: str, target: str) -> None:
    table: list[tuple[object, Function, Function]] = [
        (name, getattr(te, name), reference) for name, reference in UNARY.items()
    ]
    table += [
        (
            f"clip to {bounds}",
            lambda x, b=bounds: te.clip(x, *b),
            lambda x, b=bounds: np.clip(x, *b),
        )
        for bounds in BOUNDS
    ]
    table += [(f"power {n}", lambda x, n=n: x**n, lambda x, n=n: x**n) for n in EXPONENTS]
    table += [
        ("negative", operator.neg, operator.neg),
        ("where", lambda x: te.where(x < 1, x, 2.0), lambda x: np.where(x < 1, x, 2.0)),
    ]
    check(table, target, special(dtype))


@pytest.mark.grid
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_two_floats(dtype: str, target: str) -> None:
    x, y = pairs(dtype)
    check([(name, getattr(te, name), BINARY[name]) for name in BINARY], target, x, y)

    def own(a: Array) -> Array:
        return a if a.itemsize > 2 else a.astype(np.float32)

    check([(fn.__name__, fn, fn) for fn in OPERATORS], target, x, y, exact=own)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_a_power_is_that_of_numpy_where_its_exponent_is_an_array(dtype: str) -> None:
    """numpy's function of a number as exponent is another one: sqrt(-inf) is NaN."""
    x = special(dtype)
    for exponent in (0.5, -0.5, 2.0, 1.0, -1.0, 0.0):
        y = np.full_like(x, exponent)
        check([("pow", te.pow, np.power)], "", x, y)


@pytest.mark.grid
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_functions_of_integers(dtype: str, target: str) -> None:
    x, y = pairs(dtype)
    table: list[tuple[object, Function, Function]] = [
        (
            name,
            lambda a, b, name=name: getattr(te, name)(a),
            lambda a, b, name=name: UNARY[name](a),
        )
        for name in (
            "abs",
            "isfinite",
            "isinf",
            "isnan",
            "relu",
            "relu6",
            "sign",
            "signbit",
            "square",
        )
    ]
    table += [
        (name, getattr(te, name), BINARY[name]) for name in ("fmax", "fmin", "maximum", "minimum")
    ]
    plain = [f for f in OPERATORS if f not in (operator.floordiv, operator.mod, operator.truediv)]
    plain += [operator.and_, operator.or_, operator.xor]
    table += [(fn.__name__, fn, fn) for fn in plain]
    table += [
        ("invert", lambda a, b: ~a, lambda a, b: ~a),
        ("clip", lambda a, b: te.clip(a, 1, 5), lambda a, b: np.clip(a, 1, 5)),
        ("shifts", lambda a, b: (a << 3) ^ (b >> 2), lambda a, b: (a << 3) ^ (b >> 2)),
        *((f"power {n}", lambda a, b, n=n: a**n, lambda a, b, n=n: a**n) for n in (0, 1, 2, 3, 7)),
    ]  # fmt: skip
    for fn in (operator.floordiv, operator.mod):
        table.append((
            fn.__name__,
            lambda a, b, fn=fn: te.where(b != 0, fn(a, b), 0),
            lambda a, b, fn=fn: np.where(b != 0, fn(a, np.where(b != 0, b, 1).astype(b.dtype)), 0),
        ))  # fmt: skip
    check(table, target, x, y)


@pytest.mark.parametrize("target", TARGETS)
def test_casts_between_floats_and_between_integers(target: str) -> None:
    for kinds in (FLOATS, INTEGERS):
        for source in kinds:
            table: list[tuple[object, Function, Function]] = [
                (f"cast to {to}", lambda x, to=to: te.cast(x, to),
                 lambda x, to=to: x.astype(dtypes.to_numpy(to)))
                for to in kinds if to != source
            ]  # fmt: skip
            check(table, target, special(source), exact=lambda x: x)


@pytest.mark.parametrize("fn", [te.atan2, te.hypot])
def test_functions_of_two_take_numbers_and_promote(fn: Callable[..., Any]) -> None:
    a, b = te.placeholder((4,), "float32", name="A"), te.placeholder((4,), "float64", name="B")
    assert fn(a[0], 2).dtype == "float32"
    assert fn(1.5, a[0]).dtype == "float32"
    assert fn(a[0], b[0]).dtype == "float64"


@pytest.mark.parametrize("target", TARGETS)
def test_a_float64_that_is_rounded_twice_calls_nothing(target: str) -> None:
    """LLVM would make one rounding of two where it knows the first to be exact."""
    a, b = (te.placeholder((7,), "float16", name=n) for n in "ab")
    c = te.compute((7,), lambda i: te.cbrt(te.pow(te.pow(a[i], b[i]), -2)), name="c")
    resolved = resolve(f"cpu{target} -threads=1")
    compiled = compile_func(te.func([a, b, c]), resolved)
    if not runs(resolved):
        return
    x = np.linspace(0.5, 2, 7).astype(np.float16)
    y, out = np.full(7, 1.5, np.float16), np.zeros(7, np.float16)
    to_module(compiled)(x, y, out)
    np.testing.assert_allclose(out, np.cbrt(1 / (x**y) ** 2), rtol=4e-3)
