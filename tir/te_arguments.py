"""Checks of the arguments of `te`'s functions: names, dtypes, shapes, functions, arguments.

The result of `te.argmax` and `te.argmin`: two expressions, which are computed together.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NoReturn

import numpy as np

from ..base import dtypes
from ..base.errors import IRError
from ..base.text import count
from .ir import Expr, Var
from .names import unique
from .tensor import Axis, Tensor

PLACEHOLDER = 'te.placeholder((4, 8), "float32", name="X")'
COMPUTE = "te.compute((4, 8), lambda i, j: X[i, j] + 1, name='Y')"
FUNC = 'te.func([X, Y], name="main")'
REDUCE_AXIS = 'te.reduce_axis(8, name="r")'
SCALAR = 'te.scalar("float32", name="alpha")'


def check_name(name: object) -> None:
    if not (isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)):
        raise IRError("{0!r} is not a name; expected a Python identifier", name)


def dtype_name(dtype: object, call: str | None = None) -> str:
    """The name of a scalar dtype. `call` shows where a name goes, for one in the dtype's place."""
    try:
        name = dtype if isinstance(dtype, str) else dtypes.from_numpy(dtype)
    except (TypeError, ValueError):
        raise IRError(
            "{0!r} is not a dtype; expected a name such as 'float32'", dtype, hint=call
        ) from None
    try:
        lanes = dtypes.info(name).lanes
    except IRError as error:
        if error.hint is None:
            error.hint = call
        raise
    if lanes != 1:
        raise IRError("dtype {0} has lanes; expected a scalar dtype", name)
    return name


def extents_of(name: str, shape: Any, call: str) -> tuple[int, ...]:
    """A shape as Python integers; `call` is the call as it should be."""
    if isinstance(shape, (int, np.integer)) and not isinstance(shape, bool):
        raise IRError("{0}: shape is {1}; expected a tuple such as ({1},)", name, shape)
    if isinstance(shape, (str, Tensor)) or not isinstance(shape, Iterable):
        found = f"the tensor {shape.name}" if isinstance(shape, Tensor) else repr(shape)
        raise IRError(
            "{0}: shape is {1}; expected a tuple of integers, one for each dimension",
            name, found,
            hint=f"{shape.name}.extents is the shape of {shape.name}"
            if isinstance(shape, Tensor) else call,
        )  # fmt: skip
    return tuple(checked_extent(name, f"dimension {d}", e, call) for d, e in enumerate(shape))


def checked_extent(name: str, of: str, value: Any, call: str) -> int:
    """An extent as a Python integer; `call` is the call as it should be."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise IRError(
            "{0}: the extent of {1} is {2!r}; expected an integer from 0 on", name, of, value,
            hint="sizes are known when a program is built; write one program for each size"
            if value is None else call,
        )  # fmt: skip
    if value < 0:
        raise IRError(
            "{0}: {1} has the negative extent {2}; expected an integer from 0 on",
            name, of, value, hint=call,
        )  # fmt: skip
    return int(value)


def check_size(
    name: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: str
) -> None:
    size = dtypes.counted_bytes(shape, strides, dtype)
    if size > dtypes.MAX_BYTES:
        raise IRError(
            "{0}: shape {1} takes {2} bytes; expected at most {3}, as an array has",
            name, shape, size, dtypes.MAX_BYTES,
        )  # fmt: skip


def integer(name: str, what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise IRError("{0}: {1} is {2!r}; expected an integer", name, what, value)
    return int(value)


def index_names(name: str, fn: Any, shape: Sequence[int], given: Sequence[str] | None) -> list[str]:
    """The names of the index variables: `given`, else `fn`'s, with `i0, i1, ..` for `*indices`."""
    indices = ", ".join("ijklmn"[: len(shape)] if len(shape) <= 6 else ["*indices"])
    example = f"lambda {indices}: ..." if indices else "lambda: ..."
    if isinstance(fn, (Tensor, Expr)) or not callable(fn):
        raise IRError(
            "{0}: {1!r} is not a function of the indices", name, fn,
            hint=f"te.compute(shape, {example})",
        )  # fmt: skip
    names: list[str] = []
    variadic = False
    try:
        signature = inspect.signature(fn)
    except ValueError as error:
        raise IRError(
            "{0}: {1!r} does not say what its parameters are", name, fn,
            hint=f"wrap it: te.compute(shape, {example})",
        ) from error  # fmt: skip
    for p in signature.parameters.values():
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty:
            names.append(p.name)
        variadic = variadic or p.kind is p.VAR_POSITIONAL
    if variadic:
        names += [f"i{k}" for k in range(len(names), len(shape))]
    _check_count(name, "the function has", "parameter", names, shape, f"write {example}")
    if given is not None:
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise IRError("{0}: axes is {1!r}; expected a list of names", name, given)
        _check_count(name, "axes has", "name", given, shape, "name each dimension")
    for n in given or ():
        check_name(n)
    taken: set[str] = set()
    return [unique(n.strip("_") or "i", taken) for n in given or names]


