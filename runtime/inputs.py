"""Arguments to run a kernel on while it is tuned, or warmed up: random, the same for the same seed.

Floats have a magnitude from 0.5 to 1.5, so that products of many stay finite; they are positive
only where the program takes logarithms, roots or powers. Integers are small and not zero, or in
their declared range. Arrays are aligned as those of callers are, so that what is measured is what
they will see, and lie between guards that show stray writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ..base import dtypes
from .memory import Memory, View
from .signature import Argument, Signature

GUARD = 4096
_PATTERN = 0xA5
_SCALARS = {"float": 0.75, "int": 3, "uint": 3, "bool": True}

Array = np.ndarray[Any, Any]


class Random(Protocol):
    """What is asked of a generator of random numbers, numpy's for instance."""

    def random(self, count: int, dtype: Any, /) -> Array: ...

    def integers(self, low: int, high: int, count: int, dtype: Any = ..., /) -> Array: ...


class Arguments:
    """The arguments of one workload: `values` in order, arrays in `memory` and numbers.

    Floats are all `positive` where the program needs that. `draw` makes the generator of an
    argument, of the seed and the argument's number.
    """

    def __init__(
        self,
        signature: Signature,
        seed: int,
        memory: Memory,
        *,
        positive: bool,
        draw: Callable[[Sequence[int]], Random] = np.random.default_rng,
    ) -> None:
        self.signature = signature
        self.memory = memory
        self._positive = positive
        self._guards: list[tuple[str, View, View]] = []
        self._views: dict[int, View] = {}
        self._initial: dict[int, Array] = {}
        self.values: list[Any] = []
        for number, argument in enumerate(signature.arguments):
            rng = draw([seed, number])
            if argument.kind == "scalar":
                self.values.append(_SCALARS[dtypes.info(argument.dtype).kind])
                continue
            view = self._views[number] = self._place(argument)
            if argument.role == "in":
                memory.write(view, random_array(argument, rng, positive=self._positive))
            elif argument.role == "inout":
                self._initial[number] = random_array(argument, rng, positive=self._positive)
            self.values.append(memory.array(view))
        self.reset()

    def converted(self, signature: Signature) -> Arguments:
        """The same values, as at the start of a call, for a program with other dtypes."""
        self.reset()
        other = Arguments(signature, 0, self.memory, positive=self._positive)
        for number, view in self._views.items():
            self.memory.write(other._views[number], self.memory.read(view))
        return other

    @property
    def outputs(self) -> list[Array]:
        """The elements of the arrays that the kernel writes, in order."""
        arguments = self.signature.arguments
        return [self.memory.read(v) for n, v in self._views.items() if arguments[n].written]

    @property
    def on_host(self) -> list[Any]:
        """All arguments: arrays with the elements that they have now, and numbers."""
        return [
            self.memory.read(self._views[n]) if n in self._views else value
            for n, value in enumerate(self.values)
        ]

    def reset(self) -> None:
        """Restore the arguments that the kernel writes to their contents before a call.

        Outputs are filled with NaN, or an unlikely integer; arguments that are also read get their
        data again.
        """
        for number, view in self._views.items():
            role = self.signature.arguments[number].role
            if role == "out":
                self.memory.write(view, unlikely(view.dtype))
            elif role == "inout":
                self.memory.write(view, self._initial[number])

    def stray_write(self) -> str | None:
        """The name of an argument whose guards were overwritten, if there is one."""
        for name, *guards in self._guards:
            if any((self.memory.read(guard) != _PATTERN).any() for guard in guards):
                return name
        return None

    def _place(self, argument: Argument) -> View:
        """Memory of the argument's shape and strides between guards."""
        start, size = GUARD + self.memory.usual_offset, argument.span_bytes
        whole = self.memory.allocate(start + size + GUARD)
        view = self.memory.view(whole, argument.name)
        before = view._replace(shape=(start,), owner=whole)
        after = before._replace(pointer=view.pointer + start + size, shape=(GUARD,))
        for guard in (before, after):
            self.memory.write(guard, _PATTERN)
        self._guards.append((argument.name, before, after))
        strides = tuple(n * argument.itemsize for n in argument.element_strides)
        return View(
            view.pointer + start, argument.dtype, argument.shape, strides, read_only=False,
            owner=whole,
        )  # fmt: skip


def random_array(argument: Argument, rng: Random, *, positive: bool) -> Array:
    """Random data for an argument, compact."""
    facts, count = dtypes.info(argument.dtype), argument.size
    values: Array
    if argument.value_range is not None and facts.kind != "float":
        low, high = argument.value_range
        values = rng.integers(low, max(high, low + 1), count)
    elif facts.kind == "float":
        values = rng.random(count, np.float32) + np.float32(0.5)
        if not positive:
            np.negative(values, out=values, where=rng.integers(0, 2, count, np.bool_))
    elif facts.kind == "bool":
        values = rng.integers(0, 2, count, np.bool_)
    else:
        values = rng.integers(1, 8, count, np.int8)
        if facts.kind == "int":
            values *= rng.integers(0, 2, count, np.int8) * 2 - 1
    return values.astype(dtypes.to_numpy(argument.dtype), copy=False).reshape(argument.shape)


def unlikely(dtype: str) -> Array:
    """A value of which outputs are full before a call, so that forgotten elements show."""
    facts = dtypes.info(dtype)
    if facts.kind == "bool":
        return np.array(0x5A, np.uint8).view(np.bool_)
    value = np.nan if facts.kind == "float" else dtypes.int_limits(dtype)[1] - 90
    return np.array(value, dtypes.to_numpy(dtype))
