"""Small programs, with the arguments of a call and what numpy says should come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tilewright import Func, Module, te

from ..guard_pages import Array, Guarded, guarded
from .attempt import Broken

TARGET = "cpu -threads=1"


@dataclass(frozen=True)
class Subject:
    """A program. `inputs` makes the arguments before the outputs, `outputs` what they should give.

    `strides` has those of inputs that are not compact, by position, in elements.
    """

    func: Func
    inputs: Callable[[np.random.Generator], list[Any]]
    outputs: Callable[..., list[Array]]
    strides: tuple[tuple[int, ...] | None, ...] = ()
    inplace: int | None = None


def _normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[Any]]:
    return lambda rng: [rng.standard_normal(s).astype(np.float32) for s in shapes]


def _affine(n: int) -> Subject:
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0 + 1.0, name="B")
    func = te.func([a, b], name="affine")
    return Subject(func, _normal((n,)), lambda x: [x * np.float32(2) + np.float32(1)])


def _matmul(m: int, n: int, k: int) -> Subject:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return Subject(te.func([a, b, c], name="matmul"), _normal((m, k), (k, n)), lambda x, y: [x @ y])


def _gather() -> Subject:
    table = te.placeholder((40, 3), name="T")
    index = te.placeholder((17,), "int32", name="I", value_range=(0, 40))
    out = te.compute((17, 3), lambda i, j: table[index[i], j], name="G")
    func = te.func([table, index, out], name="gather")

    def inputs(rng: np.random.Generator) -> list[Any]:
        places = rng.integers(0, 40, 17).astype(np.int32)
        return [rng.standard_normal((40, 3)).astype(np.float32), places]

    return Subject(func, inputs, lambda t, i: [t[i]])


def _strided() -> Subject:
    a = te.placeholder((9, 5), name="A", strides=(1, 12))
    s = te.scalar("float32", name="s")
    out = te.compute((9, 5), lambda i, j: a[i, j] * s, name="B")
    func = te.func([a, s, out], name="scaled")

    def inputs(rng: np.random.Generator) -> list[Any]:
        return [rng.standard_normal((9, 5)).astype(np.float32), 0.5]

    return Subject(func, inputs, lambda a, s: [a * np.float32(s)], ((1, 12), None))


def _narrow() -> Subject:
    a = te.placeholder((33,), "bfloat16", name="A")
    k = te.placeholder((33,), "int8", name="K")
    wide = te.compute(
        (33,), lambda i: te.cast(a[i], "float32") + te.cast(k[i], "float32"), name="W"
    )
    flag = te.compute((33,), lambda i: k[i] > 0, name="P")
    func = te.func([a, k, wide, flag], name="narrow")

    def inputs(rng: np.random.Generator) -> list[Any]:
        import ml_dtypes

        real = rng.standard_normal(33).astype(ml_dtypes.bfloat16)
        return [real, rng.integers(-128, 128, 33).astype(np.int8)]

    return Subject(func, inputs, lambda a, k: [a.astype(np.float32) + k.astype(np.float32), k > 0])


def _inplace() -> Subject:
    x, y = te.placeholder((21,), name="X"), te.placeholder((21,), name="Y")
    new = te.compute((21,), lambda i: x[i] + y[i], name="N")
    func = te.func([y, x], inplace={new: x}, name="add_to")
    return Subject(func, _normal((21,), (21,)), lambda y, x: [x + y], (), 1)


def _small() -> Subject:
    empty = te.placeholder((0, 4), name="E")
    one = te.placeholder((), "float64", name="O")
    r = te.reduce_axis(0, name="r")
    out = te.compute((4,), lambda j: te.sum(empty[r, j], axis=r), name="S")
    twice = te.compute((), lambda: one[()] * 2.0, name="D")
    func = te.func([empty, one, out, twice], name="small")

    def inputs(rng: np.random.Generator) -> list[Any]:
        return [np.zeros((0, 4), np.float32), np.array(rng.standard_normal())]

    return Subject(func, inputs, lambda e, o: [np.zeros(4, np.float32), np.asarray(o * 2)])


@cache
def subjects() -> dict[str, Subject]:
    """All of them, by name."""
    return {
        "affine": _affine(24),
        "longer": _affine(40),
        "matmul": _matmul(6, 9, 5),
        "wider": _matmul(6, 18, 5),
        "gather": _gather(),
        "strided": _strided(),
        "narrow": _narrow(),
        "inplace": _inplace(),
        "small": _small(),
    }


@dataclass
class Call:
    """The arguments of a call in guarded memory; change `arguments` before it, `check` after it."""

    arguments: list[Any]
    memory: list[Guarded | None]
    expected: list[Array]
    written: list[int]

    def check(self) -> None:
        """Raise `Broken` for a wrong result or a byte beside an array that was written."""
        self.check_margins()
        for position, want in zip(self.written, self.expected, strict=True):
            memory = self.memory[position]
            assert memory is not None
            require_close(memory.array, want, f"argument {position}")

    def check_margins(self) -> None:
        for position, memory in enumerate(self.memory):
            if memory is not None:
                memory.check(f"argument {position}")


def call_of(subject: Subject, rng: np.random.Generator) -> Call:
    """Random arguments for one call."""
    values = subject.inputs(rng)
    expected = [np.asarray(e) for e in subject.outputs(*values)]
    memory: list[Guarded | None] = []
    arguments: list[Any] = []
    for position, value in enumerate(values):
        steps = subject.strides[position] if position < len(subject.strides) else None
        is_array = isinstance(value, np.ndarray)
        memory.append(guarded(value, steps, at_end=rng.random() < 0.5) if is_array else None)
        arguments.append(value if (held := memory[-1]) is None else held.array)
    if subject.inplace is not None:
        return Call(arguments, memory, expected, [subject.inplace])
    written = list(range(len(values), len(values) + len(expected)))
    for want in expected:
        empty = guarded(np.full(want.shape, 77).astype(want.dtype), at_end=rng.random() < 0.5)
        memory.append(empty)
        arguments.append(empty.array)
    return Call(arguments, memory, expected, written)


def check_module(module: Module, subject: Subject, rng: np.random.Generator) -> None:
    """Raise `Broken` unless a call computes what numpy does, and writes nothing else."""
    call = call_of(subject, rng)
    module(*call.arguments)
    call.check()


def require_close(found: Array, want: Array, name: str) -> None:
    """Raise `Broken` unless floats agree within rounding and everything else exactly."""
    if found.shape != want.shape or found.dtype != want.dtype:
        raise Broken(f"{name}: {found.dtype}{found.shape}, expected {want.dtype}{want.shape}")
    if want.dtype.kind in "iub":
        wrong = found != want
    else:
        a, b = found.astype(np.float64), want.astype(np.float64)
        wrong = ~(np.abs(a - b) <= 1e-5 + 1e-5 * np.abs(b))
    if wrong.any():
        place = tuple(int(i[0]) for i in np.nonzero(wrong))
        raise Broken(f"{name}{list(place)} is {found[place]}, expected {want[place]}")
