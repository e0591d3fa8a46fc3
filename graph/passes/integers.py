"""Products of tensors that were dequantised become products of integers, which are scaled once.

The sums of integers are exact, where floats round each term and each sum. Importers ask these rules
too as they build a graph, as dequantised weights are folded then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..builder import Builder, Rules
from ..compose.basics import cast_to, reshaped
from ..compose.contraction import Convolution, along_channels
from ..compose.quantised import Whole, convolved, holds, matrix_product, of_outputs
from ..ir import Constant, Node, Value
from ..operator import Array


class _Dequantised(NamedTuple):
    """The integers of 8 bits that a value was; scale and zero point have one element, or one for
    each place of an axis."""

    data: Value
    scale: Value
    zero: Value | None


def product_of_integers(b: Builder, node: Node) -> Value | None:
    """matmul((p - i) * s, (q - j) * t)   ->   cast(matmul(p - i, q - j)) * (s * t)

    The scale `s` is one for all, `t` too or one for each column; int32 holds the sums.
    """
    turned = [bool(node.attributes[name]) for name in ("transpose_a", "transpose_b")]
    rank = node.inputs[1].type.rank
    found = _operands(b, node, rank - (2 if turned[1] else 1))
    if found is None or node.attributes["dtype"] is not None:
        return None
    x, w = found
    rows, columns = (
        _turned(b, v.data) if t else v.data for v, t in zip(found, turned, strict=True)
    )
    own = Whole.of(b, columns, w.zero)
    if not holds(own, rank - 2):
        return None
    return _scaled(b, matrix_product(b, Whole.of(b, rows, x.zero), own), x, w.scale)


def convolution_of_integers(b: Builder, node: Node) -> Value | None:
    """conv((p - i) * s, (q - j) * t)   ->   cast(conv(p - i, q - j)) * (s * t)

    Likewise, with `t` for each output. Of one channel each there are no sums to gain from.
    """
    found = _operands(b, node, 0)
    attributes: dict[str, Any] = dict(node.attributes)
    if found is None or attributes.pop("dtype") is not None or node.inputs[1].shape[1] == 1:
        return None
    x, w = found
    own = Whole.of(b, w.data, None if w.zero is None else of_outputs(b, w.zero, w.data))
    if not holds(own, *range(1, w.data.type.rank)):
        return None
    total = convolved(b, Convolution(**attributes), Whole.of(b, x.data, x.zero), own)
    return _scaled(b, total, x, along_channels(b, w.scale, total))


def _operands(b: Builder, node: Node, axis: int) -> tuple[_Dequantised, _Dequantised] | None:
    """What the operands were, if the first has one scale, the second one for all or of `axis`."""
    x, w = _dequantised(b, node.inputs[0], None), _dequantised(b, node.inputs[1], axis)
    return None if x is None or w is None else (x, w)


def _dequantised(b: Builder, value: Value, axis: int | None) -> _Dequantised | None:
    scaled = b.origin(value, "multiply")
    pairs = [(value, None)] if scaled is None else [scaled.inputs, scaled.inputs[::-1]]
    for centred, factor in pairs:
        inner = b.origin(centred, "dequantize")
        if inner is None or centred.shape != value.shape:
            continue
        data, *zeros = inner.inputs
        scale = _along(b, b.constant(1, "float32") if factor is None else factor, data, axis)
        zero = _along(b, zeros[0], data, axis) if zeros else None
        if scale is not None and len(zeros) == (zero is not None) and data.shape == value.shape:
            return _Dequantised(data, scale, zero) if data.dtype in ("int8", "uint8") else None
    return None


def _along(b: Builder, values: Value, data: Value, axis: int | None) -> Value | None:
    """Values as a scalar, or a vector for an axis of the data; `None` if they are others."""
    if values.type.size == 1:
        return reshaped(b, values, ())
    shape = [e if d == axis else 1 for d, e in enumerate(data.shape)]
    return reshaped(b, values, (values.type.size,)) if list(values.shape) == shape else None


def _turned(b: Builder, x: Value) -> Value:
    rank = x.type.rank
    return b.add("transpose", x, axes=(*range(rank - 2), rank - 1, rank - 2))


def _scaled(b: Builder, total: Value, x: _Dequantised, scale: Value) -> Value:
    """A total times both scales: by their product if it is known to be in float32's range."""
    total, product = cast_to(b, total, "float32"), b.add("multiply", x.scale, scale)
    if isinstance(product, Constant) and _is_normal(product.data):
        return b.add("multiply", total, product)
    return b.add("multiply", b.add("multiply", total, x.scale), scale)


def _is_normal(scales: Array) -> bool:
    """Whether numbers are neither infinite nor so small that they have fewer digits, or none."""
    size = np.abs(scales)
    return bool(np.all(np.isfinite(size) & (size >= np.finfo(scales.dtype).tiny)))


RULES: Rules = {"matmul": [product_of_integers], "conv": [convolution_of_integers]}
