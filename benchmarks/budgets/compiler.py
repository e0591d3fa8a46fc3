"""The compiler: replaying, verifying, refusing, lowering, machine code."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import tilewright as tw
from tilewright import ops
from tilewright.autotune.search.unmeasured import default_trace
from tilewright.base.errors import ScheduleError
from tilewright.codegen.calling_convention import signature_of
from tilewright.codegen.cpu import llvm
from tilewright.codegen.detect import resolve
from tilewright.codegen.lower import lower
from tilewright.schedule import Trace, require
from tilewright.schedule.render import explain
from tilewright.target import CpuTarget
from tilewright.tir.ir import Func, Store, Var
from tilewright.tir.verify import verify
from tilewright.tir.visit import walk

from .line import Line, Settings, median


@cache
def subject(size: int) -> tuple[Func, CpuTarget, Trace]:
    """The program, this machine, and the default schedule."""
    func, target = ops.matmul_func(size, size, size), CpuTarget.of(resolve("cpu"))
    return func, target, default_trace(func, target)


STEPS = 25
"""Of a trace of a matmul: what the budget for its replay is about."""


def replay(settings: Settings) -> Iterator[Line]:
    func, _, trace = subject(settings.size)
    seconds = median(lambda: trace.apply(func), settings.repeats)
    share = STEPS / len(trace)
    yield Line(f"replay {STEPS} steps, of {len(trace)}", 5, share * seconds * 1e3, "ms", "Python")


def verifying(settings: Settings) -> Iterator[Line]:
    """Programs of two hundred nodes, about, and one that takes questions about integers."""
    func, target, trace = subject(settings.size)
    softmax = ops.softmax_func(settings.size, settings.size)
    programs = {
        "layer_norm": ops.layer_norm_func(settings.size, settings.size),
        "softmax, scheduled": default_trace(softmax, target).apply(softmax).func,
        "matmul, scheduled": trace.apply(func).func,
        "matmul, double-buffered": double_buffered(settings.size),
    }
    for name, program in programs.items():
        nodes = sum(1 for _ in walk(program.body))
        seconds = median(partial(verify, program), settings.repeats)
        yield Line(f"verify {name} ({nodes} nodes)", 20, seconds * 1e3, "ms", "Python")


def double_buffered(size: int) -> Func:
    sch = tw.Schedule(ops.matmul_func(size, size, size))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(loop, factors=[None, 16]) for loop in (i, j, k))
    sch.reorder(i0, j0, k0, i1, j1, k1)
    for operand in range(2):
        copy = sch.cache_read(block, operand, "local")
        sch.compute_at(copy, k0)
        sch.double_buffer(copy, k0)
    return sch.func


def refusing(settings: Settings) -> Iterator[Line]:
    """A condition that does not hold beside one that does, in a schedule of many steps."""
    func, _, trace = subject(settings.size)
    schedule = trace.apply(func)
    loop, times = Var("i"), 1000
    steps, history = list(schedule.trace.steps), [(func,)] * (len(trace) + 1)

    def demand(holds: bool) -> None:
        for _ in range(times):
            try:
                require(
                    holds, "factor {0} does not divide extent {1}", 3, 16,
                    at=loop, hint=lambda: "2, 4", found=3, alternatives=lambda: [2, 4],
                )  # fmt: skip
            except ScheduleError as error:
                explain(error, steps[-1], tuple(history), 0, tuple(steps), ())

    refused, met = (median(partial(demand, h), settings.repeats) for h in (False, True))
    yield Line("refuse a step, beyond the check", 5, (refused - met) / times * 1e6, "us", "Python")


STORES = 195
"""Of a matmul with a tile of 8 x 48, lowered: what the budget for that is about.

A tile that divides neither side is copied for each of its edges, and has twice as many.
"""


def lowering(settings: Settings) -> Iterator[Line]:
    func, target, trace = subject(settings.size)
    scheduled = trace.apply(func).func
    seconds = median(lambda: lower(scheduled, target), settings.repeats)
    stores = sum(type(n) is Store for n in walk(lower(scheduled, target)))
    share = STORES / stores
    yield Line(f"lower {STORES} stores, of {stores}", 15, share * seconds * 1e3, "ms", "Python")


def machine_code(settings: Settings) -> Iterator[Line]:
    func, target, trace = subject(settings.size)
    lowered = lower(trace.apply(func).func, target)
    signature = signature_of(func)

    def emit() -> str:
        return llvm.emit(lowered, signature, target)[0]

    text = emit()
    seconds = median(emit, settings.repeats)
    yield Line(f"write LLVM IR ({text.count(chr(10))} lines)", None, seconds * 1e3, "ms")
    seconds = median(
        lambda: llvm.object_code(llvm.optimise(text, target), target), settings.repeats
    )
    yield Line("LLVM: optimise and emit it", 60, seconds * 1e3, "ms", "C")
