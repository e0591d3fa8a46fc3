"""Emit products: by the target's instruction if it has one, else as sums of lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ... import dtypes
from ...errors import BuildError, similar
from ...tir.instruction import Instruction, product_of
from ...tir.instruction_set import instruction_for
from ...tir.ir import Dot, Matmul
from .llvm_amx import amx
from .llvm_dot import intrinsic, summed
from .llvm_matmul import by_rows
from .llvm_text import Builder

Emitter: TypeAlias = Callable[[Builder, Dot | Matmul, Instruction], str | None]
"""Returns the operand of a product by an instruction; `None` if its operands lie otherwise."""

EMITTERS: dict[str, Emitter] = {"intrinsic": intrinsic, "amx": amx}
"""By the key in the record of a unit."""


def product(b: Builder, e: Dot | Matmul) -> str:
    """The operand of a dot product or of a product of matrices."""
    found = _by_instruction(b, e)
    if found is not None:
        return found
    return summed(b, e) if isinstance(e, Dot) else by_rows(b, e)


def _by_instruction(b: Builder, e: Dot | Matmul) -> str | None:
    if dtypes.is_float(e.dtype) and not b.module.fast:
        return None  # instructions add up in another order
    turned = (e, Dot(e.acc, e.y, e.x, e.dtype)) if isinstance(e, Dot) else (e,)
    for form in turned:
        what = product_of(form)
        instruction = None if what is None else instruction_for(b.module.target, what)
        if instruction is not None:
            return _emitter(instruction)(b, form, instruction)
    return None


def _emitter(instruction: Instruction) -> Emitter:
    key = instruction.unit.emitter
    emitter = EMITTERS.get(key)
    if emitter is None:
        raise BuildError(
            "instruction {0} is to be written by {1!r}; the emitters of processors are {2}",
            instruction.name, key, ", ".join(EMITTERS),
            hint=similar(key, EMITTERS),
        )  # fmt: skip
    return emitter
