"""Long sums are as exact as sums by parts, unless their order is to be kept."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.build import compile_func, to_module
from tilewright.tir.parser import parse

from .machinery import SERIAL


@pytest.mark.parametrize("columns", [16, 13])  # 13: some lanes of the vector are masked
@pytest.mark.parametrize(
    ("outer", "inner", "times"),
    [(9216, 1, 2.5), (1024, 9, 2.5), (1021, 9, 2.5), (2, 4608, 2.5), (128, 1, 1.5)],
)
def test_errors_of_long_sums(columns: int, outer: int, inner: int, times: float) -> None:
    """The error grows with the root of a part and of the number of parts, not with that of all."""
    func = parse(f"""
@tw.script
def f(X: T.Buffer(({outer}, {inner}, {columns}), "float32"), C: T.Buffer(({columns},), "float32")):
    R = T.alloc(({columns},), "float32", scope="register")
    for j in T.vectorized({columns}):
        R[j] = 0.0
    for k in range({outer}):
        for i in range({inner}):
            for j in T.vectorized({columns}):
                R[j] = R[j] + X[k, i, j]
    for j in T.vectorized({columns}):
        C[j] = R[j]
""")
    rng = np.random.default_rng(1)
    x = rng.standard_normal((outer, inner, columns)).astype(np.float32)
    exact = x.sum((0, 1), np.float64)

    def error(*, strict: bool) -> float:
        found = np.zeros(columns, np.float32)
        to_module(compile_func(func, SERIAL, strict_fp=strict))(x, found)
        return float(np.square(found - exact).mean() ** 0.5)

    assert times * error(strict=False) < error(strict=True)
