"""Loops as one writes them for Numba: parallel over rows, fast-math."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import njit, prange

from .. import suite
from ..suite import Array, Case
from .call import Call

VERSION = numba.__version__


def prepare(case: Case, arrays: list[Array], threads: int) -> Call | None:
    """The call for a case; `None` for products and convolutions, which are no plain loops."""
    numba.set_num_threads(threads)
    name = f"sum{case.params['axis']}" if case.op == "sum" else case.op
    if name not in _KERNELS:
        return None
    kernel = _KERNELS[name]
    out = suite.output(case)
    return Call(lambda: kernel(*arrays, out), lambda: out)


@njit(parallel=True, fastmath=True)
def _softmax(x: Any, y: Any) -> None:
    for i in prange(x.shape[0]):
        largest = x[i, 0]
        for j in range(x.shape[1]):
            largest = max(largest, x[i, j])
        total = np.float32(0)
        for j in range(x.shape[1]):
            y[i, j] = math.exp(x[i, j] - largest)
            total += y[i, j]
        scale = np.float32(1) / total
        for j in range(x.shape[1]):
            y[i, j] *= scale


@njit(parallel=True, fastmath=True)
def _layer_norm(x: Any, gamma: Any, beta: Any, y: Any) -> None:
    for i in prange(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = total / np.float32(x.shape[1])
        squares = np.float32(0)
        for j in range(x.shape[1]):
            squares += (x[i, j] - mean) ** 2
        scale = np.float32(1) / math.sqrt(squares / np.float32(x.shape[1]) + np.float32(1e-5))
        for j in range(x.shape[1]):
            y[i, j] = (x[i, j] - mean) * scale * gamma[j] + beta[j]


@njit(parallel=True, fastmath=True)
def _add_relu(a: Any, b: Any, c: Any) -> None:
    for i in prange(a.shape[0]):
        c[i] = max(a[i] + b[i], np.float32(0))


@njit(parallel=True, fastmath=True)
def _sum_rows(x: Any, y: Any) -> None:
    for i in prange(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        y[i] = total


@njit(parallel=True, fastmath=True)
def _sum_columns(x: Any, y: Any) -> None:
    block = 256
    for k in prange((x.shape[1] + block - 1) // block):
        first, last = k * block, min((k + 1) * block, x.shape[1])
        for j in range(first, last):
            y[j] = 0
        for i in range(x.shape[0]):
            for j in range(first, last):
                y[j] += x[i, j]


@njit(parallel=True, fastmath=True)
def _transpose(x: Any, y: Any) -> None:
    block = 32
    for k in prange((x.shape[0] + block - 1) // block):
        for first in range(0, x.shape[1], block):
            for i in range(k * block, min((k + 1) * block, x.shape[0])):
                for j in range(first, min(first + block, x.shape[1])):
                    y[j, i] = x[i, j]


_KERNELS: dict[str, Callable[..., None]] = {
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "add_relu": _add_relu,
    "sum0": _sum_columns,
    "sum1": _sum_rows,
    "transpose": _transpose,
}
