"""Operators on the elements at one place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....base import dtypes
from ....base.errors import IRError
from ....graph.builder import Builder
from ....graph.ir import Constant, Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op

_SAME = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "Neg": "negative",
    "Abs": "abs",
    "Sign": "sign",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Tanh": "tanh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Erf": "erf",
    "Sigmoid": "sigmoid",
    "Relu": "relu",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Mish": "mish",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "IsNaN": "is_nan",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Not": "logical_not",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "BitwiseNot": "bitwise_not",
    "Where": "where",
}
"""ONNX operators without attributes that are operators of graphs."""


def _broadcasting(node: OnnxNode) -> None:
    """Refuse the broadcasting of the first operators, which is not numpy's."""
    if node.version < 7 and not node.domain and node.attribute("broadcast", 0):
        raise Unsupported(Reason.VERSION, f"{node.operator} with broadcast=1")


@onnx_op(*_SAME)
def same(b: Builder, node: OnnxNode) -> Value:
    _broadcasting(node)
    value: Value = b.add(_SAME[node.operator], *(node[n] for n in range(len(node.inputs))))
    return value


@onnx_op("Greater", "GreaterOrEqual")
def greater(b: Builder, node: OnnxNode) -> Value:
    _broadcasting(node)
    less = "less" if node.operator == "Greater" else "less_equal"
    value: Value = b.add(less, node[1], node[0])
    return value


_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add", "Mean": "add"}


@onnx_op(*_VARIADIC)
def variadic(b: Builder, node: OnnxNode) -> Value:
    value = node[0]
    for n in range(1, len(node.inputs)):
        value = b.add(_VARIADIC[node.operator], value, node[n])
    if node.operator == "Mean" and len(node.inputs) > 1:
        value = b.add("divide", value, b.constant(len(node.inputs), value.dtype))
    return value


@onnx_op("Reciprocal")
def reciprocal(b: Builder, node: OnnxNode) -> Value:
    value: Value = b.add("divide", b.constant(1, node[0].dtype), node[0])
    return value


@onnx_op("Identity")
def identity(_b: Builder, node: OnnxNode) -> Value:
    return node[0]


@onnx_op("Clip")
def clip_by_attributes(b: Builder, node: OnnxNode) -> Value:
    low, high = node.attribute("min"), node.attribute("max")
    return _clipped(
        b,
        node[0],
        None if low is None else b.constant(low, node[0].dtype),
        None if high is None else b.constant(high, node[0].dtype),
    )


@onnx_op("Clip", since=11)
def clip(b: Builder, node: OnnxNode) -> Value:
    return _clipped(b, node[0], node.get(1), node.get(2))


def _clipped(b: Builder, x: Value, low: Value | None, high: Value | None) -> Value:
    bounds = [None if v is None else b.add("reshape", v, shape=()) for v in (low, high)]
    x = x if bounds[0] is None else b.add("maximum", x, bounds[0])
    return x if bounds[1] is None else b.add("minimum", x, bounds[1])


@onnx_op("Pow")
def power(b: Builder, node: OnnxNode) -> Value:
    """In the common dtype of base and exponent; whole powers of floats up to 3 are products."""
    _broadcasting(node)
    x, exponent = node[0], node[1]
    if (
        isinstance(exponent, Constant)
        and exponent.type.size == 1
        and exponent.type.rank <= x.type.rank
    ):
        number = exponent.data.reshape(-1)[0]
        if number in (1, 2, 3):
            value = x
            for _ in range(int(number) - 1):
                value = b.add("multiply", value, x)
            return value
    wide = promoted(x.dtype, exponent.dtype)
    both = (cast_to(b, x, wide), cast_to(b, exponent, wide))
    return cast_to(b, b.add("power", *both), x.dtype)


@onnx_op("Mod")
def mod(b: Builder, node: OnnxNode) -> Value:
    value: Value = b.add("fmod" if node.attribute("fmod", 0) else "remainder", node[0], node[1])
    return value


