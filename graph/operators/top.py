"""The largest or smallest elements along an axis, by a heap of those found so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...base import dtypes
from ...base.errors import IRError
from ...ops import operands
from ...tir.ir import Func
from ...tir.parser import parse
from ..ir import TensorType
from ..operator import Array, Kind, programmed


def _ranked(x: Array, *, axis: int, count: int, largest: bool) -> tuple[Array, Array]:
    # Stable, and NaN is the largest: the order of the negatives would turn NaN and small integers.
    # Of other floats than its own, numpy leaves NaN anywhere.
    narrow = dtypes.is_float(dtypes.from_numpy(x.dtype)) and x.itemsize < 4
    plain = x.astype(np.float32) if narrow else x
    if largest:
        order = np.flip(np.argsort(np.flip(plain, axis), axis, kind="stable"), axis)
        order = x.shape[axis] - 1 - order
    else:
        order = np.argsort(plain, axis, kind="stable")
    first = np.take(order, np.arange(count), axis).astype(np.int64)
    return np.take_along_axis(x, first, axis), first


def _infer(
    x: TensorType, *, axis: int, count: int, largest: bool = True
) -> tuple[TensorType, TensorType]:
    del largest
    axis = operands.axis("top", axis, x.rank)
    if not 0 <= count <= x.shape[axis]:
        raise IRError("top: {0} of {1} elements", count, x.shape[axis])
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return TensorType(x.dtype, shape), TensorType("int64", shape)


@programmed(Kind.ROWS, reference=_ranked, infer=_infer)
def top(x: TensorType, *, axis: int, count: int, largest: bool = True) -> Func:
    """The `count` largest (or smallest) elements along `axis`, in their order, and their places.

    Of equal ones the first comes first. NaN is larger than all numbers.
    """
    types = dict(zip("XVP", (x, *_infer(x, axis=axis, count=count)), strict=True))
    parameters = ", ".join(f'{k}: T.Buffer({t.shape}, "{t.dtype}")' for k, t in types.items())
    lines = _Text(x, axis % x.rank, count, largest).lines()
    return parse("\n".join(["@tw.script", *_block(f"def top({parameters})", *lines)]))


_Element: TypeAlias = tuple[str, str]
"""The texts of a value and its place."""

_NEW: _Element = ("value", "place")


@dataclass(frozen=True)
class _Text:
    """The program, in which the results are a heap: its root comes after all others that it holds.

    It begins with the first `count` elements. Each other one that comes before the root takes its
    place. At last the root is put behind the others, until one is left.
    """

    x: TensorType
    axis: int
    count: int
    largest: bool

    def lines(self) -> list[str]:
        rows = {f"i{d}": e for d, e in enumerate(self.x.shape) if d != self.axis} or {"i": 1}
        extents = ", ".join(map(str, rows.values()))
        grid = f"T.grid({extents})" if len(rows) > 1 else f"range({extents})"
        return [
            *(f'{b} = T.alloc((1,), "int64", scope="local")' for b in ("hole", "child")),
            *_block(f"for {', '.join(rows)} in {grid}", *self.row()),
        ]

    def row(self) -> list[str]:
        count, last, half = self.count, self.count - 1, self.count // 2
        fill = _block(f"for n in range({count})", *_set(self.held("n"), (self.at("X", "n"), "n")))
        if not count:
            return fill
        root, first, end = map(self.held, ("0", f"{half - 1} - n", f"{last} - n"))
        other = (self.at("X", f"{count} + n"), f"{count} + n")
        replace = [*_set(_NEW, other), *self.sift("0", count)]
        return [
            *fill,
            *("hole[0] = 0", "child[0] = 0"),
            *_block(
                f"for n in range({half})",
                *_set(_NEW, first),
                *self.sift(f"{half - 1} - n", count),
            ),
            *_block(
                f"for n in range({self.x.shape[self.axis] - count})",
                *_block(f"if {self.before(other[0], root[0])}", *replace),
            ),
            *_block(
                f"for n in range({last})",
                *_set(_NEW, end),
                *_set(end, root),
                *self.sift("0", f"{last} - n"),
            ),
        ]

    def sift(self, hole: str, size: object) -> list[str]:
        """The new element is put into the heap of a size, which lacks the element at `hole`.

        What comes after it moves up.
        """
        here, child, right = map(self.somewhere, ("hole[0]", "child[0]", "child[0] + 1"))
        a, b, c = (("a", "at_a"), ("b", "at_b"), ("c", "at_c"))
        return [
            f"hole[0] = {hole}",
            *_block(
                f"for level in range({self.count.bit_length() - 1})",
                "child[0] = 2 * hole[0] + 1",
                *_set(a, child),
                *_set(b, right),
                *_block(
                    f"if (child[0] + 1 < {size}) & {self.precedes(a, b)}",
                    "child[0] = child[0] + 1",
                ),
                *_set(c, child),
                *_block(
                    f"if (child[0] < {size}) & {self.precedes(_NEW, c)}",
                    *_set(here, c),
                    "hole[0] = child[0]",
                ),
            ),
            *_set(here, _NEW),
        ]

    def at(self, buffer: str, place: str) -> str:
        names = [f"i{d}" for d in range(self.x.rank)]
        names[self.axis] = place
        return f"{buffer}[{', '.join(names)}]"

    def held(self, place: str) -> _Element:
        return self.at("V", place), self.at("P", place)

    def somewhere(self, place: str) -> _Element:
        """The element at a place that is not known to be one of the heap."""
        return self.held(f"T.minimum(T.maximum({place}, 0), {self.count - 1})")

    def precedes(self, a: _Element, b: _Element) -> str:
        same = f"~{self.before(b[0], a[0])} & ({a[1]} < {b[1]})"
        return f"({self.before(a[0], b[0])} | ({same}))"

    def before(self, a: str, b: str) -> str:
        """Whether a value comes before another."""
        a, b = (a, b) if self.largest else (b, a)
        nan = f" | (({a} != {a}) & ({b} == {b}))" if dtypes.is_float(self.x.dtype) else ""
        return f"(({a} > {b}){nan})"


def _block(head: str, *lines: str) -> list[str]:
    return [f"{head}:", *(f"    {line}" for line in lines)]


def _set(element: _Element, to: _Element) -> list[str]:
    return [f"{a} = {b}" for a, b in zip(element, to, strict=True)]
