"""Check the values of index arrays before a kernel reads memory at them.

The bounds of a program were proved under the `value_range` that it declares. Scalars are checked
where they are converted (`argument_checks.py`); this module checks tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..base import dtypes
from ..base.errors import ArgumentError
from .memory import Memory, View, memory_for
from .signature import Argument, Packing, Signature

RangeCheck = Callable[[Sequence[Any]], None]
"""Checks the index arrays at the addresses of a call."""


def checked_limits(argument: Argument) -> tuple[int, int] | None:
    """The smallest and largest value allowed in a tensor that is read; `None` if any will do.

    They are within the range of its dtype; the first exceeds the second if no value is allowed.
    """
    if argument.value_range is None or argument.kind != "tensor" or argument.role == "out":
        return None
    if not argument.size or not dtypes.is_integer(argument.dtype):
        return None
    least, greatest = dtypes.int_limits(argument.dtype)
    low, high = argument.value_range
    if low <= least and high > greatest:
        return None
    return max(low, least), min(high - 1, greatest)


def trusting(signature: Signature) -> Signature:
    """The signature without the ranges of its tensors."""
    arguments = tuple(
        replace(a, value_range=None, packing=_trusting_packing(a)) if a.kind == "tensor" else a
        for a in signature.arguments
    )
    return replace(signature, arguments=arguments)


def _trusting_packing(argument: Argument) -> Packing | None:
    packing = argument.packing
    if packing is None:
        return None
    return replace(packing, operand=replace(packing.operand, value_range=None))


def make_range_check(signature: Signature, memory: Memory) -> RangeCheck | None:
    """Returns the check of a call's addresses, or `None` if no argument has a range to check.

    The check raises `ArgumentError` for the first value that is out of its range, and
    `OutOfMemoryError` where there is no memory for the host to read them.
    """
    checks = [
        (number, argument, _facts(argument), limits)
        for number, argument in enumerate(signature.arguments)
        if (limits := checked_limits(argument)) is not None
    ]
    if not checks:
        return None
    read = memory.read

    def check(values: Sequence[Any]) -> None:
        for number, argument, facts, (least, greatest) in checks:
            with memory_for("argument {0}: no memory to check its values", argument.name):
                array = read(View(values[number], *facts))
            if array.min() < least or array.max() > greatest:
                _refuse(argument, array, least, greatest)

    return check


def _facts(
    argument: Argument,
) -> tuple[str, tuple[int, ...], tuple[int, ...] | None, bool, None]:
    """The fields of a `View` of the tensor beside its address."""
    steps = argument.strides
    strides = None if steps is None else tuple(n * argument.itemsize for n in steps)
    return argument.dtype, argument.shape, strides, False, None


def _refuse(argument: Argument, array: np.ndarray[Any, Any], least: int, greatest: int) -> None:
    outside = (array < least) | (array > greatest)
    place = np.unravel_index(int(outside.argmax()), array.shape)
    if not outside[place]:  # another thread has written it meanwhile
        return
    assert argument.value_range is not None, "it has limits"
    low, high = argument.value_range
    raise ArgumentError(
        "argument {0}: expected values from {1} to {2}, found {3} at {4}",
        argument.name,
        low,
        high - 1,
        int(array[place]),
        [int(n) for n in place],
        hint="its value_range says so: the kernel may read other memory at other values",
    )
