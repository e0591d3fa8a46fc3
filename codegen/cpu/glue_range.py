"""Functions in machine code that check that all values of an index array are within limits.

A value is in `least .. greatest` if `value - least`, as an unsigned number, is at most
`greatest - least`: one subtraction and one maximum per vector. The order of elements does not
matter, so adjacent dimensions are merged and dimensions of stride zero are left out. The tail is
covered by one last vector that overlaps with the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from ...runtime.signature import Argument

_VECTOR_BYTES = 128
"""Several registers of any processor, so that their maxima do not wait for each other."""

Dimension = tuple[int, int]
"""Extent and stride in elements."""


def range_function(name: str, argument: Argument, least: int, greatest: int) -> tuple[str, ...]:
    """The function `i1 name(ptr)` as LLVM text, for a tensor of at least one element.

    The declarations that it needs come before it.
    """
    return _RangeFunction(argument, least, greatest).text(name)


def walk_order(shape: Sequence[int], strides: Sequence[int]) -> list[Dimension]:
    """Dimensions that reach each element's address at least once, the innermost last.

    (4, 1, 6, 8) with strides (48, 0, 8, 1)  ->  [(192, 1)]
    """
    steps = [(n, s) for n, s in zip(shape, strides, strict=True) if n > 1 and s > 0]
    joined: list[Dimension] = []
    for extent, stride in sorted(steps, key=lambda step: step[1]):
        if joined and stride == joined[-1][0] * joined[-1][1]:
            joined[-1] = (joined[-1][0] * extent, joined[-1][1])
        else:
            joined.append((extent, stride))
    return joined[::-1]


class _RangeFunction:
    def __init__(self, argument: Argument, least: int, greatest: int) -> None:
        self.itemsize = argument.itemsize
        self.bits = 8 * argument.itemsize
        self.least, self.width = least, greatest - least
        *self.outer, (self.run, step) = walk_order(argument.shape, argument.element_strides) or [
            (1, 1)
        ]
        if step != 1:
            self.outer, self.run = [*self.outer, (self.run, step)], 1
        most = min(self.run, _VECTOR_BYTES // self.itemsize)
        self.lanes = 1 << (most.bit_length() - 1)
        self.vector = f"<{self.lanes} x i{self.bits}>"
        self.suffix = f"v{self.lanes}i{self.bits}"
        self.lines: list[str] = []
        self.numbers = count()
        self.label = "entry"

    def text(self, name: str) -> tuple[str, ...]:
        highest = self.dimensions(self.outer, "%data", "zeroinitializer")
        reduce = f"llvm.vector.reduce.umax.{self.suffix}"
        most = self.let(f"call i{self.bits} @{reduce}({self.vector} {highest})")
        fits = self.let(f"icmp ule i{self.bits} {most}, {self.width}")
        body = "\n".join([*self.lines, f"  ret i1 {fits}"])
        return (
            f"declare i{self.bits} @{reduce}({self.vector})",
            f"declare {self.vector} @llvm.umax.{self.suffix}({self.vector}, {self.vector})",
            f"define internal i1 @{name}(ptr %data) noinline {{\nentry:\n{body}\n}}",
        )

    def dimensions(self, outer: Sequence[Dimension], pointer: str, highest: str) -> str:
        """Loops over the dimensions around a run; the result is the largest value, lane by lane."""
        if not outer:
            return self.elements(pointer, highest)
        (extent, stride), *inner = outer
        step = stride * self.itemsize
        return self.loop(extent, step, pointer, highest, lambda p, h: self.dimensions(inner, p, h))

    def elements(self, pointer: str, highest: str) -> str:
        """A run of adjacent elements."""
        whole, rest = divmod(self.run, self.lanes)
        size = self.lanes * self.itemsize
        highest = self.loop(whole, size, pointer, highest, self.one_vector)
        if rest:
            start = (self.run - self.lanes) * self.itemsize
            last = self.let(f"getelementptr i8, ptr {pointer}, i64 {start}")
            highest = self.one_vector(last, highest)
        return highest

    def one_vector(self, pointer: str, highest: str) -> str:
        found = self.let(f"load {self.vector}, ptr {pointer}, align {self.itemsize}")
        least = f"splat (i{self.bits} {self.least})"
        above = self.let(f"sub {self.vector} {found}, {least}")
        operands = f"{self.vector} {highest}, {self.vector} {above}"
        return self.let(f"call {self.vector} @llvm.umax.{self.suffix}({operands})")

    def loop(
        self,
        extent: int,
        step: int,
        pointer: str,
        highest: str,
        body: Callable[[str, str], str],
    ) -> str:
        """`body` of each pointer, `step` bytes from one to the next, and the highest so far."""
        if extent == 1:
            return body(pointer, highest)
        n = next(self.numbers)
        self.lines += [f"  br label %loop{n}", f"loop{n}:"]
        before, self.label = self.label, f"loop{n}"
        head = len(self.lines)
        result = body(f"%p{n}", f"%high{n}")
        self.lines[head:head] = [
            f"  %i{n} = phi i64 [ 0, %{before} ], [ %i{n}.next, %{self.label} ]",
            f"  %p{n} = phi ptr [ {pointer}, %{before} ], [ %p{n}.next, %{self.label} ]",
            f"  %high{n} = phi {self.vector} [ {highest}, %{before} ], [ {result}, %{self.label} ]",
        ]
        self.lines += [
            f"  %p{n}.next = getelementptr i8, ptr %p{n}, i64 {step}",
            f"  %i{n}.next = add i64 %i{n}, 1",
            f"  %more{n} = icmp ult i64 %i{n}.next, {extent}",
            f"  br i1 %more{n}, label %loop{n}, label %end{n}",
            f"end{n}:",
        ]
        self.label = f"end{n}"
        return result

    def let(self, text: str) -> str:
        name = f"%v{next(self.numbers)}"
        self.lines.append(f"  {name} = {text}")
        return name
