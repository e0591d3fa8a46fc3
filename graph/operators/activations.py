"""The functions that networks apply to each float; a narrow one is rounded once."""

from __future__ import annotations

import math

import numpy as np

from ...tir import te
from ..operator import Array
from .pointwise import erf, logistic, pointwise


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _elu(x: Array, *, alpha: float) -> Array:
    return np.where(x > 0, x, np.expm1(x) * alpha)


def _celu(x: Array, *, alpha: float) -> Array:
    return np.where(x > 0, x, np.expm1(x / alpha) * alpha)


def _gelu(x: Array) -> Array:
    return np.asarray(x * 0.5 * (erf(x * math.sqrt(0.5)) + 1))


_TANH = math.sqrt(2 / math.pi)


def _gelu_by_tanh(x: Array) -> Array:
    return np.asarray(x * 0.5 * (np.tanh(_TANH * (x + 0.044715 * x * x * x)) + 1))


pointwise("relu", te.relu, lambda x: np.maximum(x, 0))
pointwise("sigmoid", te.sigmoid, logistic)
pointwise("softplus", te.softplus, _softplus)
pointwise("softsign", te.softsign, lambda x: x / (1 + np.abs(x)))
pointwise("mish", te.mish, lambda x: x * np.tanh(_softplus(x)))
pointwise("elu", lambda x, *, alpha=1.0: te.elu(x, alpha), _elu)
pointwise("celu", lambda x, *, alpha=1.0: te.celu(x, alpha), _celu)
pointwise(
    "selu",
    lambda x, *, alpha, gamma: te.elu(x, alpha) * gamma,
    lambda x, *, alpha, gamma: _elu(x, alpha=alpha) * gamma,
)
pointwise(
    "leaky_relu",
    lambda x, *, slope: te.select(x < 0, x * slope, x),
    lambda x, *, slope: np.where(x < 0, x * slope, x),
)
pointwise(
    "hard_sigmoid",
    lambda x, *, alpha, beta: te.hardsigmoid(x, alpha, beta),
    lambda x, *, alpha, beta: np.clip(x * alpha + beta, 0, 1),
)
pointwise(
    "hard_swish",
    lambda x, *, alpha, beta: x * te.hardsigmoid(x, alpha, beta),
    lambda x, *, alpha, beta: x * np.clip(x * alpha + beta, 0, 1),
)
pointwise(
    "swish",
    lambda x, *, alpha=1.0: x * te.sigmoid(x * alpha),
    lambda x, *, alpha: x * logistic(x * alpha),
)
pointwise("gelu", te.gelu, _gelu)
pointwise(
    "gelu_by_tanh",
    lambda x: x * 0.5 * (te.tanh((x + x * x * x * 0.044715) * _TANH) + 1.0),
    _gelu_by_tanh,
)
