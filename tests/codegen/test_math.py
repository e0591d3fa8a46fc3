"""The accuracy that llvm_math.py and te_functions.py state, by random arguments of any size."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.detect import resolve
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import FLOAT_FUNCTIONS, ROUNDINGS

from ..hosts import LESSER, runs

Array = np.ndarray[Any, Any]
HARDEST = {"float32": 16367173.0 * 2.0**72, "float64": 6381956970095103.0 * 2.0**797}
"""The arguments that are nearest to a multiple of pi / 2 (J.-M. Muller, "Elementary Functions")."""
COUNT = 60_000
ERRORS = {
    ("exp", "float32"): 1.0,
    ("exp", "float64"): 1.0,
    ("exp2", "float32"): 1.5,
    ("exp2", "float64"): 1.5,
    ("sin", "float32"): 0.6,
    ("sin", "float64"): 1.0,
    ("cos", "float32"): 0.6,
    ("cos", "float64"): 1.0,
    ("log", "float32"): 1.0,
    ("log", "float64"): 1.0,
    ("erf", "float32"): 1.5,
    ("erf", "float64"): 1.5,
    ("tanh", "float32"): 2.5,
    ("tanh", "float64"): 2.5,
    ("sigmoid", "float32"): 2.5,
    ("sigmoid", "float64"): 2.5,
    ("rsqrt", "float32"): 1.5,
    ("rsqrt", "float64"): 1.5,
    ("pow", "float32"): 0.6,
    ("pow", "float64"): 2.0,
    ("hypot", "float32"): 0.6,
    ("hypot", "float64"): 1.5,
    **{
        (name, dtype): limit
        for name, limit in {
            "expm1": 2.5,
            "log1p": 1.0,
            "asin": 3.0,
            "acos": 1.5,
            "atan": 3.0,
            "atan2": 3.0,
            "sinh": 3.0,
            "cosh": 2.0,
            "asinh": 2.0,
            "acosh": 2.5,
            "atanh": 2.5,
            "cbrt": 1.0,
            **dict.fromkeys(("log2", "log10", "tan"), 3.0),  # te_functions.py composes these
        }.items()
        for dtype in ("float32", "float64")
    },
}
WIDEST = {
    "exp": (105, 746),
    "exp2": (151, 1076),
    "tanh": (12, 25),
    "erf": (5, 7),
    "sigmoid": (105, 740),
    "expm1": (88, 709),
    "sinh": (89.4, 710.4),
    "cosh": (89.4, 710.4),
    "asin": (1, 1),
    "acos": (1, 1),
    "atanh": (1, 1),
}


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, e, 1) / (1 + e))


REFERENCES: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "sin": np.sin,
    "cos": np.cos,
    "log": np.log,
    "erf": lambda x: np.array([math.erf(float(v)) for v in x]),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "pow": np.power,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "hypot": np.hypot,
}


def arguments(name: str, dtype: str, rng: np.random.Generator) -> tuple[Array, ...]:
    """Both large and small ones, in proportion to their logarithm too."""
    is_double = dtype == "float64"
    most = 708.0 if is_double else 87.0
    wide = np.exp(rng.uniform(-most, most, COUNT))
    near = rng.uniform(0.3, 3.0, COUNT)
    half = np.arange(COUNT) % 2 == 0
    if name == "pow":
        x = np.where(half, near, wide)
        y = np.where(half, rng.uniform(-60, 60, COUNT), rng.uniform(-1.01, 1.01, COUNT))
        return x.astype(dtype), y.astype(dtype)
    if name == "log1p":
        return (
            np.where(half, rng.choice([-1, 1], COUNT) * np.minimum(wide, 0.999), wide).astype(
                dtype
            ),
        )
    if name in ("atan2", "hypot"):
        signs = rng.choice([-1, 1], (2, COUNT))
        x = np.where(half, near, wide)
        y = x * np.where(rng.random(COUNT) < 0.5, np.exp(rng.uniform(-3, 3, COUNT)), near)
        y = np.minimum(y, float(np.finfo(dtype).max))
        return (x * signs[0]).astype(dtype), (y * signs[1]).astype(dtype)
    if name in ("atan", "asinh", "cbrt"):
        return ((np.where(half, near, wide) * rng.choice([-1, 1], COUNT)).astype(dtype),)
    if name == "acosh":
        return ((1 + np.where(half, near, wide)).astype(dtype),)
    if name in ("log", "log2", "log10", "rsqrt"):
        return (np.where(half, near, wide).astype(dtype),)
    if name in ("sin", "cos", "tan"):
        wide *= rng.choice([-1, 1], COUNT)
        turns = np.rint(wide / np.pi * 2) * (np.pi / 2)  # near where the result is 0 or 1
        near = np.where(rng.random(COUNT) < 0.5, turns, rng.uniform(-40, 40, COUNT))
        return (np.concatenate([np.where(half, near, wide)[:-1], [HARDEST[dtype]]]).astype(dtype),)
    limit = WIDEST[name][is_double]
    scale = np.where(half, 1.0, np.exp2(-rng.uniform(0, 30, COUNT)))
    return ((rng.uniform(-limit, limit, COUNT) * scale).astype(dtype),)


def units(found: Array, exact: Array) -> Array:
    """Distance in units in the last place of the exact result."""
    nearest = exact.astype(found.dtype)
    step = np.spacing(np.abs(nearest)).astype(np.longdouble)
    difference = np.abs(found.astype(np.longdouble) - exact.astype(np.longdouble)) / step
    same = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
    return np.asarray(np.where(same, np.fmin(difference, 0.5), difference), np.float64)


def test_every_function_that_is_not_exact_states_an_error() -> None:
    exact = ROUNDINGS | {"sqrt"}
    assert FLOAT_FUNCTIONS.keys() - exact <= {name for name, _ in ERRORS}


@pytest.mark.parametrize(("name", "dtype"), ERRORS)
def test_the_stated_error_holds(name: str, dtype: str) -> None:
    inputs = arguments(name, dtype, np.random.default_rng(7))
    tensors = [te.placeholder((COUNT,), dtype, name=f"x{k}") for k in range(len(inputs))]
    y = te.compute((COUNT,), lambda i: getattr(te, name)(*(t[i] for t in tensors)), name="y")
    sch = Schedule(te.func([*tensors, y], name="f"))
    (loop,) = sch.get_loops(sch.get_block("y"))
    sch.vectorize(sch.split(loop, [None, 16])[1])
    found = np.zeros(COUNT, dtype)
    to_module(compile_func(sch.func, "cpu -threads=1"))(*inputs, found)
    precise = np.float64 if dtype == "float32" or name == "erf" else np.longdouble
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](*(x.astype(precise) for x in inputs))
        errors = units(found, exact)
    worst = int(np.argmax(errors))
    at = [x[worst] for x in inputs]
    assert errors[worst] <= ERRORS[name, dtype], f"{name}{at}: {found[worst]}, {exact[worst]}"


@pytest.mark.grid
@pytest.mark.parametrize("cpu", ["", *(f" -mcpu={name}" for name in LESSER)])
@pytest.mark.parametrize("lanes", [1, 4, 8, 16, 32])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_errors_are_the_same_for_large_arguments(
    name: str, dtype: str, lanes: int, cpu: str
) -> None:
    """Of each exponent, and beside small ones and infinities in a vector."""
    target = resolve(f"cpu{cpu} -threads=1")
    if not runs(target):
        pytest.skip(f"this machine does not run {target}")
    rng, each = np.random.default_rng(11), 512 if dtype == "float32" else 64
    exponents = np.arange(20, 128 if dtype == "float32" else 1024)
    x = np.ldexp(rng.uniform(1, 2, (each, len(exponents))), exponents).astype(dtype)
    with np.errstate(over="ignore"):
        x[: each // 2] = np.rint(x[: each // 2] / np.longdouble(np.pi / 2)) * np.longdouble(
            np.pi / 2
        )
    x[0, :4] = HARDEST[dtype], np.finfo(dtype).max, 2.0**20, np.inf
    x[1::7, 1::3] = rng.uniform(-10, 10, x[1::7, 1::3].shape)
    x *= rng.choice([-1, 1], x.shape).astype(dtype)
    x = x.reshape(-1)
    source = te.placeholder(x.shape, dtype, name="x")
    y = te.compute(x.shape, lambda i: getattr(te, name)(source[i]), name="y")
    sch = Schedule(te.func([source, y], name="f"))
    if lanes > 1:
        (loop,) = sch.get_loops(sch.get_block("y"))
        sch.vectorize(sch.split(loop, [None, lanes])[1])
    found = np.zeros_like(x)
    to_module(compile_func(sch.func, target))(x, found)
    precise = np.float64 if dtype == "float32" else np.longdouble
    with np.errstate(invalid="ignore"):
        errors = units(found, REFERENCES[name](x.astype(precise)))
    worst = int(np.argmax(errors))
    limit = 0.515 if dtype == "float32" else 0.85
    assert errors[worst] <= limit, f"{name}({x[worst]}): {found[worst]}"


def test_large_arguments_are_reduced_in_vectors() -> None:
    source = te.placeholder((64,), name="x")
    y = te.compute((64,), lambda i: te.sin(source[i]), name="y")
    sch = Schedule(te.func([source, y], name="f"))
    (loop,) = sch.get_loops(sch.get_block("y"))
    sch.vectorize(sch.split(loop, [None, 16])[1])
    text = compile_func(sch.func, "cpu -mcpu=x86-64-v4 -threads=1").source("asm")
    _, _, reduction = text.partition("tilewright.large_angle.float32.16:")
    reduction, end, _ = reduction.partition(".Lfunc_end")
    assert end
    assert len(re.findall(r"\svperm(?:q|pd)\s.*%zmm", reduction)) == 6, reduction
    assert not re.search(r"\sv\w+sd\s+%|\scall|\smul[qx]", reduction), reduction


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["exp2", "sin", "cos"])
def test_all_halves_are_rounded_from_float32(name: str, dtype: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(dtypes.to_numpy(dtype))
    source = te.placeholder(x.shape, dtype, name="x")
    y = te.compute(x.shape, lambda i: getattr(te, name)(source[i]), name="y")
    found = np.zeros_like(x)
    to_module(compile_func(te.func([source, y], name="f"), "cpu -threads=1"))(x, found)
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](x.astype(np.float64))
        nearest = exact.astype(np.float32).astype(x.dtype)
    differ = ~((found == nearest) | (np.isnan(found) & np.isnan(nearest)))
    # The error in float32 shows only beside the middle of two halves.
    assert np.count_nonzero(differ) <= 8, (x[differ], found[differ], exact[differ])
    bits = found.view(np.int16).astype(int) - nearest.view(np.int16).astype(int)
    assert (np.abs(bits[differ]) == 1).all()
