"""Operations of complex tensors, as two of their parts. JAX writes out most functions of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ....graph.builder import Builder
from ....graph.compose import complex as of_parts
from ....graph.compose.basics import cast_to, part, reshaped
from ....graph.compose.complex import Complex
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..module import complex_elements, is_complex
from ..table import TABLE, Op, enumerated, hlo_complex
from .control import branch, call, decomposed, loop, same
from .reduction import is_unit

hlo_complex("func.call")(call)
hlo_complex("composite")(decomposed)
hlo_complex("optimization_barrier")(same)
hlo_complex("while")(loop)
hlo_complex("case", "if")(branch)


def _real(b: Builder, op: Op, *operands: Value) -> Value:
    """An operation, of real operands in place of its own."""
    made = TABLE[op.name].translate(b, replace(op, given=operands))
    (found,) = (made,) if isinstance(made, Value | Complex) else made
    assert isinstance(found, Value)
    return found


def _each(b: Builder, op: Op) -> Complex:
    """An operation on each part."""

    def made(name: str) -> Value:
        own = (getattr(x, name) if isinstance(x, Complex) else x for x in op.given)
        return _real(b, op, *own)

    return Complex(made("real"), made("imag"))


for _name in (
    "add", "subtract", "negate", "select", "reshape", "broadcast_in_dim", "transpose", "slice",
    "concatenate", "reverse", "pad", "gather", "dynamic_slice", "dynamic_update_slice",
):  # fmt: skip
    hlo_complex(_name)(_each)


@hlo_complex("reduce_window", "scatter")
def windows(b: Builder, op: Op) -> Complex:
    """Sums of windows, and windows that are written."""
    _require(op, "add(a, b)", "add(b, a)", "b")
    return _each(b, op)


def _require(op: Op, *bodies: str) -> str:
    """The only formula of a body. Raises `Unsupported` for others."""
    formula = ", ".join(op.formulas())
    if formula not in bodies:
        raise Unsupported(Reason.DTYPE, f"the body {formula} of complex numbers")
    return formula


@hlo_complex("reduce")
def reduce(b: Builder, op: Op) -> Complex:
    """Sums and products of elements."""
    formula = _require(op, "add(a, b)", "add(b, a)", "multiply(a, b)", "multiply(b, a)")
    x, start = _pair(op)
    if not x.real.type.size:
        return start.each(lambda v: b.add("broadcast_to", v, shape=op.type.shape))
    axes = op.integers("dimensions")
    if formula.startswith("add"):
        found = x.each(lambda v: b.add("sum", v, axes=axes))
        known = all(is_unit("sum", v) for v in start.parts)
        return found if known else of_parts.added(b, found, start)
    order = (*axes, *(d for d in range(x.real.type.rank) if d not in axes))
    shape = (math.prod(x.real.shape[d] for d in axes), *op.type.shape)
    rows = x.each(lambda v: reshaped(b, b.add("transpose", v, axes=order), shape))
    found = _product(b, rows).each(lambda v: reshaped(b, v, op.type.shape))
    return of_parts.multiplied(b, found, start)


def _product(b: Builder, x: Complex) -> Complex:
    """The product (1, ...) of all rows: that of both halves of them, and the last one."""
    count = x.real.shape[0]
    half = count // 2
    if count == 1:
        return x

    def rows(start: int, size: int) -> Complex:
        return x.each(lambda v: part(b, v, 0, start, size))

    found = _product(b, of_parts.multiplied(b, rows(0, half), rows(half, half)))
    return of_parts.multiplied(b, found, rows(2 * half, 1)) if count % 2 else found


def _pair(op: Op) -> tuple[Complex, Complex]:
    x, y = op.given
    assert isinstance(x, Complex)
    assert isinstance(y, Complex)
    return x, y


@hlo_complex("dot_general", "convolution")
def contraction(b: Builder, op: Op) -> Complex:
    return of_parts.multiplied(b, *_pair(op), partial(_real, b, op))


@hlo_complex("multiply")
def multiply(b: Builder, op: Op) -> Complex:
    return of_parts.multiplied(b, *_pair(op))


@hlo_complex("divide")
def divide(b: Builder, op: Op) -> Complex:
    return of_parts.divided(b, *_pair(op))


@hlo_complex("compare")
def compare(b: Builder, op: Op) -> Value:
    same = of_parts.equal(b, *_pair(op))
    equal = enumerated(op.attribute("comparison_direction")) == "EQ"
    return same if equal else b.add("logical_not", same)


def _own(op: Op) -> Complex:
    (x,) = op.given
    assert isinstance(x, Complex)
    return x


@hlo_complex("complex")
def from_parts(_b: Builder, op: Op) -> Complex:
    return Complex(*op.operands)


@hlo_complex("real")
def real(_b: Builder, op: Op) -> Value:
    return _own(op).real


@hlo_complex("imag")
def imaginary(_b: Builder, op: Op) -> Value:
    return _own(op).imag


_OF_ONE: dict[str, Callable[[Builder, Complex], Value | Complex]] = {
    "abs": of_parts.size,
    "exponential": of_parts.exponential,
    "log": of_parts.logarithm,
    "sign": of_parts.sign,
    "tan": of_parts.tan,
    "tanh": of_parts.tanh,
}
"""Functions of one tensor."""


def _of_one(b: Builder, op: Op) -> Value | Complex:
    return _OF_ONE[op.name](b, _own(op))


hlo_complex(*_OF_ONE)(_of_one)


@hlo_complex("power")
def power(b: Builder, op: Op) -> Complex:
    return of_parts.complex_power(b, *_pair(op))


@hlo_complex("constant")
def constant(b: Builder, op: Op) -> Complex:
    data = complex_elements(op.raw)
    return Complex(b.constant(data.real.copy()), b.constant(data.imag.copy()))


@hlo_complex("convert")
def convert(b: Builder, op: Op) -> Complex | Value:
    (x,) = op.given
    if not is_complex(op.raw.results[0].type):
        return of_parts.real_of(b, _own(op), op.type.dtype)
    if isinstance(x, Complex):
        return x.cast(b, op.type.dtype)
    return Complex.of_real(b, cast_to(b, x, op.type.dtype))


def _was_real(op: Op) -> bool:
    """Whether the operand is real numbers as complex ones."""
    owner = getattr(op.raw.operands[0].owner, "operation", None)
    if owner is None or owner.name != "stablehlo.convert":
        return False
    return not is_complex(owner.operands[0].type)


@hlo_complex("fft")
def transform(b: Builder, op: Op) -> Complex | Value:
    """Along the last dimensions."""
    (x,) = op.given
    kind, lengths = enumerated(op.attribute("fft_type")), op.integers("fft_length")
    axes: Sequence[int] = range(op.type.rank - len(lengths), op.type.rank)
    if isinstance(x, Value):
        return of_parts.of_real(b, x, axes, onesided=True)
    if kind == "IRFFT":
        return of_parts.to_real(b, x, axes, lengths[-1])
    if kind == "FFT" and _was_real(op):
        return of_parts.of_real(b, x.real, axes, onesided=False)
    return of_parts.of_complex(b, x, axes, inverse=kind == "IFFT")
