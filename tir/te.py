"""Tensor expressions: programs from formulas.

    A = te.placeholder((n, k), "float32", name="A")
    B = te.placeholder((k, m), "float32", name="B")
    r = te.reduce_axis(k, name="r")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    matmul = te.func([A, B, C], name="matmul")

Every compute is a loop nest of its own. A reduction inside a larger expression also becomes a nest,
over the index variables that it depends on. Conditions combine with `& | ~`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from ..base import dtypes
from ..base.errors import IRError, checked_call, similar
from ..base.hints import MissingNameError, instead
from . import ir
from .combiners import highest, lowest
from .ir import INDEX, Expr, Func, Operand, Var
from .program import program
from .stages import compute as compute_stages
from .te_activations import (
    celu,
    elu,
    gelu,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    silu,
    softplus,
    softsign,
)
from .te_arguments import (
    COMPUTE,
    FUNC,
    PLACEHOLDER,
    REDUCE_AXIS,
    SCALAR,
    Pair,
    called,
    check_arguments,
    check_name,
    check_result,
    check_size,
    checked_extent,
    dtype_name,
    extents_of,
    index_names,
    integer,
)
from .te_functions import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cast,
    cbrt,
    ceil,
    clip,
    const,
    copysign,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    fmax,
    fmin,
    hypot,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    maximum,
    minimum,
    pow,
    round,
    rsqrt,
    select,
    sigmoid,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
    where,
)
from .tensor import Axis, Tensor, iteration

__all__ = [
    "Axis",
    "Expr",
    "Func",
    "Operand",
    "Tensor",
    "Var",
    "abs",
    "acos",
    "acosh",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cast",
    "cbrt",
    "ceil",
    "celu",
    "clip",
    "compute",
    "const",
    "copysign",
    "cos",
    "cosh",
    "elu",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "fmax",
    "fmin",
    "func",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "highest",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "leaky_relu",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_sigmoid",
    "logaddexp",
    "lowest",
    "max",
    "maximum",
    "min",
    "minimum",
    "mish",
    "placeholder",
    "pow",
    "prod",
    "reduce_axis",
    "relu",
    "relu6",
    "round",
    "rsqrt",
    "scalar",
    "select",
    "selu",
    "sigmoid",
    "sign",
    "signbit",
    "silu",
    "sin",
    "sinh",
    "softplus",
    "softsign",
    "sqrt",
    "square",
    "sum",
    "tan",
    "tanh",
    "trunc",
    "where",
]

Axes: TypeAlias = Axis | Sequence[Axis]

REDUCE = "te.{0}(X[i, r], axis=r) with r = te.reduce_axis(8)"

if not TYPE_CHECKING:  # type checkers then still know which names there are

    def __getattr__(name: str) -> Any:
        def hint(name: str) -> str | None:
            if name in dtypes.SCALARS:
                return f"write {name!r}: dtypes are texts"
            # A function of numpy is no misspelling of another.
            arrays = f"numpy.{name} is for arrays; tilewright.ops has functions of tensors"
            return instead("te", name) or (arrays if hasattr(np, name) else similar(name, __all__))

        raise MissingNameError(f"module {__name__!r} has no attribute", name, hint)


@checked_call(IRError, PLACEHOLDER)
def placeholder(
    shape: Sequence[int],
    dtype: str = "float32",
    *,
    name: str = "A",
    strides: Sequence[int] | None = None,
    constant: bool = False,
    value_range: tuple[int, int] | None = None,
) -> Tensor:
    """Returns an input tensor.

    `strides` are in elements (`None`: compact row-major); by those of an array that is computed in
    place no elements share memory. `constant` declares an operand that is
    known ahead of the calls, so that work on it alone, such as packing, is done once
    (`Module.pack`). `value_range` (low, high), high exclusive, bounds the integers that it holds;
    calls check them. Raises `IRError` for what no array can have: negative extents, more than 2**63
    - 1 bytes.
    """
    check_name(name)
    found: Any = shape
    if isinstance(found, str):
        raise IRError(
            "placeholder: the shape is {0!r}; expected a tuple of integers", found,
            hint=f'the name comes last: te.placeholder((4, 8), "float32", name={found!r})',
        )  # fmt: skip
    extents = extents_of(name, shape, PLACEHOLDER)
    dtype = dtype_name(dtype, PLACEHOLDER)
    steps = None
    if strides is not None:
        steps = tuple(integer(name, "a stride", s) for s in strides)
        if len(steps) != len(extents) or any(s < 0 for s in steps):
            raise IRError(
                "{0}: strides {1} do not go with shape {2}; expected one for each dimension, "
                "none negative", name, steps, extents,
            )  # fmt: skip
    if value_range is not None:
        if not dtypes.is_integer(dtype):
            raise IRError("{0}: value_range is for integers, found {1}", name, dtype)
        bounds: Any = value_range
        if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
            raise IRError(
                "{0}: value_range is {1!r}; expected (low, high), high exclusive",
                name,
                value_range,
                hint="value_range=(0, 10) for indices from 0 to 9",
            )
        low, high = (integer(name, "value_range", v) for v in bounds)
        if low >= high:
            raise IRError("{0}: value_range ({1}, {2}) holds no value", name, low, high)
        value_range = low, high
    check_size(name, extents, steps, dtype)
    return Tensor(name, extents, dtype, steps, "global", constant, value_range)


@checked_call(IRError, SCALAR)
def scalar(dtype: str = "float32", name: str = "alpha") -> Var:
    """Returns a number that is passed at each call."""
    check_name(name)
    return Var(name, dtype_name(dtype, SCALAR))


@checked_call(IRError, REDUCE_AXIS)
def reduce_axis(extent: int, name: str = "r") -> Axis:
    """Returns an axis over [0, extent) to reduce over."""
    found: Any = extent
    if isinstance(found, str):
        raise IRError(
            "the extent of an axis is {0!r}; expected an integer", extent, hint=REDUCE_AXIS
        )
    check_name(name)
    match extent:
        case (int(low), int(high)):
            raise IRError(
                "{0}: an axis is over [0, extent), found {1}", name, extent,
                hint=f"te.reduce_axis({high - low})",
            )  # fmt: skip
        case _:
            pass
    return Axis(name, extent=checked_extent(name, "the axis", extent, REDUCE_AXIS), reduce=True)


@overload
def compute(
    shape: Sequence[int],
    fn: Callable[..., tuple[Operand, ...]],
    *,
    name: str | tuple[str, ...] = "T",
    axes: Sequence[str] | None = None,
) -> tuple[Tensor, ...]: ...


@overload
def compute(
    shape: Sequence[int],
    fn: Callable[..., Operand],
    *,
    name: str = "T",
    axes: Sequence[str] | None = None,
) -> Tensor: ...


@checked_call(IRError, COMPUTE)
def compute(
    shape: Sequence[int],
    fn: Callable[..., Any],
    *,
    name: str | tuple[str, ...] = "T",
    axes: Sequence[str] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Returns the tensor of `shape` whose element at i, j, .. is `fn(i, j, ..)`.

    If `fn` returns a tuple, so does `compute`: tensors that are computed together; `name` may then
    be a tuple too. Loops are named `axes`, by default after the parameters of `fn`. Raises
    `IRError` for a wrong number of parameters, a result that is no expression, and an axis out of
    its scope.
    """
    for n in name if isinstance(name, (tuple, list)) and name else (name,):
        check_name(n)
    own = name if isinstance(name, str) else name[0]
    extents = extents_of(own, shape, COMPUTE)
    parameters = index_names(own, fn, extents, axes)
    indices = tuple(Axis(p, extent=e) for p, e in zip(parameters, extents, strict=True))
    value = called(own, fn, indices)
    values = value if isinstance(value, tuple) else (value,)
    for v in values:
        check_result(own, v)
    results = tuple(ir.as_expr(v) for v in values)
    for result in results:
        check_size(own, extents, None, result.dtype)
    if not results:
        raise IRError("{0}: the function returned an empty tuple; expected values", own)
    if not isinstance(name, str):
        names = name
    else:
        names = (name,) if len(results) == 1 else tuple(f"{name}_{k}" for k in range(len(results)))
    if len(names) != len(results):
        raise IRError("{0}: {1} names for {2} results", own, len(names), len(results))
    tensors = compute_stages(own, names, indices, results)[: len(results)]
    return tensors if isinstance(value, tuple) else tensors[0]


