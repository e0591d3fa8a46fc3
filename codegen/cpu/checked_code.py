"""Check the `code` of an instruction that a user registered against its semantics, by running it.

A program that calls the wrong intrinsic compiles, and its results are wrong; or LLVM ends the
process. A child process compiles it first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

from ...base.errors import BuildError
from ...base.process import NO_NUMPY_THREADS
from ...runtime.module import Origin
from ...target import CpuTarget, missing_features
from ...tir.instruction import Instruction
from ...tir.instruction_check import difference_of
from ..calling_convention import signature_of, sized
from ..compiled import Compiled
from ..generator import Part
from ..lower import lower
from .detection import host_target
from .object_file import read_object

if TYPE_CHECKING:
    from .generator import CpuGenerator
    from .llvm import Emitted


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
        emitted = generator.emit(parts, target, strict_fp=False)
        _survive(emitted[0], target)
        compiled = generator.object_file(emitted, target)
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


def _survive(emitted: Emitted, target: CpuTarget) -> None:
    """Raise `BuildError` where compiling ends the process that does it, or does not end."""
    request = {"text": emitted.text, "target": target.to_json()}
    command = [sys.executable, "-P", "-m", f"{__package__}.compile_text"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request),
            env={**os.environ, **NO_NUMPY_THREADS, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError("LLVM has not compiled it after {0} s", _SECONDS) from error
    except OSError as error:
        raise BuildError("no child process to compile it in: {0}", error) from error
    if done.returncode < 0:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise BuildError(
            "LLVM ends the process that compiles it (signal {0}: {1})", -done.returncode, last
        )
    if done.returncode:
        raise BuildError("the child process that compiles it fails: {0}", done.stderr.strip())


_SECONDS = 60.0
"""The most that compiling an instruction takes."""
_HINT = "the code is called with the sums and both factors, in the order of `Product`"
