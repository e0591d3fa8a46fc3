"""Quantised tensors, by a scale of 1."""

from __future__ import annotations

from ....base import dtypes
from ....graph.ir import Node
from ..writer import Writer, writes


@writes("quantize")
def quantize(w: Writer, node: Node, x: str, *zero: str) -> str:
    """Zero points that are not one for all, and floats of 64 bits, are written out."""
    dtype = node.output.dtype
    since = 21 if dtypes.nbytes(dtype) > 1 else 0
    if _is_plain(node) and node.inputs[0].dtype != "float64":
        held = w.reshape(zero[0], ()) if zero else w.constant(0, dtype)
        return w.add("QuantizeLinear", x, w.like(x, 1), held, since=since)
    own = w.cast(x, node.inputs[0].dtype if dtypes.nbytes(w.dtypes[x]) >= 4 else "float32")
    whole = w.add("Round", own)
    for z in zero:
        whole = w.add("Add", whole, w.cast(z, w.dtypes[whole]))
    low, high = (w.like(whole, float(limit)) for limit in dtypes.int_limits(dtype))
    return w.saturated(w.add("Min", w.add("Max", whole, low), high), dtype)


@writes("dequantize")
def dequantize(w: Writer, node: Node, x: str, *zero: str) -> str:
    since = 21 if dtypes.nbytes(node.inputs[0].dtype) > 1 else 0
    if _is_plain(node):
        held = (w.reshape(zero[0], ()),) if zero else ()
        return w.add("DequantizeLinear", x, w.constant(1, "float32"), *held, since=since)
    return w.add("Sub", *(w.cast(v, "float32") for v in (x, *zero)))


def _is_plain(node: Node) -> bool:
    """Whether there is one zero point for all."""
    return all(z.type.size == 1 and z.type.rank <= node.output.type.rank for z in node.inputs[1:])