@checked_call(IRError, FUNC)
def func(
    args: Sequence[Tensor | Var],
    *,
    name: str = "main",
    inplace: Mapping[Tensor, Tensor] | None = None,
) -> Func:
    """Returns the program with these arguments, in the order of its calls.

    Computed tensors among them are outputs; placeholders and scalars are inputs; other tensors that
    are needed become internal buffers. `inplace` maps an output that is not listed to the
    placeholder that it overwrites. Raises `IRError` for an argument that is missing, unused or
    given twice, and if an element would be read after it was overwritten.
    """
    check_name(name)
    check_arguments(name, args)
    for output in inplace or {}:
        if output.stage is None:
            raise IRError("{0}: inplace maps results of te.compute, found {1!r}", name, output)
    return program(name, args, inplace or {})


@checked_call(IRError, REDUCE.format("sum"))
def sum(value: Operand, axis: Axes = (), dtype: str | None = None) -> Expr:
    """The sum over `axis` (or several), in `dtype`.

    Narrow floats are summed in float32, narrow integers and bool in int32, others in their own
    dtype. Over no element it is 0.
    """
    return _reduce("sum", _accumulated("sum", value, dtype), axis)


@checked_call(IRError, REDUCE.format("prod"))
def prod(value: Operand, axis: Axes = (), dtype: str | None = None) -> Expr:
    """The product over `axis` (or several); dtypes as for `sum`. Over no element it is 1."""
    return _reduce("prod", _accumulated("prod", value, dtype), axis)


