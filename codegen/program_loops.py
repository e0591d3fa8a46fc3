"""The loops of a scheduled program by number: code that says where it is from names them so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from ..tir.ir import For, ForKind, Func, Stmt, Var
from ..tir.visit import children

_THREADS = (ForKind.PARALLEL, ForKind.THREAD)


class ProgramLoops:
    """The loops of a program, each before those in it; the place of one is its number.

    `around` has the numbers of the loops around each, the outermost first. Equal programs have
    equal numbers, so those in code that was kept are those of the program that is asked for.
    """

    def __init__(self, func: Func) -> None:
        self.func = func
        self.loops: list[For] = []
        self.around: list[tuple[int, ...]] = []
        pending: list[tuple[Stmt, tuple[int, ...]]] = [(func.body, ())]
        while pending:
            s, outer = pending.pop()
            if isinstance(s, For):
                outer = (*outer, len(self.loops))
                self.loops.append(s)
                self.around.append(outer[:-1])
            below = [child for child in children(s) if isinstance(child, Stmt)]
            pending.extend((child, outer) for child in reversed(below))

    @property
    def numbers(self) -> Mapping[Var, int]:
        """The number of each loop, by its variable."""
        return {loop.var: number for number, loop in enumerate(self.loops)}

    def iterations(self, with_code: Iterable[int]) -> dict[int, int]:
        """How often the code of each loop that has any runs.

        Loops around it without code are its lanes and copies, and do not count, except those whose
        iterations are threads.
        """
        kept = set(with_code)
        counted = kept | {n for n, loop in enumerate(self.loops) if loop.kind in _THREADS}
        return {n: prod(map(self._extent, counted & {n, *self.around[n]})) for n in kept}

    def _extent(self, number: int) -> int:
        extent = self.loops[number].extent
        assert isinstance(extent, int), "what is compiled has concrete sizes"
        return extent
