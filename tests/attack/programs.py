"""Random programs, built in four ways for three targets, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import Func, Module
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import sketches
from tilewright.autotune.search.unmeasured import default_trace, model_trace
from tilewright.base import dtypes
from tilewright.base.errors import TargetError, TilewrightError
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.detect import check_runnable, resolve
from tilewright.target import CpuTarget, Target
from tilewright.tir.ir import For, ForKind
from tilewright.tir.verify import verify
from tilewright.tir.visit import walk

from ..guard_pages import Guarded, guarded
from .attempt import Attack, Attempt, Broken
from .bounded import mismatch
from .facts import random_schedule
from .formulas import Source
from .random_formulas import Program, random_program
from .scans import random_scan

MOST_STEPS = 12


@cache
def targets() -> tuple[CpuTarget, ...]:
    """This machine, and the lesser generations that it can stand for."""
    found = []
    for name in ("cpu", "cpu -mcpu=x86-64-v3", "cpu -mcpu=x86-64-v2"):
        try:
            target = CpuTarget.of(resolve(name))
            check_runnable(target)
        except TargetError:
            continue
        found.append(target)
    return tuple(found)


def prepare(folder: Path) -> Attack:
    return attack


def attack(attempt: Attempt) -> str:
    program = random_scan(attempt) if attempt.chance(0.08) else random_program(attempt)
    attempt.note(f"{program.func!r:.1900}")
    verify(program.func)
    offset = attempt.pick(3)
    for k, (how, schedule) in enumerate(WAYS.items()):
        target = targets()[(k + offset) % len(targets())].with_threads(attempt.choice((1, 2)))
        attempt.note(f"{how} for {target}")
        try:
            func = schedule(program.func, target, attempt)
            if not runs_on_processors(func):
                continue
            module = to_module(compile_func(func, target))
        except TilewrightError as error:
            raise Broken(f"{how} for {target}: {type(error).__name__}: {error}") from error
        compare(module, program, attempt, f"{how} for {target}")
    return "right"


def compare(module: Module, program: Program, attempt: Attempt, how: str) -> None:
    """Call a module with arguments in guarded memory, twice: the second call finds old results."""
    memory: list[Guarded] = []
    arguments: list[Any] = []
    outputs: list[Guarded] = []
    for value in program.inputs:
        if isinstance(value, Source):
            assert value.data is not None
            memory.append(guarded(value.data, value.strides, at_end=attempt.chance(0.5)))
            arguments.append(memory[-1].array)
        else:
            arguments.append(value)
    for want in program.outputs:
        empty = np.full(want.value.shape, 77).astype(dtypes.to_numpy(want.dtype))
        outputs.append(guarded(empty, at_end=attempt.chance(0.5)))
    for _ in range(2):
        module(*arguments, *(o.array for o in outputs))
        for k, (found, want) in enumerate(zip(outputs, program.outputs, strict=True)):
            found.check(f"output {k}")
            wrong = mismatch(found.array, want)
            if wrong is not None:
                raise Broken(f"{how}: output {k}: {wrong}")
    for k, m in enumerate(memory):
        m.check(f"input {k}")


def runs_on_processors(func: Func) -> bool:
    """Not of threads of GPUs, nor of registers, which take constant indices."""
    threads = any(type(n) is For and n.kind is ForKind.THREAD for n in walk(func))
    return not threads and all(b.scope != "register" for b in func.allocs)


def _by_chance(func: Func, target: Target, attempt: Attempt) -> Func:
    return random_schedule(func, attempt.pick, MOST_STEPS).func


def _drawn(func: Func, target: Target, attempt: Attempt) -> Func:
    """A candidate of the search, of any of its sketches and whatever the model thinks of it."""
    sketch = attempt.choice(sketches(func, target))
    (row,) = Rowspace(sketch).sample(attempt.rng, 1)
    return sketch.trace.with_row([int(v) for v in row]).apply(func).func


WAYS: dict[str, Callable[[Func, Target, Attempt], Func]] = {
    "default": lambda func, target, _: default_trace(func, target).apply(func).func,
    "model": lambda func, target, _: model_trace(func, target).apply(func).func,
    "drawn": _drawn,
    "random": _by_chance,
}
