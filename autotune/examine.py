"""Examining candidates without measuring: what they compute, what they take, what is predicted.

Where sizes are small, candidates run: in the emulator of their kind of target, else as compiled
code where this machine runs it. Their results are compared with those of the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.errors import TargetError, TilewrightError
from ..codegen.build import compile_func, to_module
from ..codegen.calling_convention import signature_of
from ..codegen.compiled import Compiled
from ..codegen.detect import resolve
from ..codegen.generator import generator_for
from ..runtime.host_memory import HOST_MEMORY
from ..runtime.measure.comparison import check_outputs
from ..schedule import Trace
from ..target import CudaTarget, Target
from ..target.cuda import WARP
from ..target.occupancy import blocks_per_sm, occupancy
from ..tir.interpreter import interpret
from ..tir.ir import Block, Func
from ..tir.verify import verify
from ..tir.visit import walk
from .measure.numeric_check import arguments_of, tolerance_of
from .search.drawing import Drawn, drawn_of_each
from .search.sketch import sketches

SMALL = 1 << 20
"""Iterations of all blocks up to which candidates run: the interpreter takes about 2 s."""


@dataclass(frozen=True)
class Examined:
    """A candidate: how it `ran` ("emulated", "compiled" or "no"), and its `problems`, in words.

    Problems make it wrong. `remarks` say what its schedule should do better, such as a spill: it is
    slow, and right nevertheless. `failure` says why it could not be examined, which is often the
    machine's: nothing is known of its results then.

    `resources` are numbers by name for each kernel, `None` where its kind of target reports none;
    `occupancy` is the least share of a GPU's warps that its kernels keep busy.
    """

    drawn: Drawn
    ran: str
    problems: tuple[str, ...]
    resources: Mapping[str, Mapping[str, int]] | None = None
    occupancy: float | None = None
    remarks: tuple[str, ...] = ()
    failure: str | None = None

    @property
    def verdict(self) -> str:
        """`wrong`, `not checked` (it did not run, or not compile), `slow` or `right`."""
        if self.problems:
            return "wrong"
        if self.failure is not None or self.ran == "no":
            return "not checked"
        return "slow" if self.remarks else "right"

    def most(self, name: str) -> int | None:
        """The largest number of that name among its kernels; `None` where none is reported."""
        found = [taken[name] for taken in (self.resources or {}).values() if name in taken]
        return max(found, default=None)

    @property
    def spills(self) -> int | None:
        """Bytes of a thread that are stored to memory for want of registers."""
        stored, loaded = (self.most(f"spill_{name}_bytes") for name in ("store", "load"))
        return None if stored is None or loaded is None else stored + loaded


def is_small(func: Func) -> bool:
    """Whether candidates of a concrete program run when they are examined."""
    blocks = [n for n in walk(func) if type(n) is Block]
    extents = [[i.extent for i in block.iters] for block in blocks]
    return sum(math.prod(n for n in e if isinstance(n, int)) for e in extents) <= SMALL


def examine(
    func: Func, target: Target | str, *, candidates: int = 2, seed: int = 0
) -> Iterator[Examined]:
    """Examine candidates of each sketch of a program, at most so many.

    Raises `TargetError`, `VerifyError` for a program that breaks a rule, `ScheduleError` where no
    rule makes a schedule, and `BuildError` where there is no compiler. What is wrong with a
    candidate is among its problems; why one could not be examined is its failure.
    """
    verify(func)
    resolved = resolve(target)
    generator_for(resolved).tools()
    examiner = _Examiner(func, resolved, seed)
    for drawn in drawn_of_each(sketches(func, resolved), resolved, candidates, seed):
        yield examiner.examined(drawn)


class _Examiner:
    """A program with its arguments and, if it is small, its results."""

    def __init__(self, func: Func, target: Target, seed: int) -> None:
        self._func, self._target = func, target
        self._generator = generator_for(target)
        self._signature = signature_of(func)
        self._small = is_small(func)
        if self._small:
            self._arguments = arguments_of(func, self._signature, seed, HOST_MEMORY)
            interpret(func, *self._arguments.on_host)
            self._expected = [np.array(a) for a in self._arguments.outputs]

    def examined(self, drawn: Drawn) -> Examined:
        try:
            scheduled = _applied(drawn.trace, self._func)
            compiled = compile_func(scheduled, self._target)
            ran, problems = self._run(scheduled, compiled)
        except TilewrightError as error:
            return Examined(drawn, "no", (), failure=str(error))
        resources = self._generator.resources(compiled)
        occupancy = self._occupancy(resources)
        found = Examined(drawn, ran, problems, resources, occupancy, compiled.remarks)
        if found.spills:
            spilled = f"a spill of {found.spills} bytes a thread"
            return replace(found, remarks=(*found.remarks, spilled))
        return found

    def _run(self, scheduled: Func, compiled: Compiled) -> tuple[str, tuple[str, ...]]:
        """How it ran, and what is wrong."""
        if not self._small:
            return "no", ()
        arguments = self._arguments
        arguments.reset()
        faults = self._generator.emulate(scheduled, self._target, arguments.on_host)
        ran = "emulated"
        if faults is None:
            try:
                self._generator.check_runnable(self._target)
            except TargetError:
                return "no", ()
            ran, faults = "compiled", ()
            module = to_module(compiled, trust_indices=True)
            module(*(
                value if a.packing is None else module.pack(a.name, value)
                for a, value in zip(module.signature.arguments, arguments.values, strict=True)
            ))  # fmt: skip
        names = [a.name for a in self._signature.arguments if a.written]
        check = check_outputs(
            arguments.outputs, self._expected, names, tolerance_of(self._func), None,
            1.0,
        )  # fmt: skip
        stray = arguments.stray_write()
        wrong = [] if check.passed else [f"wrong values: {check.error}"]
        beside = [] if stray is None else [f"it wrote beside argument {stray}"]
        return ran, (*faults, *wrong, *beside)

    def _occupancy(self, resources: Mapping[str, Mapping[str, int]] | None) -> float | None:
        if not isinstance(self._target, CudaTarget) or not resources:
            return None
        limits, found = self._target.limits, list[float]()
        for taken in resources.values():
            threads, registers, shared = (
                np.array([float(taken.get(name, 0))])
                for name in ("threads", "registers", "shared_bytes")
            )
            blocks = float(blocks_per_sm(limits, threads, registers, shared)[0])
            found.append(occupancy(blocks, int(threads[0]), limits.sm_warps * WARP))
        return min(found)


def _applied(trace: Trace, func: Func) -> Func:
    return trace.apply(func).func


def as_json(examined: Examined) -> dict[str, Any]:
    """All of it as JSON data."""
    return {
        "sketch": examined.drawn.sketch,
        "schedule": examined.drawn.schedule.id,
        "ran": examined.ran,
        "result": examined.verdict,
        "failure": examined.failure,
        "problems": list(examined.problems),
        "remarks": list(examined.remarks),
        "resources": examined.resources,
        "occupancy": examined.occupancy,
        "predicted": examined.drawn.predicted,
    }
