"""Products of tensors, and the general convolution."""

from __future__ import annotations

import math
import string

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.compose import movement
from ....graph.compose.basics import cast_to, reshaped
from ....graph.compose.contraction import Convolution, transposed_conv
from ....graph.compose.einsum import einsum
from ....graph.ir import Value
from ..table import Op, hlo


def _zeros(b: Builder, op: Op) -> Value:
    """The sum of no products."""
    return b.add("broadcast_to", b.constant(0, op.type.dtype), shape=op.type.shape)


def _operands(b: Builder, op: Op) -> tuple[Value, Value]:
    """Of the widest dtype of theirs and of the result, in which sums are computed."""
    x, y = op.operands
    dtype = dtypes.promote(dtypes.promote(x.dtype, y.dtype), op.type.dtype)
    return cast_to(b, x, dtype), cast_to(b, y, dtype)


@hlo("dot_general")
def dot_general(b: Builder, op: Op) -> Value:
    from jax.extend.mlir.dialects.stablehlo import DotDimensionNumbers

    dims = DotDimensionNumbers(op.raw.attributes["dot_dimension_numbers"])
    x, y = _operands(b, op)
    if not min(x.type.size, y.type.size):
        return _zeros(b, op)
    letters = iter(string.ascii_letters)
    left = [next(letters) for _ in x.shape]
    right = [""] * y.type.rank
    batch = list(zip(dims.lhs_batching_dimensions, dims.rhs_batching_dimensions, strict=True))
    inner = zip(dims.lhs_contracting_dimensions, dims.rhs_contracting_dimensions, strict=True)
    for own, other in (*batch, *inner):
        right[other] = left[own]
    both = set(right)
    right = [label or next(letters) for label in right]
    result = [left[own] for own, _ in batch]
    result += [label for label in left if label not in both]
    result += [label for label in right if label not in left]
    made = einsum(b, f"{''.join(left)},{''.join(right)}->{''.join(result)}", (x, y))
    return cast_to(b, made, op.type.dtype)


@hlo("convolution")
def convolution(b: Builder, op: Op) -> Value:
    """Operands are brought into the order (n, c, *extents) and (o, c / groups, *kernel)."""
    from jax.extend.mlir.dialects.stablehlo import ConvDimensionNumbers

    dims = ConvDimensionNumbers(op.raw.attributes["dimension_numbers"])
    x, w = _operands(b, op)
    if not min(x.type.size, w.type.size):
        return _zeros(b, op)
    places = (dims.input_batch_dimension, dims.input_feature_dimension)
    x = b.add("transpose", x, axes=(*places, *dims.input_spatial_dimensions))
    places = (dims.kernel_output_feature_dimension, dims.kernel_input_feature_dimension)
    w = b.add("transpose", w, axes=(*places, *dims.kernel_spatial_dimensions))
    rank = x.type.rank - 2
    reverse = op.flags("window_reversal", rank)
    w = movement.reversed_(b, w, [d + 2 for d in range(rank) if reverse[d]])
    groups = op.attribute("feature_group_count")
    batches = op.attribute("batch_group_count")
    if batches > 1:  # parts of the batch as groups of channels
        n, c, *extents = x.shape
        x = reshaped(b, x, (batches, n // batches, c, *extents))
        x = b.add("transpose", x, axes=(1, 0, 2, *range(3, 3 + rank)))
        x = reshaped(b, x, (n // batches, batches * c, *extents))
        groups = batches
    order = [dims.output_batch_dimension, dims.output_feature_dimension]
    order += dims.output_spatial_dimensions
    y = _convolved(b, op, x, w, groups, tuple(op.type.shape[d] for d in order[2:]))
    y = b.add("transpose", y, axes=tuple(order.index(d) for d in range(rank + 2)))
    return cast_to(b, y, op.type.dtype)


def _convolved(
    b: Builder, op: Op, x: Value, w: Value, groups: int, sizes: tuple[int, ...]
) -> Value:
    rank = len(sizes)
    strides = op.integers("window_strides", rank, 1)
    dilations = op.integers("rhs_dilation", rank, 1)
    between = op.integers("lhs_dilation", rank, 1)
    padding = op.pairs("padding", rank)
    if not rank:  # a window of one element
        x, w = reshaped(b, x, (*x.shape, 1)), reshaped(b, w, (*w.shape, 1))
        y = Convolution((1,), (0,), (0,), (1,), groups).of(b, x, w)
        return reshaped(b, y, y.shape[:2])
    # Its taps are those of a transposed convolution in the reverse order.
    kernel = w.shape[2:]
    cut_off = [(k - 1) * d - p[0] for k, d, p in zip(kernel, dilations, padding, strict=True)]
    if math.prod(between) > 1 and set(strides) == {1} and min(cut_off) >= 0:
        w = _transposed(b, movement.reversed_(b, w, tuple(range(2, 2 + rank))), groups)
        return transposed_conv(b, x, w, between, dilations, groups, cut_off, sizes)
    x = movement.dilated(b, x, (1, 1, *between), b.constant(0, x.dtype))
    low, high = zip(*padding, strict=True)
    cut = [min(n, 0) for n in (*low, *high)]
    x = movement.padded(b, x, cut, tuple(range(2, 2 + rank)))
    before, after = (tuple(max(n, 0) for n in widths) for widths in (low, high))
    return Convolution(strides, before, after, dilations, groups).of(b, x, w)


def _transposed(b: Builder, w: Value, groups: int) -> Value:
    """Weights (o, c / groups, *kernel) as those (c, o / groups, *kernel)."""
    outputs, channels, *kernel = w.shape
    w = reshaped(b, w, (groups, outputs // groups, channels, *kernel))
    w = b.add("transpose", w, axes=(0, 2, 1, *range(3, w.type.rank)))
    return reshaped(b, w, (groups * channels, outputs // groups, *kernel))
