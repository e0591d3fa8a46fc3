"""Complex tensors, as two of their parts: what models do between transforms of Fourier.

Graphs have no complex numbers. So these may be weights and what a model computes on its way, but
neither inputs nor results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from ....graph.builder import Builder
from ....graph.compose import pointwise
from ....graph.compose.basics import cast_to, in_rank, reshaped, row, stacked, times
from ....graph.compose.signal import dft
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import TABLE, Complex, Number, aten_complex, dtype_name

Operand: TypeAlias = "Complex | Value | complex | Number"


def _complex(b: Builder, x: Operand, out: TensorType) -> Complex:
    """An operand whose parts have the dtype of those of a result; of real ones one part is 0."""
    if isinstance(x, Complex):
        return Complex(cast_to(b, x.real, out.dtype), cast_to(b, x.imag, out.dtype))
    if isinstance(x, complex):
        return Complex(b.constant(x.real, out.dtype), b.constant(x.imag, out.dtype))
    real = cast_to(b, x, out.dtype) if isinstance(x, Value) else b.constant(x, out.dtype)
    return Complex(real, b.add("broadcast_to", b.constant(0, out.dtype), shape=real.shape))


def _each(overload: str, b: Builder, out: TensorType, *args: Any, **kwargs: Any) -> Complex:
    """An operator of real tensors, on each part."""

    def of(given: Any, name: str) -> Any:
        if isinstance(given, list | tuple):
            return [of(item, name) for item in given]
        return getattr(given, name) if isinstance(given, Complex) else given

    def made(name: str) -> Value:
        named = {key: of(value, name) for key, value in kwargs.items()}
        value = TABLE[overload](b, out, *of(args, name), **named)
        assert isinstance(value, Value)
        return value

    return Complex(made("real"), made("imag"))


_OF_PARTS = (
    "view.default", "_unsafe_view.default", "alias.default", "detach.default", "clone.default",
    "expand.default", "permute.default", "unsqueeze.default", "squeeze.dims",
    "squeeze.dim", "squeeze.default", "slice.Tensor", "select.int", "flip.default",
    "constant_pad_nd.default", "unfold.default", "index.Tensor", "index_select.default",
    "repeat.default", "neg.default", "sum.dim_IntList", "sum.default", "mean.dim", "mean.default",
    "lift_fresh_copy.default",
)  # fmt: skip
"""Operators that are linear: each part is as if it were alone."""


for _overload in _OF_PARTS:
    aten_complex(_overload)(partial(_each, _overload))


@aten_complex("cat")
def cat(b: Builder, out: TensorType, tensors: Sequence[Operand], dim: int = 0) -> Complex:
    return _each("cat.default", b, out, [_complex(b, x, out) for x in tensors], dim)


def _transformed(
    b: Builder, x: Value, dims: Sequence[int], norm: int, *, inverse: bool = False, **last: Any
) -> Value:
    """Transforms along some dimensions, of the last one first, or last if `inverse`.

    `x` has the parts as its last dimension; `norm` is how results are divided, as ATen has it.
    """
    axes = [in_rank(d, x.type.rank - 1) for d in dims]
    count = 1
    for place in range(len(axes)) if inverse else reversed(range(len(axes))):
        given = last if place == len(axes) - 1 else {}
        x = dft(b, x, axes[place], inverse=inverse, **given)
        count *= x.shape[axes[place]] if inverse else _length(x, axes[place], given)
    scale = {0: 1.0, 1: 1 / math.sqrt(count), 2: 1 / count}[norm] * (count if inverse else 1)
    return x if scale == 1 else times(b, x, scale)


def _length(x: Value, axis: int, given: dict[str, Any]) -> int:
    return int(given["length"]) if "length" in given else x.shape[axis]


def _split(b: Builder, parts: Value) -> Complex:
    last = parts.type.rank - 1
    return Complex(row(b, parts, last, 0), row(b, parts, last, 1))


def _joined(b: Builder, x: Complex) -> Value:
    return stacked(b, [x.real, x.imag], x.real.type.rank)


@aten_complex("_fft_r2c")
def of_real(
    b: Builder, _out: TensorType, x: Value, dim: Sequence[int], normalization: int, onesided: bool
) -> Complex:
    length = x.shape[in_rank(dim[-1], x.type.rank)]
    parts = reshaped(b, x, (*x.shape, 1))
    made = _transformed(b, parts, dim, normalization, length=length, onesided=onesided)
    return _split(b, made)


@aten_complex("_fft_c2c")
def of_complex(
    b: Builder, _out: TensorType, x: Complex, dim: Sequence[int], normalization: int, forward: bool
) -> Complex:
    made = _transformed(b, _joined(b, x), dim, normalization, inverse=not forward)
    return _split(b, made)


@aten_complex("_fft_c2r")
def to_real(
    b: Builder,
    _out: TensorType,
    x: Complex,
    dim: Sequence[int],
    normalization: int,
    last_dim_size: int,
) -> Value:
    parts = _transformed(
        b, _joined(b, x), dim, normalization, inverse=True, length=last_dim_size, onesided=True
    )
    return reshaped(b, parts, parts.shape[:-1])


@aten_complex("view_as_real", "view_as_real_copy")
def view_as_real(b: Builder, _out: TensorType, x: Complex) -> Value:
    return _joined(b, x)


@aten_complex("view_as_complex", "view_as_complex_copy")
def view_as_complex(b: Builder, _out: TensorType, x: Value) -> Complex:
    return _split(b, x)


@aten_complex("complex")
def of_parts(b: Builder, out: TensorType, real: Value, imag: Value) -> Complex:
    return Complex(*(b.add("broadcast_to", part, shape=out.shape) for part in (real, imag)))


@aten_complex("polar")
def polar(b: Builder, _out: TensorType, size: Value, angle: Value) -> Complex:
    return Complex(*(b.add("multiply", size, b.add(f, angle)) for f in ("cos", "sin")))


@aten_complex("_to_copy")
def cast(b: Builder, out: TensorType, x: Operand, *, dtype: Any = None) -> Complex | Value:
    """Of a complex number as a real one, the imaginary part is left out."""
    if dtype is not None and not dtype.is_complex:
        assert isinstance(x, Complex)
        return cast_to(b, x.real, dtype_name(dtype))
    return _complex(b, x, out)


@aten_complex("_conj", "_conj_physical", "conj_physical")
def conjugate(b: Builder, _out: TensorType, x: Complex) -> Complex:
    return Complex(x.real, b.add("negative", x.imag))


@aten_complex("abs")
def size(b: Builder, out: TensorType, x: Complex) -> Value:
    """In float64: squares of float32 are not out of its range; others by their larger part."""
    parts = [cast_to(b, part, "float64") for part in (x.real, x.imag)]
    if x.real.dtype != "float64":
        squares = b.add("add", *(b.add("multiply", part, part) for part in parts))
        return cast_to(b, b.add("sqrt", squares), out.dtype)
    sizes = [b.add("abs", part) for part in parts]
    larger, smaller = b.add("maximum", *sizes), b.add("minimum", *sizes)
    one, same = b.constant(1.0, "float64"), b.add("equal", larger, smaller)
    ratio = b.add("where", same, one, b.add("divide", smaller, larger))
    square = b.add("add", b.add("multiply", ratio, ratio), one)
    return b.add("multiply", larger, b.add("sqrt", square))


@aten_complex("angle")
def angle(b: Builder, _out: TensorType, x: Complex) -> Value:
    return pointwise.atan2(b, x.imag, x.real)


@aten_complex("add.Tensor")
def add(
    b: Builder, out: TensorType, x: Operand, y: Operand, *, alpha: Number = 1, operator: str = "add"
) -> Complex:
    x, y = _complex(b, x, out), _complex(b, y, out)
    if alpha != 1:
        y = Complex(times(b, y.real, alpha), times(b, y.imag, alpha))
    made = [b.add(operator, *pair) for pair in ((x.real, y.real), (x.imag, y.imag))]
    return Complex(*(b.add("broadcast_to", part, shape=out.shape) for part in made))


@aten_complex("sub.Tensor")
def subtract(b: Builder, out: TensorType, x: Operand, y: Operand, *, alpha: Number = 1) -> Complex:
    return add(b, out, x, y, alpha=alpha, operator="subtract")


def _multiplied(
    b: Builder, x: Complex, y: Complex, times: Callable[[Value, Value], Value]
) -> Complex:
    return Complex(
        b.add("subtract", times(x.real, y.real), times(x.imag, y.imag)),
        b.add("add", times(x.real, y.imag), times(x.imag, y.real)),
    )


@aten_complex("mul.Tensor")
def multiply(b: Builder, out: TensorType, x: Operand, y: Operand) -> Complex:
    first, second = _complex(b, x, out), _complex(b, y, out)
    for own, other, given in ((first, second, y), (second, first, x)):
        if not isinstance(given, Complex | complex):  # no sum, which is not exact of infinities
            made = [b.add("multiply", part, other.real) for part in (own.real, own.imag)]
            return Complex(*(b.add("broadcast_to", part, shape=out.shape) for part in made))
    return _multiplied(b, first, second, partial(b.add, "multiply"))


@aten_complex("div.Tensor")
def divide(b: Builder, out: TensorType, x: Operand, y: Operand) -> Complex:
    if isinstance(y, Complex | complex):
        raise Unsupported(Reason.DTYPE, "a quotient by complex numbers")
    x, divisor = _complex(b, x, out), _complex(b, y, out).real
    made = [b.add("divide", part, divisor) for part in (x.real, x.imag)]
    return Complex(*(b.add("broadcast_to", part, shape=out.shape) for part in made))


def _product(overload: str, b: Builder, out: TensorType, x: Operand, y: Operand) -> Complex:
    def times(*pair: Value) -> Value:
        made = TABLE[overload](b, out, *pair)
        assert isinstance(made, Value)
        return made

    return _multiplied(b, _complex(b, x, out), _complex(b, y, out), times)


for _overload in ("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default"):
    aten_complex(_overload)(partial(_product, _overload))


@aten_complex("einsum")
def einsum(b: Builder, out: TensorType, equation: str, tensors: Sequence[Operand]) -> Complex:
    if len(tensors) != 2:
        raise Unsupported(Reason.ATTRIBUTE, f"{len(tensors)} complex operands")

    def times(*pair: Value) -> Value:
        made = TABLE["einsum.default"](b, out, equation, list(pair))
        assert isinstance(made, Value)
        return made

    first, second = (_complex(b, x, out) for x in tensors)
    return _multiplied(b, first, second, times)


@aten_complex("exp")
def exponential(b: Builder, out: TensorType, x: Complex) -> Complex:
    return polar(b, out, b.add("exp", x.real), x.imag)


@aten_complex("where.self")
def where(b: Builder, out: TensorType, condition: Value, x: Operand, y: Operand) -> Complex:
    return _each("where.self", b, out, condition, _complex(b, x, out), _complex(b, y, out))
