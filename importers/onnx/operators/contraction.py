"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op


@onnx_op("MatMul")
def matmul(b: Builder, node: OnnxNode) -> Value:
    return product(b, node[0], node[1])


def product(b: Builder, x: Value, y: Value, dtype: str | None = None) -> Value:
    """The product of matrices or, with one dimension, vectors."""
    first, last = x.type.rank == 1, y.type.rank == 1
    x = b.add("reshape", x, shape=(1, *x.shape)) if first else x
    y = b.add("reshape", y, shape=(*y.shape, 1)) if last else y
    z: Value = b.add("matmul", x, y, dtype=dtype)
    if first or last:
        shape = list(z.shape)
        if last:
            del shape[-1]
        if first:
            del shape[-1 if last else -2]
        z = b.add("reshape", z, shape=tuple(shape))
    return z


@onnx_op("Gemm")
def gemm(b: Builder, node: OnnxNode) -> Value:
    z = b.add(
        "matmul",
        node[0],
        node[1],
        transpose_a=bool(node.attribute("transA", 0)),
        transpose_b=bool(node.attribute("transB", 0)),
    )
    alpha, beta, c = node.attribute("alpha", 1.0), node.attribute("beta", 1.0), node.get(2)
    if alpha != 1:
        z = b.add("multiply", z, b.constant(alpha, z.dtype))
    if c is not None:
        c = c if beta == 1 else b.add("multiply", c, b.constant(beta, z.dtype))
        z = b.add("add", z, c)
    value: Value = z
    return value


def edges(
    node: OnnxNode,
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after each spatial dimension, by `pads` or `auto_pad`."""
    rank = len(extents)
    auto = node.attribute("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = node.attribute("pads") or (0,) * (2 * rank)
        return tuple(pads[:rank]), tuple(pads[rank:])
    if auto == "VALID":
        return (0,) * rank, (0,) * rank
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(Reason.ATTRIBUTE, f"auto_pad={auto!r}")
    before, after = list[int](), list[int]()
    for e, k, s, d in zip(extents, kernel, strides, dilations, strict=True):
        total = max((-(-e // s) - 1) * s + (k - 1) * d + 1 - e, 0)
        small, large = total // 2, total - total // 2
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return tuple(before), tuple(after)


@onnx_op("Conv")
def conv(b: Builder, node: OnnxNode) -> Value:
    x, w, bias = node[0], node[1], node.get(2)
    y = convolution(b, node, x, w)
    if bias is not None:
        y = b.add("add", y, along_channels(b, bias, y))
    return y


def along_channels(b: Builder, values: Value, y: Value) -> Value:
    """A value for each channel of (n, c, *extents), or one for all, to broadcast."""
    shape = (values.type.size, *(1,) * (y.type.rank - 2)) if values.type.size > 1 else ()
    value: Value = b.add("reshape", values, shape=shape)
    return value


def convolution(
    b: Builder,
    node: OnnxNode,
    x: Value,
    w: Value,
    dtype: str | None = None,
) -> Value:
    """The convolution with the attributes of `node`."""
    rank = x.type.rank - 2
    strides = node.attribute("strides") or (1,) * rank
    dilations = node.attribute("dilations") or (1,) * rank
    before, after = edges(node, x.shape[2:], w.shape[2:], strides, dilations)
    value: Value = b.add(
        "conv",
        x,
        w,
        strides=strides,
        before=before,
        after=after,
        dilations=dilations,
        groups=node.attribute("group", 1),
        dtype=dtype,
    )
    return value
