"""Convert the arguments of a call into the interpreter's memory and back."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ..base import dtypes
from ..base.errors import ArgumentError, VerifyError
from . import arithmetic
from .ir import Buffer, Func, Var


def check(func: Func, arguments: tuple[Any, ...], outputs: set[Buffer]) -> None:
    """Raises `ArgumentError` for arguments that do not fit, and for outputs that overlap others."""
    if len(arguments) != len(func.params):
        raise ArgumentError(
            "{0} takes {1} arguments ({2}), found {3}", func.name, len(func.params),
            ", ".join(p.name for p in func.params), len(arguments),
        )  # fmt: skip
    arrays: list[tuple[Buffer, np.ndarray[Any, Any]]] = []
    for param, argument in zip(func.params, arguments, strict=True):
        if isinstance(param, Buffer):
            _check_array(param, argument)
            arrays.append((param, argument))
    for a, x in arrays:
        for b, y in arrays:
            if a in outputs and a is not b and np.shares_memory(x, y):
                raise ArgumentError("output {0} overlaps {1} in memory", a.name, b.name)


def _check_array(param: Buffer, argument: Any) -> None:
    if not isinstance(argument, np.ndarray):
        raise ArgumentError(
            "{0} is a {1}, expected a numpy array", param.name, type(argument).__name__
        )
    if argument.shape != shape_of(param):
        raise ArgumentError(
            "{0} has shape {1}, expected {2}", param.name, argument.shape, param.shape
        )
    if argument.dtype != dtypes.to_numpy(param.dtype):
        raise ArgumentError(
            "{0} has dtype {1}, expected {2}", param.name, argument.dtype, param.dtype
        )


def check_values(func: Func, arguments: tuple[Any, ...]) -> None:
    """Raises `ArgumentError` for arrays that hold integers outside of the parameter's range."""
    for param, argument in zip(func.params, arguments, strict=True):
        if not isinstance(param, Buffer) or param.value_range is None or not argument.size:
            continue
        low, high = param.value_range
        if argument.min() < low or argument.max() >= high:
            raise ArgumentError(
                "{0} holds values in [{1}, {2}], expected [{3}, {4})", param.name,
                argument.min(), argument.max(), low, high,
            )  # fmt: skip


def scalar(param: Var, argument: Any) -> Any:
    """A number in the representation of the parameter's dtype."""
    kind = dtypes.info(param.dtype).kind
    number = argument.item() if isinstance(argument, np.generic) else argument
    types = {"bool": (bool,), "int": (int,), "uint": (int,), "float": (int, float)}[kind]
    if type(number) not in types:
        raise ArgumentError("{0} is {1!r}, expected {2}", param.name, argument, param.dtype)
    if kind in ("int", "uint"):
        low, high = dtypes.int_limits(param.dtype)
        if not low <= number <= high:
            raise ArgumentError("{0} is {1}, out of range of {2}", param.name, number, param.dtype)
    return arithmetic.constant(number, param.dtype)


def elements(array: np.ndarray[Any, Any]) -> list[Any]:
    """All elements in row-major order, in the representation of `arithmetic`."""
    return list(array.ravel()) if array.dtype.kind in "fV" else array.ravel().tolist()


def write_back(data: list[Any], array: np.ndarray[Any, Any]) -> None:
    """Put `data` into `array`; elements that the program did not write (`None`) stay."""
    flat = elements(array)
    merged = [old if new is None else new for new, old in zip(data, flat, strict=True)]
    array[...] = np.array(merged, dtype=array.dtype).reshape(array.shape)


def shape_of(buffer: Buffer) -> tuple[int, ...]:
    """The shape in integers. Raises `VerifyError` for a symbolic one."""
    for d in buffer.shape:
        if not isinstance(d, int):
            raise VerifyError("{0} has a symbolic shape {1}; expected integers", buffer.name, d)
    return cast(tuple[int, ...], buffer.shape)
