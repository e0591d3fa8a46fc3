"""Which values may differ between the threads of a launch: where they may wait for each other."""

from __future__ import annotations

from ...tir.ir import WARP, BarrierScope, Expr, Let, Load
from ...tir.visit import walk
from .launches import Launch
from .rewrite import statements


class Varying:
    """The variables of a launch whose values may differ between the threads of a block or a warp.

    They are threads' numbers, and names of values that depend on these or on memory. All threads
    run a loop equally often and are in the same iteration of it, so that its variable is not one.
    """

    def __init__(self, launch: Launch) -> None:
        numbers = {f.var for f in launch.threads if f.extent != 1}
        row = launch.threads[-1:]
        rows_are_warps = all(isinstance(f.extent, int) and f.extent % WARP == 0 for f in row)
        in_warp = numbers & {f.var for f in row} if rows_are_warps else numbers
        self._variables = {BarrierScope.BLOCK: set(numbers), BarrierScope.WARP: set(in_warp)}
        lets = [s for s in statements(launch.code) if type(s) is Let]  # those around others first
        for scope, variables in self._variables.items():
            for s in lets:
                if self(s.value, scope):
                    variables.add(s.var)

    def __call__(self, e: Expr, scope: BarrierScope = BarrierScope.BLOCK) -> bool:
        """Whether threads of one block, or of one warp, may have different values of `e`."""
        variables = self._variables[scope]
        return any(type(n) is Load or n in variables for n in walk(e))