@onnx_op("BitShift")
def bit_shift(b: Builder, node: OnnxNode) -> Value:
    node.require("direction", "LEFT", "RIGHT")
    left = node.attribute("direction") == "LEFT"
    value: Value = b.add("shift_left" if left else "shift_right", node[0], node[1])
    return value


@onnx_op("IsInf")
def is_inf(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    infinity = b.constant(np.inf, x.dtype)
    if x.dtype == "float8_e4m3fn":
        raise Unsupported(Reason.DTYPE, x.dtype)
    negative, positive = node.attribute("detect_negative", 1), node.attribute("detect_positive", 1)
    if negative and positive:
        x = b.add("abs", x)
    elif negative:
        x = b.add("negative", x)
    value: Value = b.add("equal", x, infinity)
    return value if negative or positive else b.add("logical_and", value, b.constant(False))


@onnx_op("Cast")
def cast(b: Builder, node: OnnxNode) -> Value:
    return _cast(b, node, dtype_of(node.attributes["to"]))


@onnx_op("CastLike")
def cast_like(b: Builder, node: OnnxNode) -> Value:
    return _cast(b, node, node[1].dtype)


def _cast(b: Builder, node: OnnxNode, dtype: str) -> Value:
    return cast_to(b, node[0], dtype, saturate=bool(node.attribute("saturate", 1)))


def cast_to(b: Builder, x: Value, dtype: str, *, saturate: bool = False) -> Value:
    """`x` as another dtype; with `saturate` within the range of a float of 8 bits."""
    if x.dtype == dtype:
        return x
    if saturate and dtypes.is_float(dtype) and dtypes.nbytes(dtype) == 1:
        largest = dtypes.largest_float(dtype)
        x = b.add("cast", x, dtype="float32") if not dtypes.is_float(x.dtype) else x
        x = b.add("clip", x, low=-largest, high=largest)
    value: Value = b.add("cast", x, dtype=dtype)
    return value


@onnx_op("BitCast")
def bit_cast(b: Builder, node: OnnxNode) -> Value:
    x, dtype = node[0], dtype_of(node.attributes["to"])
    if x.dtype == dtype:
        return x
    if dtype == "bool":
        raise Unsupported(Reason.DTYPE, "the bits of other numbers as bool")
    value: Value = b.add("bitcast", x, source=x.dtype, to=dtype)
    return value


@onnx_op("Dropout", since=7)
def dropout(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """As a model is used: nothing is dropped."""
    return _kept(b, node)


def _kept(b: Builder, node: OnnxNode) -> Sequence[Value]:
    x = node[0]
    training = node.known(2) if len(node.inputs) > 2 else None
    if training is not None and training.any():
        ratio = node.known(1)
        if ratio is None or ratio.any():
            raise Unsupported(Reason.ATTRIBUTE, "training_mode")
    one = b.constant(1, "bool" if node.version >= 10 else x.dtype)
    return x, b.add("broadcast_to", one, shape=x.shape)


@onnx_op("Dropout")
def dropout_of_training(b: Builder, node: OnnxNode) -> Sequence[Value]:
    if not node.attribute("is_test", 0):
        raise Unsupported(Reason.ATTRIBUTE, "is_test=0")
    return _kept(b, node)


def dtype_of(number: int) -> str:
    """The dtype of an ONNX TensorProto.DataType. Raises `Unsupported`."""
    import onnx_ir

    try:
        return dtypes.from_numpy(np.dtype(onnx_ir.DataType(number).numpy()))
    except Exception as error:
        raise Unsupported(Reason.DTYPE, f"dtype {number}") from error


def promoted(first: str, second: str) -> str:
    """The common dtype by numpy's rules. Raises `Unsupported` if there is none."""
    try:
        return dtypes.promote(first, second)
    except IRError as error:
        raise Unsupported(Reason.DTYPE, f"{first} and {second}") from error
