"""The assembly of a program by lines: which are hot, and which loop of the program runs each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...base.text import count
from ...codegen.compiled import Compiled
from ...codegen.generator import generator_for
from ...codegen.hot_block import hot_block
from ...codegen.program_loops import ProgramLoops
from ...tir.ir import For, ForKind, Func
from ...tir.printer import loop_names
from ..workbench.versions import LabError

MOST_RANGES = 4
"""Ranges of lines that a sentence names."""
UNKNOWN_LOOPS = "This code does not tell which loop a line is of."
_WITHOUT_LINES = {
    ForKind.VECTOR: "its iterations are lanes of vectors",
    ForKind.UNROLL: "its iterations are copies",
    ForKind.THREAD: "its iterations are threads",
}


@dataclass(frozen=True)
class LoopLines:
    """The lines that run in the iterations of a loop, in ranges, and a sentence about them."""

    name: str
    ranges: tuple[range, ...]
    says: str


def where(hot: range | None) -> str:
    """A phrase that says which lines are hot, counted from 1."""
    if hot is None:
        return "no loop of it computes"
    return f"the hot block is lines {hot.start + 1} to {hot.stop}"


class Assembly:
    """The assembly of a program, counted from line 0; `name` is that of the text.

    `hot` are the lines that the kernel spends its time in, as far as the text tells. `loops` are
    the numbers of the innermost loops of the `program` that run the lines, `None` for a line of no
    loop; it is `None` where the code does not tell.
    """

    def __init__(
        self, name: str, text: str, func: Func, loops: Sequence[int | None] | None
    ) -> None:
        self.name, self.text = name, text
        self.lines = tuple(text.rstrip("\n").split("\n"))
        self.program = ProgramLoops(func)
        self.hot = hot_block(text, loops, self.program)
        self.loops = None if loops is None else tuple(loops[: len(self.lines)])
        self._names = loop_names(func)

    @staticmethod
    def of(compiled: Compiled, func: Func) -> Assembly:
        """The assembly of compiled code of `func`. Raises `LabError` where it has none."""
        generator = generator_for(compiled.target)
        if generator.assembly is None:
            raise LabError("code for {0} has no assembly", compiled.target)
        loops = generator.loops_of_lines(compiled, ProgramLoops(func))
        return Assembly(generator.assembly, compiled.source(generator.assembly), func, loops)

    def loop_name(self, number: int) -> str:
        """The name of a loop in the text of the program."""
        var = self.program.loops[number].var
        return self._names.get(var, var.name)

    @property
    def names(self) -> list[str]:
        """The name of the loop that runs each line, empty for one of no loop; none if not told."""
        return ["" if n is None else self.loop_name(n) for n in self.loops or ()]

    @cached_property
    def places(self) -> tuple[LoopLines, ...]:
        """The lines of each loop of the program, with those of the loops in it."""
        if self.loops is None:
            return ()
        return tuple(map(self._place, range(len(self.program.loops))))

    def _place(self, number: int) -> LoopLines:
        name, ranges = self.loop_name(number), tuple(self._ranges(number))
        if ranges:
            return LoopLines(name, ranges, f"The iterations of {name} run lines {_said(ranges)}.")
        outer = (m for m in reversed(self.program.around[number]) if any(self._ranges(m)))
        nearest = next(outer, None)
        see = (
            ""
            if nearest is None
            else f" The next loop around it with lines is {self.loop_name(nearest)}."
        )
        why = _why_none(self.program.loops[number])
        return LoopLines(name, (), f"No lines are those of {name} alone: {why}.{see}")

    def _ranges(self, number: int) -> Iterator[range]:
        """The lines of a loop and of the loops in it."""
        assert self.loops is not None
        around, start = self.program.around, None
        for n, loop in enumerate([*self.loops, None]):
            is_inside = loop is not None and (loop == number or number in around[loop])
            if is_inside and start is None:
                start = n
            elif not is_inside and start is not None:
                yield range(start, n)
                start = None


def _said(ranges: Sequence[range]) -> str:
    """Ranges in words; of many the first ones, and how many more there are."""
    shown = [f"{r.start + 1} to {r.stop}" for r in ranges[:MOST_RANGES]]
    more = len(ranges) - len(shown)
    return " and ".join([*shown, *([count(more, "more range")] if more else [])])


def _why_none(loop: For) -> str:
    if isinstance(loop.extent, int) and loop.extent == 1:
        return "it has one iteration"
    return _WITHOUT_LINES.get(loop.kind, "the compiler has left no loop of it")
