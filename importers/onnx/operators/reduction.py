"""Reductions over axes, and softmax."""

from __future__ import annotations

import math

import numpy as np

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .common import in_rank

_REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "sum",
    "ReduceL2": "sum",
    "ReduceSumSquare": "sum",
    "ReduceLogSum": "sum",
    "ReduceLogSumExp": "sum",
}


@onnx_op(*_REDUCTIONS)
def reduction(b: Builder, node: OnnxNode) -> Value:
    x, keep = node[0], bool(node.attribute("keepdims", 1))
    axes = node.integers(1) if len(node.inputs) > 1 else node.attribute("axes")
    if not axes:
        rest = () if node.attribute("noop_with_empty_axes", 0) else range(x.type.rank)
        places = tuple(rest)
    else:
        places = tuple(sorted(in_rank(a, x.type.rank) for a in axes))
    return _reduced(b, node.operator, x, places, keep)


def _reduced(b: Builder, operator: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    if x.dtype == "bool":
        wide = _reduced(b, operator, b.add("cast", x, dtype="uint8"), axes, keep)
        return b.add("cast", wide, dtype="bool")  # type: ignore[no-any-return]
    if operator == "ReduceL1":
        x = b.add("abs", x)
    elif operator in ("ReduceL2", "ReduceSumSquare"):
        x = b.add("multiply", x, x)
    elif operator == "ReduceLogSumExp":
        return _log_sum_exp(b, x, axes, keep)
    value = _total(b, _REDUCTIONS[operator], x, axes, keep)
    if operator in ("ReduceL2", "ReduceLogSum"):
        value = _in_float(b, "sqrt" if operator == "ReduceL2" else "log", value)
    return value


def _in_float(b: Builder, operator: str, x: Value) -> Value:
    """A function of floats, of integers in float64."""
    if dtypes.is_float(x.dtype):
        return b.add(operator, x)  # type: ignore[no-any-return]
    wide = b.add(operator, b.add("cast", x, dtype="float64"))
    return b.add("cast", wide, dtype=x.dtype)  # type: ignore[no-any-return]


def _total(b: Builder, operator: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """A reduction, which is its unit element over no elements; over no axes it is `x`."""
    if not axes:
        return x
    if x.type.size:
        return b.add(operator, x, axes=axes, keepdims=keep)  # type: ignore[no-any-return]
    shape = [1 if d in axes else e for d, e in enumerate(x.shape) if keep or d not in axes]
    number = np.dtype(dtypes.to_numpy(x.dtype))
    lowest: float = -np.inf if dtypes.is_float(x.dtype) else int(np.iinfo(number).min)
    highest: float = np.inf if dtypes.is_float(x.dtype) else int(np.iinfo(number).max)
    unit = {"sum": 0, "prod": 1, "max": lowest, "min": highest, "mean": np.nan}[operator]
    if not dtypes.is_float(x.dtype) and operator == "mean":
        raise Unsupported(Reason.DTYPE, f"the mean of no elements of {x.dtype}")
    spread: Value = b.add("broadcast_to", b.constant(unit, x.dtype), shape=tuple(shape))
    return spread


def _log_sum_exp(b: Builder, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """The largest element is taken out of the sum, so that no term overflows."""
    if not dtypes.is_float(x.dtype):
        wide = _log_sum_exp(b, b.add("cast", x, dtype="float64"), axes, keep)
        return b.add("cast", wide, dtype=x.dtype)  # type: ignore[no-any-return]
    if not axes:
        return x
    if not x.type.size:
        return b.add("log", _total(b, "sum", b.add("exp", x), axes, keep))  # type: ignore[no-any-return]
    highest = b.add("max", x, axes=axes, keepdims=True)
    limit = dtypes.largest_float(x.dtype)
    highest = b.add("clip", highest, low=-limit, high=limit)
    total = b.add("sum", b.add("exp", b.add("subtract", x, highest)), axes=axes, keepdims=True)
    value: Value = b.add("add", b.add("log", total), highest)
    if not keep:
        shape = tuple(e for d, e in enumerate(x.shape) if d not in axes)
        value = b.add("reshape", value, shape=shape)
    return value


@onnx_op("ArgMax", "ArgMin")
def place(b: Builder, node: OnnxNode) -> Value:
    """The last of equal ones is the first in the reverse order."""
    x, keep = node[0], bool(node.attribute("keepdims", 1))
    axis = in_rank(node.attribute("axis", 0), x.type.rank)
    operator = node.operator.lower()
    if not node.attribute("select_last_index", 0):
        return b.add(operator, x, axis=axis, keepdims=keep)  # type: ignore[no-any-return]
    last = x.shape[axis] - 1
    starts, steps = [0] * x.type.rank, [1] * x.type.rank
    starts[axis], steps[axis] = last, -1
    turned = b.add("slice", x, starts=tuple(starts), steps=tuple(steps), shape=x.shape)
    found = b.add(operator, turned, axis=axis, keepdims=keep)
    value: Value = b.add("subtract", b.constant(last, "int64"), found)
    return value


@onnx_op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(b: Builder, node: OnnxNode) -> Value:
    operator = "mean" if node.operator == "GlobalAveragePool" else "max"
    axes = tuple(range(2, node[0].type.rank))
    value: Value = b.add(operator, node[0], axes=axes, keepdims=True)
    return value


@onnx_op("Softmax", "LogSoftmax", "Hardmax", since=13)
def softmax(b: Builder, node: OnnxNode) -> Value:
    return _along(b, node.operator, node[0], in_rank(node.attribute("axis", -1), node[0].type.rank))


@onnx_op("Softmax", "LogSoftmax", "Hardmax")
def softmax_of_matrix(b: Builder, node: OnnxNode) -> Value:
    """Before opset 13 all dimensions from `axis` on are one row."""
    x = node[0]
    axis = in_rank(node.attribute("axis", 1), x.type.rank)
    rows = math.prod(x.shape[:axis])
    flat = b.add("reshape", x, shape=(rows, x.type.size // max(rows, 1)))
    value: Value = b.add("reshape", _along(b, node.operator, flat, 1), shape=x.shape)
    return value


def _along(b: Builder, operator: str, x: Value, axis: int) -> Value:
    if operator != "Hardmax":
        name = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}[operator]
        return b.add(name, x, axis=axis)  # type: ignore[no-any-return]
    first = b.add("argmax", x, axis=axis, keepdims=True)
    shape = [1] * x.type.rank
    shape[axis] = x.shape[axis]
    places = b.constant(np.arange(x.shape[axis]).reshape(shape), "int64")
    return b.add("cast", b.add("equal", places, first), dtype=x.dtype)  # type: ignore[no-any-return]
