"""Operators on the elements at one place: casts and quantised tensors are among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....base import dtypes
from ....graph.ir import Node
from ..writer import Writer, exact, known, onnx_dtype, writes

_SAME = {
    "relu": "Relu", "sigmoid": "Sigmoid", "softplus": "Softplus", "softsign": "Softsign",
    "mish": "Mish", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "tanh": "Tanh", "erf": "Erf",
    "floor": "Floor", "ceil": "Ceil", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh", "round": "Round", "is_nan": "IsNaN", "sign": "Sign",
    "abs": "Abs", "gelu": "Gelu",
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "maximum": "Max", "minimum": "Min",
    "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "where": "Where",
    "logical_not": "Not", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor",
    "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor",
    "bitwise_not": "BitwiseNot",
}  # fmt: skip


@writes(*_SAME)
def same(w: Writer, node: Node, *inputs: str) -> str:
    return w.cast(w.add(_SAME[node.operator], *w.wide(*inputs)), node.output.dtype)


def _of_floats(*names: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register how functions of one float are written, of which bfloat16 is widened."""

    def decorate(function: Callable[..., str]) -> Callable[..., str]:
        @writes(*names)
        def widened(w: Writer, node: Node, x: str) -> str:
            return w.cast(function(w, node, *w.wide(x)), node.output.dtype)

        return function

    return decorate


@writes("negative")
def negative(w: Writer, node: Node, x: str) -> str:
    (own,) = w.wide(x)
    if dtypes.info(w.dtypes[own]).kind == "uint":
        return w.cast(w.add("Sub", w.like(own, 0), own), node.output.dtype)
    return w.cast(w.add("Neg", own), node.output.dtype)


@_of_floats("gelu_by_tanh")
def gelu_by_tanh(w: Writer, _node: Node, x: str) -> str:
    return w.add("Gelu", x, approximate="tanh")


@_of_floats("elu")
def elu(w: Writer, node: Node, x: str) -> str:
    return _elu(w, node, x, node.attributes["alpha"])


def _elu(w: Writer, node: Node, x: str, alpha: Any) -> str:
    """`alpha` times the negative part of Elu, as an alpha of ONNX is of float32."""
    if exact(node, alpha):
        return w.add("Elu", x, alpha=alpha)
    below = w.add("Mul", w.add("Elu", x), w.like(x, alpha))
    return w.where(w.add("Less", w.like(x, 0), x), x, below)


@_of_floats("celu")
def celu(w: Writer, node: Node, x: str) -> str:
    alpha: Any = node.attributes["alpha"]
    below = w.add("Mul", w.add("Elu", w.add("Div", x, w.like(x, alpha))), w.like(x, alpha))
    return w.where(w.add("Less", w.like(x, 0), x), x, below)


@_of_floats("selu")
def selu(w: Writer, node: Node, x: str) -> str:
    name = _elu(w, node, x, node.attributes["alpha"])
    return w.add("Mul", name, w.like(x, node.attributes["gamma"]))


@_of_floats("leaky_relu")
def leaky_relu(w: Writer, node: Node, x: str) -> str:
    slope: Any = node.attributes["slope"]
    if exact(node, slope):
        return w.add("LeakyRelu", x, alpha=slope)
    return w.where(w.add("Less", x, w.like(x, 0)), w.add("Mul", x, w.like(x, slope)), x)


@_of_floats("hard_sigmoid")
def hard_sigmoid(w: Writer, node: Node, x: str) -> str:
    a: Any = node.attributes
    alpha, beta = a["alpha"], a["beta"]
    if exact(node, alpha, beta):
        return w.add("HardSigmoid", x, alpha=alpha, beta=beta)
    scaled = w.add("Add", w.add("Mul", x, w.like(x, alpha)), w.like(x, beta))
    return w.add("Clip", scaled, w.like(x, 0), w.like(x, 1))


@_of_floats("hard_swish")
def hard_swish(w: Writer, node: Node, x: str) -> str:
    return w.add("Mul", x, hard_sigmoid(w, node, x))


@_of_floats("swish")
def swish(w: Writer, node: Node, x: str) -> str:
    scaled = w.add("Mul", x, w.like(x, node.attributes["alpha"]))
    return w.add("Mul", x, w.add("Sigmoid", scaled))


@writes("clip")
def clip(w: Writer, node: Node, x: str) -> str:
    low, high = (w.like(x, node.attributes[k]) for k in ("low", "high"))
    own, low, high = w.wide(x, low, high)
    return w.cast(w.add("Min", w.add("Max", own, low), high), node.output.dtype)


