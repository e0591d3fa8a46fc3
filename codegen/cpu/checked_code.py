"""Check the `code` of an instruction that a user registered against its semantics, by running it.

A program that calls the wrong intrinsic compiles, and its results are wrong.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ...errors import BuildError
from ...runtime.module import Origin
from ...target import CpuTarget, missing_features
from ...tir.instruction import Instruction
from ...tir.instruction_check import difference_of
from ..calling_convention import signature_of, sized
from ..compiled import Compiled
from ..generator import Part
from ..lower import lower
from .detection import host_target
from .elf import read_object

if TYPE_CHECKING:
    from .generator import CpuGenerator


def check_code(generator: CpuGenerator, instruction: Instruction, target: CpuTarget) -> None:
    """Raise `BuildError` unless the code of an instruction is an intrinsic of LLVM and, where this
    machine executes code for `target`, computes the semantics on random and extreme numbers."""
    host = host_target()
    runs = target.arch == host.arch and not missing_features(target, host)
    _check_code(generator, instruction, target, runs)


@cache
def _check_code(
    generator: CpuGenerator, instruction: Instruction, target: CpuTarget, runs: bool
) -> None:
    name, code = instruction.name, instruction.code
    func = instruction.implementation
    signature = signature_of(func, "instruction")
    parts = [Part(lower(func, target), signature)]
    try:
        compiled = generator.object_file(generator.emit(parts, target, strict_fp=False), target)
    except BuildError as error:
        raise BuildError(
            "the instruction {0} is to be written as {1}: {2}", name, code, error, hint=_HINT
        ) from error
    if code in read_object(compiled.image).undefined:
        raise BuildError(
            "the instruction {0} is to be written as {1}, which is no intrinsic of LLVM",
            name, code,
            hint="`code` is the name in LLVM's source, llvm.x86.avx512.vpdpbusd.512 for instance",
        )  # fmt: skip
    if not runs:
        return
    signature = sized(signature, compiled.workspaces)
    image = Compiled(signature, target, (), compiled.text, compiled.image, compiled.launches)
    module = generator.load(image, Origin("schedule"), trust_indices=False)
    difference = difference_of(instruction, module)
    if difference is not None:
        raise BuildError(
            "the instruction {0}: {1} does not compute its semantics: {2}", name, code, difference,
            hint=_HINT,
        )  # fmt: skip


_HINT = "the code is called with the sums and both factors, in the order of `Product`"
