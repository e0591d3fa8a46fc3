"""The loops of a scheduled program by number: code that says where it is from names them so."""

from __future__ import annotations

from collections.abc import Mapping

from ..tir.ir import For, Func, Stmt, Var
from ..tir.visit import children


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
