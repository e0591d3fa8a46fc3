"""Programs keep the structure of the IR after each lowering pass, and loops their origin.

What a pass breaks often shows passes later, or in the code generator, or never: `keep_structure`
names the pass.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.base.errors import VerifyError
from tilewright.codegen.cpu.generator import CpuGenerator
from tilewright.codegen.generator import Pass
from tilewright.codegen.passes.rewrite import origin
from tilewright.target import CpuTarget
from tilewright.tir.ir import For, Func, Var
from tilewright.tir.visit import walk
from tilewright.tir.wellformed import check_structure


def keep_structure(patch: pytest.MonkeyPatch) -> None:
    """Until `patch` is undone, a pass of processors that breaks a program's structure raises an
    `AssertionError` with the name of the pass, in this process."""
    listed = CpuGenerator.passes

    def passes(generator: CpuGenerator, target: CpuTarget) -> tuple[Pass, ...]:
        return tuple(map(checked, listed(generator, target)))

    patch.setattr(CpuGenerator, "passes", passes)


def checked(step: Pass) -> Pass:
    """`step`, and a look at the structure of what it returns for a well-formed program.

    Its loops are those of the program, or parts of them; only instructions bring others.
    """

    def run(func: Func) -> Func:
        new = step.run(func)
        fault = None if new is func else fault_of(new)
        if fault is not None and fault_of(func) is None:
            raise AssertionError(f"after the pass {step.name}: {fault}\n{new}") from fault
        strange = set() if new is func else origins(new) - origins(func)
        if strange and step.name != "instructions":
            names = ", ".join(sorted(var.name for var in strange))
            raise AssertionError(f"after the pass {step.name}: loops {names} of no loop\n{new}")
        return new

    return replace(step, run=run)


def origins(func: Func) -> set[Var]:
    """The variables of the scheduled loops that the loops of a program are parts of."""
    return {origin(n.var) for n in walk(func) if type(n) is For}


def fault_of(func: Func) -> VerifyError | None:
    """The first rule of the structure of programs that `func` breaks."""
    try:
        check_structure(func, lowering=True)
    except VerifyError as error:
        return error
    return None
