"""Functions of numpy on expressions: `np.exp(A[i])` is `te.exp(A[i])`.

numpy asks its operands what its functions mean on them (NEP 13 and NEP 18). Those that `te` has, or
operators, do the same here as on an array's element; of others the error says what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base.dtypes import is_float
from ..base.errors import IRError
from ..base.hints import instead
from . import ir, te
from .ir import NUMPY_OPERATORS, Expr, Op

_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
_SAME = (
    "cbrt ceil copysign cos cosh exp exp2 expm1 floor fmax fmin hypot isfinite isinf isnan log "
    "log10 log1p log2 logaddexp sign signbit sin sinh sqrt square tan tanh trunc"
)
_INVERSE = "asin acos atan atan2 asinh acosh atanh"
_FUNCTIONS: dict[str, Callable[..., Expr]] = {
    **{name: getattr(te, name) for name in _SAME.split()},
    **{name.replace("a", "arc", 1): getattr(te, name) for name in _INVERSE.split()},
    "absolute": te.abs,
    "fabs": lambda x: te.abs(_float("fabs", x)),
    "invert": lambda x: ~x,
    "logical_and": lambda a, b: _truth(a) & _truth(b),
    "logical_not": lambda x: ~_truth(x),
    "logical_or": lambda a, b: _truth(a) | _truth(b),
    "logical_xor": lambda a, b: _truth(a) ^ _truth(b),
    "maximum": te.maximum,
    "minimum": te.minimum,
    "negative": lambda x: -x,
    "positive": lambda x: x,
    "power": te.pow,
    "reciprocal": lambda x: 1 / _float("reciprocal", x),
    "rint": te.round,
}


def ufunc(
    function: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]
) -> Expr:
    """`function(*inputs)`, one of them an expression. Raises `IRError` for what is not there."""
    name = function.__name__
    if method != "__call__" or options:
        raise refused(reduction(name) if method == "reduce" else name)
    scalars: list[Any] = [x[()] if isinstance(x, np.ndarray) and not x.ndim else x for x in inputs]
    if name in NUMPY_OPERATORS:
        return ir.binary(NUMPY_OPERATORS[name], *scalars)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*scalars)
    raise refused(name)


def array_function(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Expr:
    """`function(*arguments)` for `where`, `clip` and `round`; others are refused."""
    name = function.__name__
    if name == "where" and len(arguments) == 3 and not options:
        condition, a, b = arguments
        return te.where(_truth(condition), a, b)
    if name == "clip" and len(arguments) == 3 and not options:
        value, low, high = arguments
        return _clipped(value, low, high)
    if name in ("round", "around") and len(arguments) == 1 and not options:
        return te.round(arguments[0])
    raise refused(name)


def _clipped(value: Any, low: Any, high: Any) -> Expr:
    """A bound that is `None` is none."""
    raised = value if low is None else te.maximum(value, low)
    return ir.as_expr(raised if high is None else te.minimum(raised, high))


def _float(name: str, value: Any) -> Expr:
    """A float for a function whose result for integers is another one in numpy."""
    expr = ir.as_expr(value)
    if not is_float(expr.dtype):
        raise IRError(
            "numpy.{0} of {1}; on expressions it takes floats",
            name,
            expr.dtype,
            hint=f'np.{name}(x.astype("float32"))',
        )
    return expr


def _truth(value: Any) -> Expr:
    """A value as a condition: numbers other than 0 are true."""
    expr = ir.as_expr(value)
    return expr if expr.dtype == "bool" else ir.binary(Op.NE, expr, 0)


def reduction(name: str) -> str:
    """The function of numpy that reduces by a ufunc: `np.add.reduce` is `np.sum`."""
    return _REDUCTIONS.get(name, name)


def operands(name: str) -> int:
    """How many operands a function of numpy has on expressions; 0 for operators and what is not."""
    if name in _FUNCTIONS:
        return int(getattr(np, name).nin)
    return {"clip": 3, "round": 1, "where": 3}.get(name, 0)


def refused(name: str) -> IRError:
    """The error for a function of numpy that expressions do not have."""
    return IRError(
        "numpy.{0} computes numbers; this is an expression of a program", name,
        hint=lambda: function_hint(name) or "the functions of te take expressions",
    )  # fmt: skip


def function_hint(name: str) -> str | None:
    """What to write for a function of numpy, TVM or Triton, on an element."""
    if name in te.__all__:
        return f"write te.{name}(...)"
    return instead("te", name)
