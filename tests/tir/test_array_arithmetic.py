"""Operators and functions on arrays are those on single values."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.base import dtypes
from tilewright.tir import arithmetic, array_arithmetic
from tilewright.tir.ir import BITWISE, COMPARISONS, FLOAT_FUNCTIONS, FUNCTIONS, SHIFTS, Op

Array = npt.NDArray[Any]
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    3.5,
    -7.0,
    448.0,
    449.0,
    465.0,
    61440.0,
    65519.0,
    65520.0,
]
HUGE = [1e9, -3e9, 2.0**31, 2.0**63, -(2.0**63), 2.0**64, 3e38, 1e300, 1e-40, 1e-310]
NOT_FINITE = [np.inf, -np.inf, np.nan]


def samples(dtype: str) -> Array:
    """Values of a dtype: its limits, what is special, and random ones."""
    rng = np.random.default_rng(3)
    facts = dtypes.info(dtype)
    number = dtypes.to_numpy(dtype)
    if facts.kind == "bool":
        return np.array([False, True])
    if facts.kind == "float":
        spread = rng.standard_normal(40) * 10.0 ** rng.integers(-6, 6, 40)
        with np.errstate(all="ignore"):
            return np.array([*SPECIAL, *HUGE, *NOT_FINITE, *spread]).astype(number)
    low, high = dtypes.int_limits(dtype)
    near = [low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 8, max(low, -1), max(low, -5)]
    if facts.bits > 16:
        near += [31, 32, 63, 64, 2**24 + 1, 2**24 + 3, 2**25 + 2, high // 3]
    return np.array([*near, *rng.integers(low, high, 25, dtype=number, endpoint=True)], number)


def values(a: Array) -> list[Any]:
    """The elements as `arithmetic` has them."""
    return list(a) if a.dtype.kind in "fV" else list(a.tolist())


def require_equal(found: Array, expected: list[Any], dtype: str, what: str) -> None:
    number = dtypes.to_numpy(dtype)
    wanted = np.array(expected, number)
    assert found.dtype == number, what
    if dtypes.is_float(dtype):
        a, b = (x.astype(np.float64) for x in (found, wanted))
        same = (a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)
    else:
        same = found == wanted
    assert same.all(), (what, found[~same], wanted[~same])


@pytest.mark.parametrize("dtype", dtypes.SCALARS)
def test_operators(dtype: str) -> None:
    facts = dtypes.info(dtype)
    pairs = list(itertools.product(samples(dtype), repeat=2))
    for op in Op:
        if facts.kind == "bool" and op not in COMPARISONS | BITWISE | {Op.MIN, Op.MAX}:
            continue
        if facts.kind == "float" and op in BITWISE | SHIFTS:
            continue
        if facts.kind != "float" and op is Op.DIV:
            continue
        chosen = pairs
        if op in (Op.FLOORDIV, Op.MOD) and facts.kind != "float":
            chosen = [(a, b) for a, b in pairs if b != 0]
        x, y = (np.array(side, dtypes.to_numpy(dtype)) for side in zip(*chosen, strict=True))
        one = arithmetic.binary(op, dtype)
        with np.errstate(all="ignore"):
            expected = [one(a, b) for a, b in zip(values(x), values(y), strict=True)]
            found = array_arithmetic.binary(op, dtype)(x, y)
        require_equal(found, expected, "bool" if op in COMPARISONS else dtype, f"{op} {dtype}")


@pytest.mark.parametrize("dtype", dtypes.SCALARS)
def test_functions(dtype: str) -> None:
    kind = dtypes.info(dtype).kind
    names = {"float": [*FLOAT_FUNCTIONS, "neg", "abs"], "bool": ["not"]}
    for fn in names.get(kind, ["neg", "abs", "not"]):
        x = samples(dtype)
        operands = [x, x[::-1]][: FUNCTIONS[fn]]
        one = arithmetic.call(fn, dtype)
        with np.errstate(all="ignore"):
            expected = [one(*args) for args in zip(*map(values, operands), strict=True)]
            found = array_arithmetic.call(fn, dtype)(*operands)
        require_equal(found, expected, dtype, f"{fn} {dtype}")


@pytest.mark.parametrize("source", dtypes.SCALARS)
def test_casts(source: str) -> None:
    x = samples(source)
    for target in dtypes.SCALARS:
        if target == source:
            continue
        one = arithmetic.cast(source, target)
        with np.errstate(all="ignore"):
            expected = [one(a) for a in values(x)]
            found = array_arithmetic.cast(source, target)(x)
        require_equal(found, expected, target, f"{source} to {target}")


@pytest.mark.parametrize("dtype", dtypes.SCALARS)
def test_constants(dtype: str) -> None:
    with np.errstate(all="ignore"):
        for a in samples(dtype):
            value = a.item() if a.dtype.kind != "V" else float(a)
            found = array_arithmetic.constant(value, dtype)
            assert found.shape == (1,)
            require_equal(found, [arithmetic.constant(value, dtype)], dtype, f"constant {a}")