def _safe(w: Writer, node: Node, b: str) -> tuple[str, str | None]:
    """A divisor that is neither 0 nor -1, at which processors trap, and where it was -1."""
    divisor = known(node.inputs[1])
    one, minus = w.like(b, 1), None
    if divisor is None or not divisor.all():
        b = w.where(w.add("Equal", b, w.like(b, 0)), one, b)
    if dtypes.info(w.dtypes[b]).kind == "int" and (divisor is None or (divisor == -1).any()):
        minus = w.add("Equal", b, w.like(b, -1))
        b = w.where(minus, one, b)
    return b, minus


@writes("divide")
def divide(w: Writer, node: Node, a: str, b: str) -> str:
    if dtypes.is_float(node.output.dtype):
        return w.add("Div", a, b)
    a, b = w.wide(a, b)
    safe, minus = _safe(w, node, b)
    quotient = w.add("Div", a, safe)
    if minus is not None:
        quotient = w.where(minus, w.add("Sub", w.like(a, 0), a), quotient)
    return w.cast(quotient, node.output.dtype)


@writes("remainder", "fmod")
def remainder(w: Writer, node: Node, a: str, b: str) -> str:
    """Of floats with the sign of the dividend in ONNX; of integers with that of either."""
    truncated = node.operator == "fmod"
    if not dtypes.is_float(node.output.dtype):
        a, b = w.wide(a, b)
        return w.cast(w.add("Mod", a, _safe(w, node, b)[0], fmod=int(truncated)), node.output.dtype)
    rest: str = w.add("Mod", a, b, fmod=1)
    if truncated:
        return rest
    zero = w.like(rest, 0)
    turned = w.add("Xor", w.add("Less", rest, zero), w.add("Less", b, zero))
    moves = w.add("And", turned, w.add("Not", w.add("Equal", rest, zero)))
    return w.where(moves, w.add("Add", rest, b), rest)


@writes("power")
def power(w: Writer, node: Node, x: str, exponent: str) -> str:
    """Of integers as products of squares, which wrap around: see `arithmetic.py` of the graph."""
    if dtypes.is_float(node.output.dtype):
        return w.add("Pow", x, exponent)
    x, exponent = w.wide(x, exponent)
    zero, one = w.like(x, 0), w.like(x, 1)
    square = x
    product: str = one
    for bit in range(6):
        digit = w.add("BitwiseAnd", exponent, w.like(exponent, 1 << bit))
        unset = w.add("Equal", digit, w.like(exponent, 0))
        product = w.where(unset, product, w.add("Mul", product, square))
        square = w.add("Mul", square, square)
    outside = w.where(w.add("Equal", x, one), one, zero)
    if dtypes.info(w.dtypes[x]).kind == "int":
        even = w.add(
            "Equal", w.add("BitwiseAnd", exponent, w.like(exponent, 1)), w.like(exponent, 0)
        )
        minus = w.like(x, -1)
        outside = w.where(w.add("Equal", x, minus), w.where(even, one, minus), outside)
    inside = w.add(
        "And",
        w.add("LessOrEqual", w.like(exponent, 0), exponent),
        w.add("Less", exponent, w.like(exponent, 64)),
    )
    return w.cast(w.where(inside, product, outside), node.output.dtype)


@writes("shift_left", "shift_right")
def shift(w: Writer, node: Node, a: str, b: str) -> str:
    """ONNX shifts unsigned integers, by less than their width."""
    dtype = node.output.dtype
    width = 8 * dtypes.nbytes(dtype)
    unsigned = dtype if dtype.startswith("u") else f"u{dtype}"
    signed = unsigned != dtype and node.operator == "shift_right"
    negative = ""
    if signed:
        negative = w.add("Less", *w.wide(a, w.like(a, 0)))
        a = w.where(negative, w.add("BitwiseNot", a), a)
    a, b = w.cast(a, unsigned), w.cast(b, unsigned)
    out = w.add("Not", w.add("Less", *w.wide(b, w.like(b, width))))
    zero = w.like(a, 0)
    direction = "LEFT" if node.operator == "shift_left" else "RIGHT"
    moved = w.add("BitShift", a, w.where(out, zero, b), direction=direction)
    moved = w.cast(w.where(out, zero, moved), dtype)
    return w.where(negative, w.add("BitwiseNot", moved), moved) if signed else moved


@writes("cast", "rounded")
def cast(w: Writer, node: Node, x: str) -> str:
    """Of floats out of an integer's range the limit, of NaN 0; ONNX leaves it open."""
    source, dtype = node.inputs[0].dtype, node.output.dtype
    if not (dtypes.is_float(source) and dtypes.is_integer(dtype)):
        return w.cast(x, dtype)
    return w.saturated(x, dtype)


@writes("bitcast")
def bitcast(w: Writer, node: Node, x: str) -> str:
    return w.add("BitCast", x, to=onnx_dtype(node.output.dtype), since=26)


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
