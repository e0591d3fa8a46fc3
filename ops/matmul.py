"""Matrix products: batched, transposed, in mixed precision, with a fused epilogue."""

from __future__ import annotations

from ..base import dtypes
from ..base.errors import IRError
from ..tir import te
from ..tir.te import Expr, Func, Tensor
from . import operands
from .elementwise import Activation, activate
from .operands import accumulator, result_dtype


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Tensor | None = None,
    epilogue: Activation | None = None,
    dtype: str | None = None,
    name: str = "matmul",
) -> Tensor:
    """`epilogue(a @ b + bias)`; a: (.., n, k), b: (.., k, m), bias: (m,), result: (.., n, m).

    Leading dimensions broadcast. `transpose_a` takes a as (.., k, n), `transpose_b` b as (.., m,
    k). Products, bias and epilogue are in float32 (int32) for narrower operands. The result is in
    `dtype`, by default that of float operands, and of the sum for integers. The product is a stage
    `<name>_sum` if an epilogue or bias follows. Raises `IRError` for mismatched shapes.
    """
    for t in (a, b):
        if t.ndim < 2:
            raise IRError("{0}: {1} has shape {2}; expected two dimensions or more",
                          name, t.name, t.extents)  # fmt: skip
    n, k = a.extents[:-3:-1] if transpose_a else a.extents[-2:]
    inner, m = b.extents[:-3:-1] if transpose_b else b.extents[-2:]
    if k != inner:
        raise IRError(
            "{0}: {1} {2} and {3} {4} have inner extents {5} and {6}",
            name, a.name, a.extents, b.name, b.extents, k, inner,
            hint="they must be equal; see transpose_a and transpose_b",
        )  # fmt: skip
    if bias is not None and bias.extents != (m,):
        raise IRError("{0}: bias has shape {1}, expected ({2},)", name, bias.extents, m)
    batch = operands.shape(name, a.extents[:-2], b.extents[:-2])
    common = dtypes.promote(a.dtype, b.dtype)
    wide = accumulator(common)
    r = te.reduce_axis(k, name="k")

    def element(*indices: Expr) -> Expr:
        *lead, i, j = indices
        x = operands.element(a, [*lead, r, i] if transpose_a else [*lead, i, r])
        y = operands.element(b, [*lead, j, r] if transpose_b else [*lead, r, j])
        total = te.sum(te.cast(x, wide) * te.cast(y, wide), axis=r)
        if bias is not None:
            total = total + te.cast(bias[j], wide)
        return te.cast(activate(total, epilogue), dtype or result_dtype(common))

    names = [f"b{d}" for d in range(len(batch))] if len(batch) > 1 else ["b"] * len(batch)
    return te.compute((*batch, n, m), element, name=name, axes=[*names, "i", "j"])


def matmul_func(
    n: int = 1024,
    m: int = 1024,
    k: int = 1024,
    dtype: str = "float32",
    *,
    batch: int | None = None,
    dtype_b: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: bool = False,
    epilogue: Activation | None = None,
    constant_b: bool = False,
) -> Func:
    """`C = epilogue(A @ B + bias)` with A (n, k) and B (k, m), or `batch` of such pairs."""
    lead = () if batch is None else (batch,)
    shape_a = (*lead, k, n) if transpose_a else (*lead, n, k)
    shape_b = (*lead, m, k) if transpose_b else (*lead, k, m)
    a = te.placeholder(shape_a, dtype, name="A")
    b = te.placeholder(shape_b, dtype_b or dtype, name="B", constant=constant_b)
    c = te.placeholder((m,), dtype, name="bias") if bias else None
    product = matmul(
        a, b, transpose_a=transpose_a, transpose_b=transpose_b, bias=c, epilogue=epilogue, name="C"
    )
    return te.func([a, b, *([] if c is None else [c]), product], name="matmul")


def int8_matmul_func(n: int = 1024, m: int = 1024, k: int = 1024) -> Func:
    """`C = A @ B` with A (n, k) uint8, B (k, m) int8 and C int32."""
    return matmul_func(n, m, k, "uint8", dtype_b="int8")
