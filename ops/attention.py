"""Scaled dot-product attention."""

from __future__ import annotations

import math

from ..base import dtypes
from ..base.errors import IRError
from ..tir import te
from ..tir.te import Expr, Func, Tensor
from . import operands
from .matmul import matmul
from .operands import accumulator
from .softmax import softmax


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dtype: str | None = None,
    name: str = "attention",
) -> Tensor:
    """softmax(q @ k^T * scale + mask) @ v; q: (.., s, d), k: (.., t, d), v: (.., t, e).

    The result is (.., s, e) in `dtype`, by default that of `q`; scores and weights are in float32
    for narrower dtypes. `scale` is 1 / sqrt(d) by default. `mask` broadcasts to (.., s, t): a bool
    mask selects the elements that take part, any other is added. With `causal` row i sees columns
    up to i. A row that sees nothing returns NaN.
    """
    for t in (q, k, v):
        if t.ndim < 2 or not dtypes.is_float(t.dtype):
            raise IRError("{0}: {1} is {2} {3}; expected floats of two dimensions or more",
                          name, t.name, t.dtype, t.extents)  # fmt: skip
    factor = 1 / math.sqrt(max(q.extents[-1], 1)) if scale is None else scale
    wide = accumulator(q.dtype)
    products = matmul(q, k, transpose_b=True, dtype=wide, name=f"{name}_scores")
    lowest = te.const(float("-inf"), wide)

    def score(*i: Expr) -> Expr:
        value = products[i] * factor
        if mask is not None:
            seen = operands.element(mask, i)
            if dtypes.is_bool(mask.dtype):
                value = te.select(seen, value, lowest)
            else:
                value = value + te.cast(seen, wide)
        return te.select(i[-1] <= i[-2], value, lowest) if causal else value

    shape = products.extents
    if mask is not None and operands.shape(name, mask.extents, shape) != shape:
        raise IRError("{0}: mask {1} does not broadcast to {2}",
                      name, mask.extents, shape)  # fmt: skip
    names = ["b", "h", "i", "j"] if products.ndim == 4 else None
    scores = te.compute(shape, score, name=f"{name}_masked", axes=names)
    weights = softmax(scores, name=f"{name}_weights")
    return matmul(weights, v, dtype=dtype or q.dtype, name=name)


def attention_func(
    batch: int = 1,
    heads: int = 12,
    sequence: int = 128,
    dim: int = 64,
    dtype: str = "float32",
    *,
    causal: bool = False,
) -> Func:
    """Attention of Q, K and V, each (batch, heads, sequence, dim)."""
    shape = (batch, heads, sequence, dim)
    q, k, v = (te.placeholder(shape, dtype, name=n) for n in ("Q", "K", "V"))
    return te.func([q, k, v, attention(q, k, v, causal=causal, name="Y")], name="attention")
