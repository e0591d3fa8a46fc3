"""Operations on the elements at one place."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.compose import pointwise
from ....graph.compose.basics import cast_to, wide
from ....graph.compose.bits import bitcast, bits_as
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import Op, enumerated, hlo, number, refuse_attribute

_SAME = {
    "abs": "abs",
    "add": "add",
    "ceil": "ceil",
    "chlo.acos": "acos",
    "chlo.acosh": "acosh",
    "chlo.asin": "asin",
    "chlo.asinh": "asinh",
    "chlo.atan": "atan",
    "chlo.atanh": "atanh",
    "chlo.cosh": "cosh",
    "chlo.erf": "erf",
    "chlo.sinh": "sinh",
    "chlo.tan": "tan",
    "cosine": "cos",
    "divide": "divide",
    "exponential": "exp",
    "floor": "floor",
    "log": "log",
    "logistic": "sigmoid",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "multiply",
    "remainder": "fmod",
    "round_nearest_even": "round",
    "sign": "sign",
    "sine": "sin",
    "sqrt": "sqrt",
    "subtract": "subtract",
    "tan": "tan",
    "tanh": "tanh",
}
"""Operations that graphs have, of floats and integers."""

_OF_BOOLS = {
    "add": "logical_or",
    "and": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
    "multiply": "logical_and",
    "not": "logical_not",
    "or": "logical_or",
    "xor": "logical_xor",
}


def _same(operator: str, b: Builder, op: Op) -> Value:
    if op.type.dtype == "bool":
        if op.name not in _OF_BOOLS:
            raise Unsupported(Reason.DTYPE, "bool")
        operator = _OF_BOOLS[op.name]
    value = b.add(operator, *op.operands)
    if operator in ("divide", "fmod") and dtypes.is_integer(op.type.dtype):
        x, y = op.operands
        by_zero = number(b, -1, x) if operator == "divide" and x.dtype[0] == "i" else x
        if operator == "divide" and x.dtype[0] == "u":
            by_zero = b.constant(dtypes.int_limits(x.dtype)[1], x.dtype)
        return b.add("where", b.add("equal", y, number(b, 0, y)), by_zero, value)
    return value


for _name, _operator in _SAME.items():
    hlo(_name, pointwise=True)(partial(_same, _operator))

for _name in ("and", "or", "xor", "not"):
    hlo(_name, pointwise=True)(partial(_same, f"bitwise_{_name}"))


@hlo("negate", pointwise=True)
def negate(b: Builder, op: Op) -> Value:
    if op.type.dtype.startswith("uint"):
        return b.add("subtract", number(b, 0, op[0]), op[0])
    return b.add("negative", op[0])


@hlo("convert", pointwise=True)
def convert(b: Builder, op: Op) -> Value:
    return cast_to(b, op[0], op.type.dtype)


@hlo("select", pointwise=True)
def select(b: Builder, op: Op) -> Value:
    return b.add("where", *op.operands)


@hlo("clamp", pointwise=True)
def clamp(b: Builder, op: Op) -> Value:
    low, x, high = op.operands
    return b.add("minimum", b.add("maximum", x, low), high)


@hlo("compare", pointwise=True)
def compare(b: Builder, op: Op) -> Value:
    x, y = op.operands
    direction = enumerated(op.attribute("comparison_direction"))
    kind = enumerated(op.attribute("compare_type", ""))
    if kind == "TOTALORDER" and dtypes.is_float(x.dtype):
        x, y = _in_total_order(b, x), _in_total_order(b, y)
    if x.dtype == "bool":
        x, y = (cast_to(b, v, "int32") for v in (x, y))
    if direction in ("GT", "GE"):
        x, y = y, x
    if direction in ("EQ", "NE"):
        same = b.add("equal", x, y)
        return same if direction == "EQ" else b.add("logical_not", same)
    return b.add("less" if direction in ("LT", "GT") else "less_equal", x, y)


def _in_total_order(b: Builder, x: Value) -> Value:
    """Integers in the order of floats, -0 before 0: the bits, those of negative ones turned."""
    own = bits_as(b, x, "int")
    turned = b.add("bitwise_xor", own, number(b, dtypes.int_limits(own.dtype)[1], own))
    return b.add("where", b.add("less", own, number(b, 0, own)), turned, own)


@hlo("is_finite", pointwise=True)
def is_finite(b: Builder, op: Op) -> Value:
    return b.add("less", b.add("abs", op[0]), number(b, math.inf, op[0]))


@hlo("chlo.is_inf", pointwise=True)
def is_infinite(b: Builder, op: Op) -> Value:
    return pointwise.is_infinite(b, op[0])


def _shifted(operator: str, kind: str, b: Builder, op: Op) -> Value:
    x, by = (bits_as(b, v, kind) for v in op.operands)
    own = "uint" if op.type.dtype.startswith("uint") else "int"
    return bits_as(b, b.add(operator, x, by), own)


hlo("shift_left", pointwise=True)(partial(_shifted, "shift_left", "uint"))
hlo("shift_right_logical", pointwise=True)(partial(_shifted, "shift_right", "uint"))
hlo("shift_right_arithmetic", pointwise=True)(partial(_shifted, "shift_right", "int"))


@hlo("popcnt", pointwise=True)
def population_count(b: Builder, op: Op) -> Value:
    return cast_to(b, _bits_set(b, bits_as(b, op[0], "uint")), op.type.dtype)


def _bits_set(b: Builder, x: Value) -> Value:
    bits = dtypes.info(x.dtype).bits
    one = number(b, 1, x)
    each = [
        b.add("bitwise_and", b.add("shift_right", x, number(b, k, x)), one) for k in range(bits)
    ]
    return reduce(partial(b.add, "add"), each)


@hlo("count_leading_zeros", pointwise=True)
def count_leading_zeros(b: Builder, op: Op) -> Value:
    """Those that are left when all bits below the first one are set."""
    x = bits_as(b, op[0], "uint")
    bits = dtypes.info(x.dtype).bits
    for k in (n for n in (1, 2, 4, 8, 16, 32) if n < bits):
        x = b.add("bitwise_or", x, b.add("shift_right", x, number(b, k, x)))
    return cast_to(b, b.add("subtract", number(b, bits, x), _bits_set(b, x)), op.type.dtype)


@hlo("bitcast_convert")
def bitcast_convert(b: Builder, op: Op) -> Value:
    if "bool" in (op[0].dtype, op.type.dtype):
        raise Unsupported(Reason.DTYPE, "bits of bool")
    return bitcast(b, op[0], op.type.dtype)


@hlo("reduce_precision", pointwise=True)
def reduce_precision(b: Builder, op: Op) -> Value:
    facts = dtypes.info(op.type.dtype)
    exponent, mantissa = op.attribute("exponent_bits"), op.attribute("mantissa_bits")
    if facts.bits - 1 - facts.mantissa <= exponent and facts.mantissa <= mantissa:
        return op[0]
    if op.type.dtype == "float32" and (exponent, mantissa) == (8, 7):
        return cast_to(b, cast_to(b, op[0], "bfloat16"), "float32")
    raise refuse_attribute("reduce_precision", (exponent, mantissa))


@hlo("power", pointwise=True)
def power(b: Builder, op: Op) -> Value:
    """Of integers by squares: exponents beyond the width are not rare where they wrap around."""
    x, exponent = op.operands
    value = b.add("power", x, exponent)
    if dtypes.is_float(x.dtype):
        return value
    known = op.known(1)
    if known is not None and (known <= 64).all():
        return value
    square: Value = x
    product: Value = number(b, 1, x)
    for k in range(dtypes.info(x.dtype).bits - (x.dtype[0] == "i")):
        bit = b.add("bitwise_and", b.add("shift_right", exponent, number(b, k, x)), number(b, 1, x))
        unset = b.add("equal", bit, number(b, 0, x))
        product = b.add("where", unset, product, b.add("multiply", product, square))
        square = b.add("multiply", square, square)
    return b.add("where", b.add("less", exponent, number(b, 0, x)), value, product)


def _wide(compute: Callable[..., Value], b: Builder, op: Op) -> Value:
    """A composition of several steps, which is rounded once."""
    own = [cast_to(b, x, wide(op[0])) for x in op.operands]
    return cast_to(b, compute(b, *own), op.type.dtype)


def _rsqrt(b: Builder, x: Value) -> Value:
    return b.add("divide", number(b, 1, x), b.add("sqrt", x))


def _cbrt(b: Builder, x: Value) -> Value:
    root = b.add("power", b.add("abs", x), number(b, 1 / 3, x))
    return b.add("where", b.add("less", x, number(b, 0, x)), b.add("negative", root), root)


def _round_from_zero(b: Builder, x: Value) -> Value:
    size = b.add("abs", x)
    whole = b.add("floor", size)
    below = b.add("less", b.add("subtract", size, whole), number(b, 0.5, x))
    rounded = b.add("where", below, whole, b.add("add", whole, number(b, 1, x)))
    return b.add("multiply", rounded, b.add("sign", x))


_COMPOSED: dict[str, Callable[..., Value]] = {
    "rsqrt": _rsqrt,
    "cbrt": _cbrt,
    "round_nearest_afz": _round_from_zero,
    "exponential_minus_one": pointwise.expm1,
    "log_plus_one": pointwise.log1p,
    "atan2": pointwise.atan2,
}
for _name, _compute in _COMPOSED.items():
    hlo(_name, pointwise=True)(partial(_wide, _compute))


@hlo("chlo.square", pointwise=True)
def square(b: Builder, op: Op) -> Value:
    return b.add("multiply", op[0], op[0])