def _check_count(
    name: str, whose: str, what: str, found: Sequence[str], shape: Sequence[int], hint: str
) -> None:
    if len(found) != len(shape):
        raise IRError(
            "{0}: {1} {2} ({3}), and the shape {4} has {5}", name, whose,
            count(len(found), what), ", ".join(found) or "none", tuple(shape),
            count(len(shape), "dimension"), hint=hint,
        )  # fmt: skip


def called(name: str, fn: Callable[..., Any], indices: Sequence[Axis]) -> Any:
    """What the function of a compute returns. Raises `IRError` where it indexes a numpy array."""
    try:
        return fn(*indices)
    except IndexError as error:
        if str(error) not in _numpy_refusals():
            raise
        raise IRError(
            "{0}: the function indexes an array of numpy by an expression; expected a placeholder",
            name, hint="what a program reads is an argument of it: "
            'W = te.placeholder((4,), "float32", name="W"), and te.func([W, ..])',
        ) from error  # fmt: skip


@cache
def _numpy_refusals() -> set[str]:
    """What numpy says of indices that are no integers."""
    texts = set()
    indices: tuple[Any, ...] = (object(), [object()])
    for index in indices:
        try:
            np.empty(1)[index]
        except IndexError as error:
            texts.add(str(error))
    return texts


def check_result(name: str, result: object) -> None:
    """Refuse what the function of a compute returned by mistake."""
    if result is None:
        raise IRError(
            "{0}: the function returned None; expected an expression", name,
            hint="return the value of the element: lambda i: X[i] + 1",
        )  # fmt: skip
    if isinstance(result, list):
        raise IRError(
            "{0}: the function returned a list; expected an expression, or a tuple of them", name,
            hint="several results are a tuple: lambda i: (X[i], X[i] + 1)",
        )  # fmt: skip


def check_arguments(name: str, args: Any) -> None:
    """Refuse what are no arguments of a program."""
    if isinstance(args, str) or not isinstance(args, Sequence):
        found = f"the tensor {args.name}" if isinstance(args, Tensor) else repr(args)
        raise IRError("{0}: found {1}; expected a list of arguments", name, found, hint=FUNC)
    for position, argument in enumerate(args):
        if isinstance(argument, Axis) or not isinstance(argument, (Tensor, Var)):
            raise IRError(
                "{0}: argument {1}, {2}, is not an argument; expected a tensor or a scalar",
                name, position, _shown(argument), hint=_instead(argument),
            )  # fmt: skip


def _shown(argument: object) -> str:
    if isinstance(argument, (tuple, list)):
        return f"a {type(argument).__name__} of {', '.join(map(_shown, argument)) or 'nothing'}"
    return argument.name if isinstance(argument, (Axis, Tensor, Var)) else repr(argument)


def _instead(argument: object) -> str | None:
    several = isinstance(argument, (tuple, list))
    parts: Sequence[object] = argument if isinstance(argument, (tuple, list)) else (argument,)
    if several and parts and all(isinstance(p, Tensor) for p in parts):
        return (
            "a compute with several results returns as many tensors: "
            "index, value = te.compute(...); te.func([X, index, value])"
        )
    if parts and all(isinstance(p, Expr) and not isinstance(p, Var) for p in parts):
        names = "index, value" if several else "Y"
        return (
            f"te.compute makes tensors of expressions: {names} = te.compute(shape, lambda i: ...)"
        )
    return None


PAIR_HINT = "te.argmax and te.argmin return (index, value): write te.argmax(x, axis=r)[0], or [1]"
_OPERATORS = """
    add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod divmod rdivmod pow rpow
    and rand or ror xor rxor lshift rlshift rshift rrshift lt le gt ge eq ne
    neg pos abs invert round floor ceil trunc array_ufunc
"""


class Pair(tuple[Expr, Expr]):
    """The index and the value. It is no number: operators of expressions raise `IRError`.

    That includes `==`: of tuples it would be a Python bool, and `te.where` takes that as constant.
    """

    __slots__ = ()


def _refuse(pair: Pair, *_: object, **__: object) -> NoReturn:
    raise IRError("an operator takes one expression, found the pair {0!r}", pair, hint=PAIR_HINT)


for _name in _OPERATORS.split():
    setattr(Pair, f"__{_name}__", _refuse)
