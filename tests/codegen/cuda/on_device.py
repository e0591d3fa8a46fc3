"""Schedules of GPUs on the device that is here, and what compute-sanitizer says of them.

    python -m tests.codegen.cuda.on_device
    python -m tests.codegen.cuda.on_device --sanitizer

The first runs each schedule and compares it with the interpreter. The second does so under
compute-sanitizer, and takes away one barrier after the other: the sanitizer has to find a race
where the emulator does.

Exit status 1 where a result is wrong, or the two disagree.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

from tilewright.autotune.measure.numeric_check import arguments_of, check_outputs, tolerance_of
from tilewright.codegen.build import to_module
from tilewright.codegen.calling_convention import signature_of, sized
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cuda.emulate import emulate
from tilewright.codegen.detect import resolve
from tilewright.codegen.generator import Part, generator_for
from tilewright.codegen.lower import lower
from tilewright.runtime.target_runtime import runtime_for
from tilewright.target import Target
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Barrier, Func
from tilewright.tir.visit import walk

from ..machinery import random_arguments
from .test_emulate_schedules import SCHEDULES, without_barrier

SANITIZER = "compute-sanitizer"
FOUND = 77
"""The exit status of what the sanitizer finds something in."""
SECONDS = 600


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.codegen.cuda.on_device", description=__doc__)
    parser.add_argument("--sanitizer", action="store_true")
    parser.add_argument("--only", choices=SCHEDULES)
    parser.add_argument("--without", type=int, metavar="N", help="leave out barrier N")
    options = parser.parse_args(given)
    target = resolve("cuda")
    wrong = 0
    for name in [options.only] if options.only else SCHEDULES:
        if options.sanitizer:
            said = list(disagreements(name, target))
        else:
            said = [text for text in [run(name, options.without, target)] if text is not None]
        print(f"{name}: {'; '.join(said) or 'right'}", flush=True)
        wrong += bool(said)
    return int(wrong > 0)


def lowered(name: str, without: int | None, target: Target) -> Func:
    func = lower(SCHEDULES[name](), target)
    return func if without is None else without_barrier(func, without)


def compiled(name: str, without: int | None, target: Target) -> Compiled:
    """A schedule, or what is left of it without a barrier."""
    generator, func = generator_for(target), lowered(name, without, target)
    signature = signature_of(SCHEDULES[name]())
    code = generator.compile(
        generator.emit([Part(func, signature)], target, strict_fp=False), target
    )
    signature = sized(signature, code.workspaces)
    made = Compiled(signature, target, (), code.text, code.image, code.launches)
    vars(made)["lowered"] = (func,)  # without a barrier it is that of no scheduled program
    return made


def run(name: str, without: int | None, target: Target) -> str | None:
    """What is wrong with its results; nothing is known of those without a barrier."""
    func = SCHEDULES[name]()
    module = to_module(compiled(name, without, target))
    arguments = arguments_of(func, module.signature, 1, runtime_for(target).memory)
    expected = [np.array(a) if isinstance(a, np.ndarray) else a for a in arguments.on_host]
    interpret(func, *expected)
    module(*arguments.values)
    module.synchronize()
    if without is not None:
        return None
    written = [n for n, a in enumerate(module.signature.arguments) if a.written]
    names = [module.signature.arguments[n].name for n in written]
    outputs = [expected[n] for n in written]
    return check_outputs(arguments.outputs, outputs, names, tolerance_of(func), None, 1.0).error


def disagreements(name: str, target: Target) -> Iterator[str]:
    """Where the sanitizer finds a fault and the emulator none, or the other way round."""
    whole = lowered(name, None, target)
    count = sum(type(s) is Barrier for s in walk(whole))
    for tool in ("memcheck", "initcheck", "racecheck", "synccheck"):
        if sanitized(name, None, tool):
            yield f"{tool} finds a fault"
    for n in range(count):
        func = lowered(name, n, target)
        faults = emulate(func, *random_arguments(SCHEDULES[name]())).faults
        if bool(faults) != sanitized(name, n, "racecheck"):
            yield f"without barrier {n}: racecheck and the emulator disagree"


def sanitized(name: str, without: int | None, tool: str) -> bool:
    """Whether a tool of the sanitizer finds something. Raises `RuntimeError` if it does not run."""
    command = [SANITIZER, "--tool", tool, "--error-exitcode", str(FOUND), sys.executable, "-m"]
    command += ["tests.codegen.cuda.on_device", "--only", name]
    command += [] if without is None else ["--without", str(without)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if ended.returncode not in (0, FOUND):
        raise RuntimeError(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")
    return ended.returncode == FOUND


if __name__ == "__main__":
    if "--sanitizer" in sys.argv and shutil.which(SANITIZER) is None:
        sys.exit(f"there is no {SANITIZER} on the PATH: it comes with the CUDA toolkit")
    sys.exit(main())
