"""Operators of complex tensors. Inputs and results are as they lie in memory: `view_as_real`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from ....graph.builder import Builder
from ....graph.compose import complex as of_parts
from ....graph.compose.basics import cast_to, in_rank, times
from ....graph.compose.complex import Complex
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import TABLE, Number, aten_complex, dtype_name

Operand: TypeAlias = "Complex | Value | complex | Number"


def _complex(b: Builder, x: Operand, out: TensorType) -> Complex:
    """An operand whose parts have the dtype of those of a result; of real ones one part is 0."""
    if isinstance(x, Complex):
        return x.cast(b, out.dtype)
    if isinstance(x, complex):
        return Complex(b.constant(x.real, out.dtype), b.constant(x.imag, out.dtype))
    real = cast_to(b, x, out.dtype) if isinstance(x, Value) else b.constant(x, out.dtype)
    return Complex.of_real(b, real)


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
    "lift_fresh_copy.default", "gather.default", "cumsum.default", "_neg_view.default",
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
    "index_put.default": (0, 2),
    "index_copy.default": (0, 3),
    "scatter.src": (0, 3),
    "scatter_add.default": (0, 3),
    "slice_scatter.default": (0, 1),
    "select_scatter.default": (0, 1),
    "diagonal_scatter.default": (0, 1),
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


def _normed(
    b: Builder, made: Complex, lengths: Sequence[int], norm: int, *, inverse: bool = False
) -> Complex:
    """Transforms of these lengths divided as ATen has it: by nothing, the root, or the count."""
    return made.each(lambda part: _scaled(b, part, lengths, norm, inverse=inverse))


def _scaled(
    b: Builder, x: Value, lengths: Sequence[int], norm: int, *, inverse: bool = False
) -> Value:
    count = math.prod(lengths)
    scale = {0: 1.0, 1: 1 / math.sqrt(count), 2: 1 / count}[norm] * (count if inverse else 1)
    return x if scale == 1 else times(b, x, scale)


@aten_complex("_fft_r2c")
def of_real(
    b: Builder, _out: TensorType, x: Value, dim: Sequence[int], normalization: int, onesided: bool
) -> Complex:
    axes = [in_rank(d, x.type.rank) for d in dim]
    made = of_parts.of_real(b, x, axes, onesided=onesided)
    return _normed(b, made, [x.shape[d] for d in axes], normalization)


@aten_complex("_fft_c2c")
def of_complex(
    b: Builder, out: TensorType, x: Complex, dim: Sequence[int], normalization: int, forward: bool
) -> Complex:
    axes = [in_rank(d, out.rank) for d in dim]
    made = of_parts.of_complex(b, x, axes, inverse=not forward)
    return _normed(b, made, [out.shape[d] for d in axes], normalization, inverse=not forward)


@aten_complex("_fft_c2r")
def to_real(
    b: Builder,
    out: TensorType,
    x: Complex,
    dim: Sequence[int],
    normalization: int,
    last_dim_size: int,
) -> Value:
    axes = [in_rank(d, out.rank) for d in dim]
    made = of_parts.to_real(b, x, axes, last_dim_size)
    return _scaled(b, made, [out.shape[d] for d in axes], normalization, inverse=True)


@aten_complex("view_as_real", "view_as_real_copy")
def view_as_real(b: Builder, _out: TensorType, x: Complex) -> Value:
    return x.pairs(b)


@aten_complex("view_as_complex", "view_as_complex_copy")
def view_as_complex(b: Builder, _out: TensorType, x: Value) -> Complex:
    return Complex.of(b, x)


@aten_complex("complex")
def from_parts(b: Builder, out: TensorType, real: Value, imag: Value) -> Complex:
    return Complex(*(b.add("broadcast_to", part, shape=out.shape) for part in (real, imag)))


@aten_complex("_to_copy")
def cast(b: Builder, out: TensorType, x: Operand, *, dtype: Any = None) -> Complex | Value:
    if dtype is not None and not dtype.is_complex:
        assert isinstance(x, Complex)
        return of_parts.real_of(b, x, dtype_name(dtype))
    return _complex(b, x, out)


_OF_ALL: dict[str, Callable[..., Value | Complex]] = {
    "_conj": of_parts.conjugate,
    "_conj_physical": of_parts.conjugate,
    "abs": of_parts.size,
    "angle": of_parts.angle,
    "conj_physical": of_parts.conjugate,
    "exp": of_parts.exponential,
    "log": of_parts.logarithm,
    "polar": of_parts.polar,
    "reciprocal": of_parts.reciprocal,
    "sgn": of_parts.sign,
    "tan": of_parts.tan,
    "tanh": of_parts.tanh,
}
"""Functions of whole operands."""


def _of_all(
    function: Callable[..., Value | Complex], b: Builder, _out: TensorType, *operands: Operand
) -> Value | Complex:
    return function(b, *operands)


for _overload, _function in _OF_ALL.items():
    aten_complex(_overload)(partial(_of_all, _function))


def _spread(b: Builder, out: TensorType, x: Complex) -> Complex:
    return x.each(lambda part: b.add("broadcast_to", part, shape=out.shape))


@aten_complex("add.Tensor")
def add(
    b: Builder, out: TensorType, x: Operand, y: Operand, *, alpha: Number = 1, operator: str = "add"
) -> Complex:
    x, y = _complex(b, x, out), _complex(b, y, out)
    if alpha != 1:
        y = y.each(lambda part: times(b, part, alpha))
    return _spread(b, out, of_parts.added(b, x, y, operator))


@aten_complex("sub.Tensor")
def subtract(b: Builder, out: TensorType, x: Operand, y: Operand, *, alpha: Number = 1) -> Complex:
    return add(b, out, x, y, alpha=alpha, operator="subtract")


@aten_complex("mul.Tensor", "mul.Scalar")
def multiply(b: Builder, out: TensorType, x: Operand, y: Operand) -> Complex:
    first, second = _complex(b, x, out), _complex(b, y, out)
    for own, other, given in ((first, second, y), (second, first, x)):
        if not isinstance(given, Complex | complex):  # no sum, which is not exact of infinities
            return _spread(b, out, own.each(partial(b.add, "multiply", other.real)))
    return of_parts.multiplied(b, first, second)


@aten_complex("index_add")
def index_add(
    b: Builder,
    out: TensorType,
    x: Complex,
    dim: int,
    index: Value,
    source: Complex,
    *,
    alpha: complex = 1,
) -> Complex:
    part = source.real.type
    added = source if alpha == 1 else multiply(b, part, source, alpha)
    return _each("index_add.default", b, out, x, dim, index, added)


@aten_complex("div.Tensor", "div.Scalar")
def divide(b: Builder, out: TensorType, x: Operand, y: Operand) -> Complex:
    own, divisor = _complex(b, x, out), _complex(b, y, out)
    if isinstance(y, Complex | complex):
        return of_parts.divided(b, own, divisor)
    return _spread(b, out, own.each(lambda part: b.add("divide", part, divisor.real)))


@aten_complex("pow.Tensor_Scalar")
def power(b: Builder, _out: TensorType, x: Complex, exponent: Any) -> Complex:
    if isinstance(exponent, complex):
        raise Unsupported(Reason.ATTRIBUTE, f"the exponent {exponent}")
    return of_parts.power(b, x, exponent)


@aten_complex("sqrt")
def square_root(b: Builder, _out: TensorType, x: Complex) -> Complex:
    """The one whose real part is not negative."""
    return of_parts.power(b, x, 0.5)


@aten_complex("eq.Tensor", "eq.Scalar")
def equal(b: Builder, out: TensorType, x: Operand, y: Operand) -> Value:
    wider = max(v.real.dtype for v in (x, y) if isinstance(v, Complex))
    own, other = (_complex(b, v, TensorType(wider, out.shape)) for v in (x, y))
    return of_parts.equal(b, own, other)


@aten_complex("ne.Tensor", "ne.Scalar")
def not_equal(b: Builder, out: TensorType, x: Operand, y: Operand) -> Value:
    return b.add("logical_not", equal(b, out, x, y))


def _product(overload: str, b: Builder, out: TensorType, x: Operand, y: Operand) -> Complex:
    times: Callable[..., Any] = partial(TABLE[overload], b, out)
    return of_parts.multiplied(b, _complex(b, x, out), _complex(b, y, out), times)


for _overload in ("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default"):
    aten_complex(_overload)(partial(_product, _overload))


@aten_complex("einsum")
def einsum(b: Builder, out: TensorType, equation: str, tensors: Sequence[Operand]) -> Complex:
    if len(tensors) != 2:
        raise Unsupported(Reason.ATTRIBUTE, f"{len(tensors)} complex operands")
    times: Callable[..., Any] = partial(TABLE["einsum.default"], b, out, equation)
    first, second = (_complex(b, x, out) for x in tensors)
    return of_parts.multiplied(b, first, second, lambda *pair: times(pair))
