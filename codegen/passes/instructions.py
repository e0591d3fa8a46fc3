"""Replace tensorized tiles by the implementation of their instruction."""

from __future__ import annotations

from ...base.errors import BuildError
from ...tir.instruction import KEY
from ...tir.instruction_match import Mismatch, match, written
from ...tir.instruction_set import find_instruction
from ...tir.ir import For, Func, Stmt
from ...tir.polynomial import Ranges
from ...tir.visit import with_func_body
from .rewrite import map_stmts, simplifier_of


def instructions(func: Func) -> Func:
    """Replace loops that are marked as an instruction by its implementation.

    for j in 16: for k in 4: C[j] += A[k] * B[j * 4 + k]   ->   C[ramp(0, 1, 16)] = dot(..)

    Raises `BuildError` if the instruction is unknown, or does not compute what the loops compute.
    """
    ranges = simplifier_of(func).ranges

    def visit(s: Stmt) -> Stmt:
        if type(s) is For and s.annotations:
            name = dict(s.annotations).get(KEY)
            if name is not None:
                return _instruction(s, str(name), ranges)
        return map_stmts(s, visit)

    return with_func_body(func, visit(func.body))


def _instruction(loop: For, name: str, ranges: Ranges) -> Stmt:
    instruction = find_instruction(name)
    if instruction is None:
        raise BuildError(
            "the program uses the instruction {0!r}, which is not known", name,
            hint="register it before building",
        )  # fmt: skip
    operands = match(loop, instruction, ranges)
    if isinstance(operands, Mismatch):
        raise BuildError(
            "the loops marked as the instruction {0} compute something else:\n{1}", name, loop,
            hint="use tensorize, which checks this",
        )  # fmt: skip
    return written(instruction, operands)
