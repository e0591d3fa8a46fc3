"""Check a lowered program in the emulator against the program before lowering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base import dtypes
from tilewright.codegen.cuda.emulate import Emulation, emulate, strided
from tilewright.codegen.cuda.emulate_batch import Array
from tilewright.codegen.lower import lower
from tilewright.target import CudaTarget
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Buffer, Func
from tilewright.tir.visit import stored_buffers

from .form import check_form

ROUNDINGS = 32
"""Units in the last place by which floats may differ: the order of a sum is not specified."""


@dataclass(frozen=True)
class Difference:
    """A wrong output: where it differs most, and in how many elements."""

    name: str
    index: tuple[int, ...]
    found: Any
    expected: Any
    count: int

    def __str__(self) -> str:
        return (
            f"{self.name}{list(self.index)} is {self.found}, expected {self.expected}"
            f" ({self.count} elements differ)"
        )


@dataclass(frozen=True)
class Check:
    """A lowered program, what its emulation found, and where its results are wrong."""

    lowered: Func
    emulation: Emulation
    differences: tuple[Difference, ...]

    @property
    def right(self) -> bool:
        return not (self.emulation.faults or self.differences)

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.emulation.faults, *self.differences)))


def check_program(
    func: Func,
    target: CudaTarget,
    arguments: Sequence[Any],
    *,
    tolerance: float | None = None,
) -> Check:
    """Lower a program for a resolved target, emulate it, and compare with the interpreter.

    Arguments are numpy arrays and numbers in the order of the parameters; they are not changed. A
    float may deviate by `tolerance` times the sum of its size and the largest of the output; by
    default this is `ROUNDINGS` units in the last place. Raises `BuildError` where `func` cannot be
    lowered, and `VerifyError` where it is wrong itself.
    """
    return check_lowered(lower(func, target), func, arguments, tolerance)


def check_lowered(
    lowered: Func, func: Func, arguments: Sequence[Any], tolerance: float | None = None
) -> Check:
    """Emulate a lowered program and compare with the interpreter on `func`: `check_program`.

    Raises `VerifyError` where it is not in the form of a lowered program.
    """
    check_form(lowered)
    expected, found = _copied(arguments), _copied(arguments)
    interpret(func, *expected)
    emulation = emulate(lowered, *found)
    outputs = stored_buffers(func)
    differences = [
        difference
        for p, a, b in zip(func.params, found, expected, strict=True)
        if isinstance(p, Buffer) and p in outputs
        for difference in [_difference(p, a, b, tolerance)]
        if difference is not None
    ]
    return Check(lowered, emulation, tuple(differences))


def _copied(arguments: Sequence[Any]) -> list[Any]:
    """Copies of arrays that have the same strides; numbers as they are."""
    return [_copy(a) if isinstance(a, np.ndarray) else a for a in arguments]


def _copy(array: Array) -> Array:
    span = dtypes.span_bytes(
        array.shape, [s // array.itemsize for s in array.strides], dtypes.from_numpy(array.dtype)
    )
    memory = np.zeros(max(span // array.itemsize, 1), array.dtype)
    copy = strided(memory, array.shape, array.strides)
    copy[...] = array
    return copy


def _difference(
    param: Buffer, found: Array, expected: Array, tolerance: float | None
) -> Difference | None:
    if not dtypes.is_float(param.dtype):
        error = np.where(found == expected, 0.0, 1.0)
        limit: Array = np.zeros(1)
    else:
        a, b = found.astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(b)
        if tolerance is None:
            tolerance = ROUNDINGS * 2.0 ** -(dtypes.info(param.dtype).mantissa + 1)
        with np.errstate(all="ignore"):
            error = np.abs(a - b)
            error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, error)
            error = np.where(np.isnan(error), np.inf, error)
            limit = tolerance * (
                np.where(finite, np.abs(b), 0.0) + np.abs(b[finite]).max(initial=0.0)
            )
    wrong = error > limit
    if not wrong.any():
        return None
    worst = np.unravel_index(np.argmax(np.where(wrong, error, -1.0)), wrong.shape)
    index = tuple(int(n) for n in worst)
    return Difference(param.name, index, found[index], expected[index], int(wrong.sum()))