@checked_call(IRError, REDUCE.format("max"))
def max(value: Operand, axis: Axes = ()) -> Expr:
    """The largest value over `axis`; NaN if there is one; the lowest value over no element."""
    return _reduce("max", _element("max", value), axis)


@checked_call(IRError, REDUCE.format("min"))
def min(value: Operand, axis: Axes = ()) -> Expr:
    """The smallest value over `axis`; NaN if there is one; the highest value over no element."""
    return _reduce("min", _element("min", value), axis)


@checked_call(IRError, REDUCE.format("argmax"))
def argmax(value: Operand, axis: Axes = (), dtype: str = INDEX) -> tuple[Expr, Expr]:
    """Returns (index, value) of the largest value; the first of equal ones; NaN counts as largest.

    The index has `dtype`, an integer one; int32 fits twice as many into a vector as int64. Over
    several axes it counts in row-major order. Raises `IRError` if an axis has no element, and for a
    dtype that does not hold all indices.
    """
    return _arg("argmax", value, axis, dtype)


@checked_call(IRError, REDUCE.format("argmin"))
def argmin(value: Operand, axis: Axes = (), dtype: str = INDEX) -> tuple[Expr, Expr]:
    """Returns (index, value) of the smallest value; otherwise like `argmax`."""
    return _arg("argmin", value, axis, dtype)


def _element(combiner: str, value: Operand) -> Expr:
    """What is reduced, as an expression. Raises `IRError` for a whole tensor."""
    found: Any = value
    if isinstance(found, Tensor):
        axes = ", ".join("rstuvw"[: found.ndim or 1])
        raise IRError(
            "{0} is a tensor, and te.{1} reduces elements", found.name, combiner,
            hint=f"tilewright.ops.{combiner}({found.name}, axis=0) takes tensors; of elements "
            f"te.{combiner}({found.name}[{axes}], axis=({axes})) with r = te.reduce_axis"
            f"({found.extents[0] if found.ndim else 1})",
        )  # fmt: skip
    return ir.as_expr(value)


def _accumulated(combiner: str, value: Operand, dtype: str | None) -> Expr:
    expr = _element(combiner, value)
    if dtype is not None:
        if dtypes.is_bool(dtype_name(dtype)):
            raise IRError("bool cannot be summed or multiplied; expected a number's dtype")
        return ir.cast(dtype_name(dtype), expr)
    facts = dtypes.info(expr.dtype)
    if facts.kind == "float":
        return expr if facts.bits >= 32 else ir.cast("float32", expr)
    return expr if facts.bits >= 32 else ir.cast("int32", expr)


def _reduce(combiner: str, value: Expr, axis: Axes) -> Expr:
    iters = tuple(iteration(a) for a in _axes(combiner, axis))
    return ir.Reduce(combiner, (value,), iters, 0, value.dtype)


def _arg(combiner: str, value: Operand, axis: Axes, dtype: str) -> tuple[Expr, Expr]:
    axes = _axes(combiner, axis)
    dtype = dtype_name(dtype)
    last = math.prod(a.extent for a in axes) - 1
    if not dtypes.is_integer(dtype) or last > dtypes.int_limits(dtype)[1]:
        raise IRError(
            "{0}: indices as {1}; expected an integer dtype that holds 0 to {2}",
            combiner, dtype, last,
        )  # fmt: skip
    index: Expr = ir.const(0)
    for a in axes:
        if a.extent == 0:
            raise IRError("{0} over {1}, which has no element", combiner, a.name)
        index = index * a.extent + a
    values = ir.cast(dtype, index), _element(combiner, value)
    iters = tuple(iteration(a) for a in axes)
    first, second = (ir.Reduce(combiner, values, iters, k, values[k].dtype) for k in (0, 1))
    return Pair((first, second))


def _axes(combiner: str, axis: Axes) -> tuple[Axis, ...]:
    given: tuple[Any, ...] = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes: tuple[Axis, ...] = given
    for position, a in enumerate(given):
        if not isinstance(a, Axis) or not a.reduce:
            raise IRError(
                "{0}: {1!r} is not a reduce axis", combiner, getattr(a, "name", a),
                hint=f"for two values: te.{combiner}imum(a, b)" if combiner in {"max", "min"} else
                "make one with te.reduce_axis(extent, name=...)",
            )  # fmt: skip
        if any(a is b for b in axes[:position]):
            raise IRError("{0}: reduce axis {1} is listed twice", combiner, a.name)
    if not axes:
        raise IRError(
            "{0}: no axis is given; expected one reduce axis or more", combiner,
            hint=f"r = te.reduce_axis(extent, name='r'); te.{combiner}(X[i, r], axis=r)",
        )  # fmt: skip
    return axes
