"""Complex tensors, as two of their parts: what models do between transforms of Fourier.

Graphs have no complex numbers. Inputs and results are as they lie in memory: `view_as_real`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from ....graph.builder import Builder
from ....graph.compose import pointwise
from ....graph.compose.basics import cast_to, in_rank, reshaped, times
from ....graph.compose.signal import dft
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import TABLE, Complex, Number, aten_complex, dtype_name, real_of

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
    "lift_fresh_copy.default", "gather.default", "cumsum.default",
    "diagonal.default", "tril.default", "triu.default", "empty.memory_format",
    "new_empty_strided.default",
)  # fmt: skip
"""Operators that are linear in their first operand: each part is as if it were alone."""


def _of_both(
    overload: str, places: Sequence[int], b: Builder, out: TensorType, *args: Any, **kwargs: Any
) -> Complex:
    """As `_each`, with the operands at these places as complex ones."""
    own = [
        _complex(b, arg, out) if n in places and not isinstance(arg, list) else arg
        for n, arg in enumerate(args)
    ]
    return _each(overload, b, out, *own, **kwargs)


_OF_BOTH = {
    "where.self": (1, 2),
    "copy.default": (0, 1),
    "slice_scatter.default": (0, 1),
    "select_scatter.default": (0, 1),
    "diagonal_scatter.default": (0, 1),
    "index_put.default": (0, 2),
}
"""Operators that put elements beside others, and which operands have these."""


for _overload, _places in {**dict.fromkeys(_OF_PARTS, (0,)), **_OF_BOTH}.items():
    aten_complex(_overload)(partial(_of_both, _overload, _places))


@aten_complex("full", "full_like", "scalar_tensor")
def full(
    b: Builder, out: TensorType, _like: Any, value: Any = None, *, dtype: Any = None
) -> Complex | Value:
    number = _like if value is None else value
    if dtype is not None and not dtype.is_complex:
        return b.add("broadcast_to", b.constant(number, out.dtype), shape=out.shape)
    parts = [b.constant(part, out.dtype) for part in (number.real, number.imag)]
    return Complex(*(b.add("broadcast_to", part, shape=out.shape) for part in parts))


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


@aten_complex("_fft_r2c")
def of_real(
    b: Builder, _out: TensorType, x: Value, dim: Sequence[int], normalization: int, onesided: bool
) -> Complex:
    length = x.shape[in_rank(dim[-1], x.type.rank)]
    parts = reshaped(b, x, (*x.shape, 1))
    made = _transformed(b, parts, dim, normalization, length=length, onesided=onesided)
    return Complex.of(b, made)


@aten_complex("_fft_c2c")
def of_complex(
    b: Builder, _out: TensorType, x: Complex, dim: Sequence[int], normalization: int, forward: bool
) -> Complex:
    made = _transformed(b, x.pairs(b), dim, normalization, inverse=not forward)
    return Complex.of(b, made)


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
        b, x.pairs(b), dim, normalization, inverse=True, length=last_dim_size, onesided=True
    )
    return reshaped(b, parts, parts.shape[:-1])


@aten_complex("view_as_real", "view_as_real_copy")
def view_as_real(b: Builder, _out: TensorType, x: Complex) -> Value:
    return x.pairs(b)


@aten_complex("view_as_complex", "view_as_complex_copy")
def view_as_complex(b: Builder, _out: TensorType, x: Value) -> Complex:
    return Complex.of(b, x)


@aten_complex("complex")
def of_parts(b: Builder, out: TensorType, real: Value, imag: Value) -> Complex:
    return Complex(*(b.add("broadcast_to", part, shape=out.shape) for part in (real, imag)))


@aten_complex("polar")
def polar(b: Builder, _out: TensorType, size: Value, angle: Value) -> Complex:
    return Complex(*(b.add("multiply", size, b.add(f, angle)) for f in ("cos", "sin")))


@aten_complex("_to_copy")
def cast(b: Builder, out: TensorType, x: Operand, *, dtype: Any = None) -> Complex | Value:
    if dtype is not None and not dtype.is_complex:
        assert isinstance(x, Complex)
        return real_of(b, x, dtype_name(dtype))
    return _complex(b, x, out)


@aten_complex("_conj", "_conj_physical", "conj_physical")
def conjugate(b: Builder, _out: TensorType, x: Complex) -> Complex:
    return Complex(x.real, b.add("negative", x.imag))


def _wide(b: Builder, x: Complex) -> Complex:
    """In float64, where the squares of float32 are in range."""
    return Complex(*(cast_to(b, part, "float64") for part in (x.real, x.imag)))


def _squares(b: Builder, x: Complex) -> Value:
    return b.add("add", *(b.add("multiply", part, part) for part in (x.real, x.imag)))


@aten_complex("abs")
def size(b: Builder, out: TensorType, x: Complex) -> Value:
    """By squares in float64; of float64 by the larger part."""
    if x.real.dtype != "float64":
        return cast_to(b, b.add("sqrt", _squares(b, _wide(b, x))), out.dtype)
    parts = x.real, x.imag
    sizes = [b.add("abs", part) for part in parts]
    larger, smaller = b.add("maximum", *sizes), b.add("minimum", *sizes)
    one, same = b.constant(1.0, "float64"), b.add("equal", larger, smaller)
    ratio = b.add("where", same, one, b.add("divide", smaller, larger))
    square = b.add("add", b.add("multiply", ratio, ratio), one)
    return b.add("multiply", larger, b.add("sqrt", square))


@aten_complex("sgn")
def sign(b: Builder, out: TensorType, x: Complex) -> Complex:
    """Numbers of size 1; of 0 it is 0."""
    length = size(b, out, x)
    zero = b.constant(0, out.dtype)
    none = b.add("equal", length, zero)
    made = [b.add("divide", part, length) for part in (x.real, x.imag)]
    return Complex(*(b.add("where", none, zero, part) for part in made))


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


@aten_complex("mul.Tensor", "mul.Scalar")
def multiply(b: Builder, out: TensorType, x: Operand, y: Operand) -> Complex:
    first, second = _complex(b, x, out), _complex(b, y, out)
    for own, other, given in ((first, second, y), (second, first, x)):
        if not isinstance(given, Complex | complex):  # no sum, which is not exact of infinities
            made = [b.add("multiply", part, other.real) for part in (own.real, own.imag)]
            return Complex(*(b.add("broadcast_to", part, shape=out.shape) for part in made))
    return _multiplied(b, first, second, partial(b.add, "multiply"))


@aten_complex("div.Tensor", "div.Scalar")
def divide(b: Builder, out: TensorType, x: Operand, y: Operand) -> Complex:
    own, divisor = _complex(b, x, out), _complex(b, y, out)
    if not isinstance(y, Complex | complex):
        made = [b.add("divide", part, divisor.real) for part in (own.real, own.imag)]
        return Complex(*(b.add("broadcast_to", part, shape=out.shape) for part in made))
    product = _multiplied(b, _wide(b, own), _reciprocal(b, divisor), partial(b.add, "multiply"))
    return Complex(*(cast_to(b, part, out.dtype) for part in (product.real, product.imag)))


@aten_complex("reciprocal")
def reciprocal(b: Builder, out: TensorType, x: Complex) -> Complex:
    made = _reciprocal(b, x)
    return Complex(*(cast_to(b, part, out.dtype) for part in (made.real, made.imag)))


def _reciprocal(b: Builder, x: Complex) -> Complex:
    """In float64; of float64 parts are divided by the larger one, whose squares are in range."""
    wide = _wide(b, x)
    scale = None
    if x.real.dtype == "float64":
        scale = b.add("maximum", b.add("abs", wide.real), b.add("abs", wide.imag))
        wide = Complex(*(b.add("divide", part, scale) for part in (wide.real, wide.imag)))
    squares = _squares(b, wide)
    squares = squares if scale is None else b.add("multiply", squares, scale)
    made = [b.add("divide", part, squares) for part in (wide.real, wide.imag)]
    return Complex(made[0], b.add("negative", made[1]))


@aten_complex("pow.Tensor_Scalar")
def power(b: Builder, out: TensorType, x: Complex, exponent: Any) -> Complex:
    if isinstance(exponent, complex):
        raise Unsupported(Reason.ATTRIBUTE, f"the exponent {exponent}")
    if exponent == 2:
        return multiply(b, out, x, x)
    length = pointwise.power(b, size(b, out, x), b.constant(exponent, out.dtype))
    return polar(b, out, length, times(b, angle(b, out, x), exponent))


@aten_complex("sqrt")
def square_root(b: Builder, out: TensorType, x: Complex) -> Complex:
    """The one whose real part is not negative."""
    return power(b, out, x, 0.5)


@aten_complex("log")
def logarithm(b: Builder, out: TensorType, x: Complex) -> Complex:
    return Complex(b.add("log", size(b, out, x)), angle(b, out, x))


@aten_complex("eq.Tensor", "eq.Scalar")
def equal(b: Builder, out: TensorType, x: Operand, y: Operand) -> Value:
    wider = max(v.real.dtype for v in (x, y) if isinstance(v, Complex))
    own, other = (_complex(b, v, TensorType(wider, out.shape)) for v in (x, y))
    parts = (own.real, other.real), (own.imag, other.imag)
    return b.add("logical_and", *(b.add("equal", *pair) for pair in parts))


@aten_complex("ne.Tensor", "ne.Scalar")
def not_equal(b: Builder, out: TensorType, x: Operand, y: Operand) -> Value:
    return b.add("logical_not", equal(b, out, x, y))


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
