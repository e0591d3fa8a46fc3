from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tilewright import IRError, ops
from tilewright.tir import te


@pytest.mark.parametrize("axes", [None, *itertools.permutations(range(3)), (-1, 0, 1)])
def test_permutations(run: Any, make: Any, axes: Any) -> None:
    x = make((2, 3, 4), "int16")
    np.testing.assert_array_equal(run(lambda t: ops.transpose(t, axes), x), np.transpose(x, axes))


@pytest.mark.parametrize("shape", [(), (5,), (1, 1), (0, 3)])
def test_few_dimensions(run: Any, make: Any, shape: tuple[int, ...]) -> None:
    x = make(shape, "bfloat16")
    np.testing.assert_array_equal(run(ops.transpose, x), x.T)


def test_func(run_func: Any, make: Any) -> None:
    x = make((5, 3))
    np.testing.assert_array_equal(run_func(ops.transpose_func(5, 3), x), x.T)


@pytest.mark.parametrize("axes", [(0,), (0, 0), (0, 1, 1)])
def test_no_permutation(axes: tuple[int, ...]) -> None:
    with pytest.raises(IRError):
        ops.transpose(te.placeholder((2, 3), name="x"), axes)
