"""Products of matrices, convolutions, attention, and Einstein summation."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

from ....graph.builder import Builder
from ....graph.compose.attention import Seen, attention
from ....graph.compose.basics import cast_to, reshaped
from ....graph.compose.contraction import (
    Convolution,
    biased,
    grouped_product,
    matrices,
    of_matrices,
    product,
    products_of_groups,
    transposed_conv,
)
from ....graph.compose.einsum import einsum
from ....graph.compose.linear import turned
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import Number, arithmetic, aten, spread
from .rows import vector_norm


@aten("mm", "bmm", "matmul", "mv", "dot")
def matmul(b: Builder, _out: TensorType, x: Value, y: Value) -> Value:
    return product(b, x, y)


@aten("_grouped_mm", "transformers.grouped_mm_fallback.default")
def grouped_matmul(
    b: Builder,
    out: TensorType,
    x: Value,
    y: Value,
    offs: Value | None = None,
    bias: Value | None = None,
    out_dtype: object = None,
) -> Value:
    """The products of groups of rows or columns, of which `offs` are the ends.

    Groups of rows of a matrix, or columns of the second one, are each multiplied by a matrix of
    their own. Of two matrices the groups are of what the product sums over.

    The second name is what transformers calls instead, where a compiler is not to see the first.
    """
    del out_dtype
    if bias is not None or (offs is None and (x.type.rank, y.type.rank) != (3, 3)):
        raise Unsupported(Reason.ATTRIBUTE, f"groups of {x.type} by {y.type}")
    return cast_to(b, _grouped(b, x, y, offs), out.dtype)


def _grouped(b: Builder, x: Value, y: Value, ends: Value | None) -> Value:
    if ends is None:
        return product(b, x, y)
    if y.type.rank == 3:
        return grouped_product(b, x, y, ends)
    if x.type.rank == 3:
        return turned(b, grouped_product(b, turned(b, y), turned(b, x), ends))
    return products_of_groups(b, turned(b, x), y, ends)


@aten("transformers.grouped_mm_fallback_backward.default")
def grouped_matmul_gradients(
    b: Builder, _out: TensorType, x: Value, weight: Value, offs: Value, gradient: Value
) -> Sequence[Value]:
    of_rows = grouped_product(b, gradient, turned(b, weight), offs)
    return of_rows, products_of_groups(b, x, gradient, offs)


@aten("linear")
def linear(
    b: Builder, _out: TensorType, x: Value, weight: Value, bias: Value | None = None
) -> Value:
    if weight.type.rank != 2:
        raise Unsupported(Reason.ATTRIBUTE, f"a weight of {weight.type}")
    rows, _ = matrices(b, x, weight)
    z = of_matrices(b, b.add("matmul", rows, weight, transpose_b=True), x, weight)
    return z if bias is None else b.add("add", z, bias)


@aten("addmm", "addmv", "baddbmm")
def add_product(
    b: Builder,
    out: TensorType,
    x: Value,
    first: Value,
    second: Value,
    *,
    beta: Number = 1,
    alpha: Number = 1,
) -> Value:
    z = product(b, first, second)
    z = z if alpha == 1 else arithmetic("multiply", b, out, z, alpha)
    if not beta:  # what is in `x` then does not matter, NaN too
        return z
    x = x if beta == 1 else arithmetic("multiply", b, out, x, beta)
    return b.add("add", z, x)


@aten("addbmm")
def add_products(
    b: Builder,
    out: TensorType,
    x: Value,
    first: Value,
    second: Value,
    *,
    beta: Number = 1,
    alpha: Number = 1,
) -> Value:
    """The sum over a batch, as one product of what the batch and the inner dimension are."""
    n, rows, inner = first.shape
    left = b.add("transpose", first, axes=(1, 0, 2))
    left, right = (
        reshaped(b, left, (rows, n * inner)),
        reshaped(b, second, (n * inner, second.shape[2])),
    )
    return add_product(b, out, x, left, right, beta=beta, alpha=alpha)


@aten("_cdist_forward")
def distances(
    b: Builder, out: TensorType, x: Value, y: Value, p: float, _mode: int | None
) -> Value:
    """The p-norms of the differences between all rows of two tensors."""
    x = reshaped(b, x, (*x.shape[:-1], 1, x.shape[-1]))
    y = reshaped(b, y, (*y.shape[:-2], 1, *y.shape[-2:]))
    return vector_norm(b, out, b.add("subtract", x, y), p, -1)


@aten("einsum")
def einstein(
    b: Builder, _out: TensorType, equation: str, tensors: Sequence[Value], *, path: object = None
) -> Value:
    del path
    return einsum(b, equation, tensors)


@aten("convolution")
def convolution(
    b: Builder,
    out: TensorType,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """`output_padding` is in the shape of the result."""
    del output_padding
    rank = x.type.rank - 2
    strides, edges, dilations = (spread(v, rank) for v in (stride, padding, dilation))
    if transposed:
        sizes = out.shape[2:]
        y = transposed_conv(b, x, weight, strides, dilations, groups, edges, sizes)
    else:
        y = Convolution(strides, edges, edges, dilations, groups).of(b, x, weight)
    return biased(b, y, bias)


@aten("scaled_dot_product_attention")
def scaled_dot_product_attention(
    b: Builder,
    out: TensorType,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """Queries see, if it is causal, the keys up to their own place, counted from the first."""
    if dropout_p:
        raise Unsupported(Reason.ATTRIBUTE, f"dropout_p={dropout_p}")
    shared = q.shape[:-3] if enable_gqa else q.shape[:-2]
    if q.type.rank not in (3, 4) or any(x.shape[: len(shared)] != shared for x in (k, v)):
        raise Unsupported(Reason.ATTRIBUTE, f"attention of {q.type}, {k.type}, {v.type}")
    if q.type.rank == 3:
        own = [reshaped(b, x, (x.shape[0], 1, *x.shape[1:])) for x in (q, k, v)]
        q, k, v = own
        if attn_mask is not None and attn_mask.type.rank == 3:
            attn_mask = reshaped(b, attn_mask, (attn_mask.shape[0], 1, *attn_mask.shape[1:]))
    if attn_mask is not None and attn_mask.shape[-1:] != (k.shape[2],):
        attn_mask = b.add("broadcast_to", attn_mask, shape=(*attn_mask.shape[:-1], k.shape[2]))
    seen = Seen(attn_mask, right=0 if is_causal else -1)
    return reshaped(b, attention(b, q, k, v, seen, scale=scale)[0], out.shape)


@aten("_trilinear")
def trilinear(
    b: Builder,
    out: TensorType,
    x: Value,
    y: Value,
    z: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Value:
    """The sum of the products of three values, which get dims of 1 at these places."""
    del out, unroll_dim
    rank = x.type.rank + len(expand1)
    names = [
        "".join(ascii_lowercase[dim] for dim in range(rank) if dim not in left_out)
        for left_out in (expand1, expand2, expand3, sumdim)
    ]
    return einsum(b, f"{','.join(names[:3])}->{names[3]}", (x, y, z))
