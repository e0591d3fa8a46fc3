"""Check the `code` of an instruction that a user registered against its semantics, by running it.

A program that calls the wrong intrinsic compiles, and its results are wrong; or LLVM ends the
process, and so may the code. The check runs in a fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
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
    error = _error_of(generator, instruction, target, runs)
    if error is not None:
        raise BuildError("{0}", error[0], hint=error[1])


_SECONDS = 60
"""The most that compiling and running an instruction takes."""


@cache
def _error_of(
    generator: CpuGenerator, instruction: Instruction, target: CpuTarget, runs: bool
) -> tuple[str, str | None] | None:
    """The message and the hint of the error in the code of an instruction, if there is one."""

    def check() -> tuple[str, str | None] | None:
        try:
            _check_code(generator, instruction, target, runs)
        except BuildError as error:
            hint = error.hint
            error.hint = None
            return str(error), hint() if callable(hint) else hint
        return None

    ended, error = _in_a_fork(check)
    if not ended:
        return error
    text = f"the instruction {instruction.name} is to be written as {instruction.code}, which "
    return f"{text}ends the process that compiles or runs it ({ended})", _HINT


def _in_a_fork(
    check: Callable[[], tuple[str, str | None] | None],
) -> tuple[str, tuple[str, str | None] | None]:
    """What `check` returns in a fork, or first how that ended: by which signal, with what words."""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as words:
        with warnings.catch_warnings():
            # Of several threads: the child compiles and runs one function, and ends.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()  # noqa: TID251 - one serial function runs in it
        if not child:
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(_SECONDS)  # a lock that another thread held is never free here
                os.dup2(words.fileno(), sys.__stderr__.fileno() if sys.__stderr__ else 2)
                os.write(answer.fileno(), json.dumps(check()).encode())
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        for file in (answer, words):
            file.seek(0)
        if status:
            said = words.read().decode(errors="replace").strip().splitlines()
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no answer"
            return f"{how}: {said[-1]}" if said else how, None
        error = json.loads(answer.read())
        return "", None if error is None else (error[0], error[1])


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
