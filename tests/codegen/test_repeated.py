"""Vectors of which all lanes read one element."""

from __future__ import annotations

import pytest

from tilewright.base import dtypes
from tilewright.tir.parser import parse

from .machinery import SERIAL, check

AVX2, SSE4 = "cpu -mcpu=x86-64-v3 -threads=1", "cpu -mcpu=x86-64-v2 -threads=1"
TARGETS = pytest.mark.parametrize("target", [SERIAL, AVX2, SSE4])


@pytest.mark.grid
@TARGETS
@pytest.mark.parametrize("source", dtypes.SCALARS)
def test_casts(source: str, target: str) -> None:
    others = [d for d in dtypes.SCALARS if d != source]
    parameters = ", ".join(f'Y{n}: T.Buffer((7,), "{d}")' for n, d in enumerate(others))
    loops = "".join(
        f"""
    for i in T.vectorized(7):
        Y{n}[i] = T.{dtype}(X[i // 4])"""
        for n, dtype in enumerate(others)
    )
    check(parse(f'def f(X: T.Buffer((2,), "{source}"), {parameters}):{loops}'), target=target)


VALUES = {
    "call": "T.sqrt(T.abs(X[i // 2]))",
    "sum": "X[i // 2] + X[i]",
    "sum of two": "X[i // 2] + X[(i + 1) // 2]",
    "maximum": "T.maximum(X[i // 2], X[i // 3])",
    "element": "X[i // 2]",
    "condition": "T.select(X[i // 2] < 1.0, X[i], X[i // 3])",
    "cast condition": "T.select(T.int32(X[i // 2]) < 1, X[i // 2], X[i])",
    "branches": "T.select(i < 9, X[i // 2], X[i // 3] * 2.0)",
    "index": "X[T.minimum(T.maximum(T.int64(X[i // 2]), 0), 18)]",
}


@TARGETS
@pytest.mark.parametrize("name", VALUES)
def test_what_is_computed_of_it(name: str, target: str) -> None:
    func = parse(f"""
def f(X: T.Buffer((19,), "float32"), Y: T.Buffer((19,), "float32")):
    for i in T.vectorized(19):
        Y[i] = {VALUES[name]}
""")
    check(func, target=target)
