"""Reductions, and operators on whole rows."""

from __future__ import annotations

from typing import Any

from ....base import dtypes
from ....graph.ir import Node
from ..table import Reason, Unsupported
from ..writer import Writer, writes

_REDUCTIONS = {
    "sum": "ReduceSum", "prod": "ReduceProd", "mean": "ReduceMean", "max": "ReduceMax",
    "min": "ReduceMin",
}  # fmt: skip


@writes(*_REDUCTIONS)
def reduction(w: Writer, node: Node, x: str) -> str:
    axes: Any = node.attributes["axes"]
    dtype = node.output.dtype
    if not axes:
        return x  # ONNX would reduce all of them
    if node.operator == "mean" and not dtypes.is_float(dtype):
        raise Unsupported(Reason.DTYPE, f"ReduceMean of {dtype}")
    (own,) = w.wide(x)
    keep = int(bool(node.attributes["keepdims"]))
    return w.cast(w.add(_REDUCTIONS[node.operator], own, w.integers(axes), keepdims=keep), dtype)


@writes("argmax", "argmin")
def arg(w: Writer, node: Node, x: str) -> str:
    return w.add(
        "ArgMax" if node.operator == "argmax" else "ArgMin", *w.wide(x),
        axis=node.attributes["axis"], keepdims=int(bool(node.attributes["keepdims"])),
    )  # fmt: skip


@writes("softmax", "log_softmax")
def softmax(w: Writer, node: Node, x: str) -> str:
    return w.add(
        "Softmax" if node.operator == "softmax" else "LogSoftmax", x, axis=node.attributes["axis"]
    )


@writes("top")
def top(w: Writer, node: Node, x: str) -> tuple[str, str]:
    a: Any = node.attributes
    values, places = w.add_of(
        2, "TopK", *w.wide(x), w.integers([a["count"]]),
        axis=a["axis"], largest=int(a["largest"]),
    )  # fmt: skip
    return w.cast(values, node.outputs[0].dtype), places


@writes("normalize")
def normalize(w: Writer, node: Node, x: str) -> str:
    """Written out, as the scale that a norm of ONNX needs would be as large as a row."""
    a: Any = node.attributes
    dtype = node.output.dtype
    axes = w.integers(range(a["axis"], node.output.type.rank))
    own = w.cast(x, dtype if dtype in ("float32", "float64") else "float32")
    if a["centered"]:
        own = w.add("Sub", own, w.add("ReduceMean", own, axes))
    variance = w.add("ReduceMean", w.add("Mul", own, own), axes)
    deviation = w.add("Sqrt", w.add("Add", variance, w.like(own, a["epsilon"])))
    return w.cast(w.add("Div", own, deviation), dtype)


@writes("accumulate")
def accumulate(w: Writer, node: Node, x: str) -> str:
    a: Any = node.attributes
    (own,) = w.wide(x)
    name = w.add(
        "CumProd" if a["product"] else "CumSum", own, w.constant(a["axis"], "int64"),
        since=26 if a["product"] else 0,
        exclusive=int(a["exclusive"]), reverse=int(a["reverse"]),
    )  # fmt: skip
    return w.cast(name, node.output.dtype)
