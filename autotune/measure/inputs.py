"""Arguments to run a kernel on while it is tuned: random, the same for the same seed.

Floats have a magnitude from 0.5 to 1.5, so that products of many stay finite; they are positive
only where the program takes logarithms, roots or powers. Integers are small and not zero, or in
their declared range. Memory is aligned as numpy aligns it (16 bytes, not a cache line), so that
what is measured is what callers will see, and lies between guards that show stray writes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ...runtime.signature import Argument, Signature
from ...tir.ir import Call, Func
from ...tir.visit import walk

GUARD = 4096
_PATTERN = 0xA5
_LINE = 64
_OFFSET = 16
_POSITIVE = frozenset({"log", "sqrt", "rsqrt", "pow"})
_SCALARS = {"float": 0.75, "int": 3, "uint": 3, "bool": True}

Array = np.ndarray[Any, Any]


class Arguments:
    """The arguments of one workload: `values` in order, arrays and numbers."""

    def __init__(self, func: Func, signature: Signature, seed: int) -> None:
        self.signature = signature
        positive = needs_positive(func)
        self._guards: list[tuple[str, Array, Array]] = []
        self._initial: dict[int, Array] = {}
        self.values: list[Any] = []
        for number, argument in enumerate(signature.arguments):
            rng = np.random.default_rng([seed, number])
            if argument.kind == "scalar":
                self.values.append(_SCALARS[dtypes.info(argument.dtype).kind])
                continue
            array = self._place(argument)
            if argument.role == "in":
                array[...] = random_array(argument, rng, positive=positive)
            elif argument.role == "inout":
                self._initial[number] = random_array(argument, rng, positive=positive)
            self.values.append(array)
        self.reset()

    def converted(self, func: Func, signature: Signature) -> Arguments:
        """The same values, as at the start of a call, for `func` with other dtypes."""
        self.reset()
        other = Arguments(func, signature, 0)
        for new, value in zip(other.values, self.values, strict=True):
            if isinstance(new, np.ndarray):
                new[...] = value
        return other

    @property
    def outputs(self) -> list[Array]:
        """The arrays that the kernel writes, in order."""
        return [v for a, v in zip(self.signature.arguments, self.values, strict=True) if a.written]

    def reset(self) -> None:
        """Restore the arguments that the kernel writes to their contents before a call.

        Outputs are filled with NaN, or an unlikely integer; arguments that are also read get their
        data again.
        """
        for number, argument in enumerate(self.signature.arguments):
            if argument.role == "out":
                spoil(self.values[number], argument.dtype)
            elif argument.role == "inout":
                self.values[number][...] = self._initial[number]

    def stray_write(self) -> str | None:
        """The name of an argument whose guards were overwritten, if there is one."""
        for name, before, after in self._guards:
            if (before != _PATTERN).any() or (after != _PATTERN).any():
                return name
        return None

    def _place(self, argument: Argument) -> Array:
        """An array of the argument's shape and strides between guards."""
        memory = np.empty(2 * GUARD + _LINE + argument.span_bytes, np.uint8)
        start = GUARD + (_OFFSET - memory.ctypes.data - GUARD) % _LINE
        before, after = memory[:start], memory[start + argument.span_bytes :]
        before[...] = after[...] = _PATTERN
        self._guards.append((argument.name, before, after))
        return np.ndarray(
            argument.shape,
            dtypes.to_numpy(argument.dtype),
            buffer=memory.data,
            offset=start,
            strides=tuple(n * argument.itemsize for n in argument.element_strides),
        )


def needs_positive(func: Func) -> bool:
    """Whether negative inputs may have no result: logarithms, roots, powers."""
    return any(type(n) is Call and n.fn in _POSITIVE for n in walk(func))


def random_array(argument: Argument, rng: np.random.Generator, *, positive: bool) -> Array:
    """Random data for an argument, compact."""
    facts, shape = dtypes.info(argument.dtype), argument.shape
    values: Array
    if argument.value_range is not None and facts.kind != "float":
        low, high = argument.value_range
        values = rng.integers(low, max(high, low + 1), shape)
    elif facts.kind == "float":
        values = rng.random(shape, np.float32) + np.float32(0.5)
        if not positive:
            np.negative(values, out=values, where=rng.integers(0, 2, shape, np.bool_))
    elif facts.kind == "bool":
        values = rng.integers(0, 2, shape, np.bool_)
    else:
        values = rng.integers(1, 8, shape, np.int8)
        if facts.kind == "int":
            values *= rng.integers(0, 2, shape, np.int8) * 2 - 1
    return values.astype(dtypes.to_numpy(argument.dtype), copy=False)


def spoil(array: Array, dtype: str) -> None:
    """Fill an output with a value that shows which elements a kernel forgets to write."""
    facts = dtypes.info(dtype)
    if facts.kind == "float":
        array[...] = np.nan
    elif facts.kind == "bool":
        array.view(np.uint8)[...] = 0x5A
    else:
        array[...] = dtypes.int_limits(dtype)[1] - 90
