"""The default of GPUs: every program is bound to the axes of a device, and means what it did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.rules.draft import Draft
from tilewright.autotune.search.drawing import drawn_of_each
from tilewright.autotune.search.sketch import sketches, written
from tilewright.schedule import Schedule
from tilewright.schedule.find import blocks_in, loops_in, statements
from tilewright.target import CudaTarget
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import ForKind, Func
from tilewright.tir.parser import parse

from .checking import arguments
from .formulas import FORMULAS
from .test_default import CASES

TARGET = CudaTarget.named("sm_90a")


def bound(func: Func) -> Func:
    """A program as its default sketch has it."""
    sketch = written(func, TARGET)
    assert not sketch.variables
    return sketch.trace.with_row(()).apply(func).func


def check(func: Func) -> Func:
    """The bound program, which computes what the program does, and has an axis for each nest."""
    scheduled = bound(func)
    for nest in statements(scheduled.body):
        loops = list(loops_in(nest))
        assert not loops or any(s.kind is ForKind.THREAD for s in loops)
        assert not any(s.kind is ForKind.PARALLEL for s in loops)
    wanted, found = arguments(func, 1), arguments(func, 1)
    interpret(func, *wanted)
    interpret(scheduled, *found, order="shuffled")
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    return scheduled


@pytest.mark.parametrize(("name", "options"), CASES)
def test_operators(name: str, options: dict[str, Any]) -> None:
    check(getattr(ops, name)(**options))


@pytest.mark.parametrize("name", ["rotary_embedding", "squeeze_and_excite", "gravity"])
def test_formulas(name: str) -> None:
    check(FORMULAS[name]())


def extents(func: Func) -> list[list[tuple[str, object]]]:
    """The axes of each launch with their extents."""
    return [
        [(s.thread, s.extent) for s in loops_in(nest) if s.thread is not None]
        for nest in statements(func.body)
    ]


def test_spatial_loops_are_spread_over_threads() -> None:
    func = check(ops.matmul_func(5, 70, 3))
    assert extents(func) == [[("blockIdx.x", 2), ("threadIdx.x", 256)]]
    func = check(ops.matmul_func(5, 7, 3))
    assert extents(func) == [[("blockIdx.x", 1), ("threadIdx.x", 64)]]


PROGRAMS = {
    "scalar": """
@tw.script
def scalar(A: T.Buffer((1,), "float32"), B: T.Buffer((1,), "float32")):
    with T.block("B"):
        B[0] = A[0] + 1.0
""",
    "reduction_outside": """
@tw.script
def outside(A: T.Buffer((5, 40), "float32"), B: T.Buffer((40,), "float32")):
    for k in range(5):
        for i in range(40):
            with T.block("B"):
                vk, vi = T.axis.remap("RS", [k, i])
                with T.init():
                    B[vi] = 0.0
                B[vi] = B[vi] + A[vk, vi]
""",
    "for_processors": """
@tw.script
def processors(A: T.Buffer((6, 16), "float32"), B: T.Buffer((6, 16), "float32")):
    for i in T.parallel(6):
        for j in range(2):
            for k in T.vectorized(8):
                with T.block("B"):
                    vi = T.axis.spatial(6, i)
                    vj = T.axis.spatial(16, j * 8 + k)
                    B[vi, vj] = A[vi, vj] * 2.0
""",
    "scan": """
@tw.script
def scan(A: T.Buffer((3, 8), "float32"), B: T.Buffer((3, 8), "float32")):
    for i in range(8):
        with T.block("first"):
            vi = T.axis.opaque(8, i)
            B[0, vi] = T.select(vi > 0, B[0, T.maximum(vi - 1, 0)], 0.0) + A[0, vi]
    for j in range(2):
        for i in range(8):
            with T.block("rest"):
                vj = T.axis.opaque(2, j)
                vi = T.axis.spatial(8, i)
                B[vj + 1, vi] = B[vj, vi] + A[vj + 1, vi]
""",
    "statements": """
@tw.script
def statements(A: T.Buffer((9,), "float32"), B: T.Buffer((9,), "float32")):
    for i in range(9):
        B[i] = A[i] + 1.0
""",
    "shared_rows": """
@tw.script
def shared_rows(A: T.Buffer((4, 5), "float32"), B: T.Buffer((4, 5), "float32")):
    S = T.alloc((4,), "float32")
    for i in range(4):
        with T.block("S"):
            vi = T.axis.spatial(4, i)
            S[vi] = A[vi, 0]
        for j in range(5):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] - S[vi]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_written_by_hand(name: str) -> None:
    check(parse(PROGRAMS[name]))


def test_loops_of_a_reduction_go_inside() -> None:
    func = check(parse(PROGRAMS["reduction_outside"]))
    assert extents(func) == [[("blockIdx.x", 1), ("threadIdx.x", 64)]]


def test_an_order_is_kept() -> None:
    """By one thread, or by the threads of a block where there are loops for them."""
    func = check(parse(PROGRAMS["scan"]))
    assert extents(func) == [[("blockIdx.x", 1)], [("blockIdx.x", 1), ("threadIdx.x", 32)]]


def test_what_a_rule_has_bound_is_left_as_it_is() -> None:
    func = ops.softmax_func(3, 8)
    sch = Schedule(func, symbolic=True)
    last = list(blocks_in(func.body))[-1]
    sch.bind(sch.get_loops(sch.get_block(last.label))[0], "blockIdx.x")
    draft = Draft(sch, TARGET)
    assert TARGET.kind == "cuda"
    complete = draft.rules.complete
    assert complete is not None
    complete(draft)
    *others, mine = extents(draft.func)
    assert mine == [("blockIdx.x", 3)]
    assert all(("blockIdx.x", 1) in nest for nest in others)


def test_one_loop_runs_in_threads_where_several_together_may_not() -> None:
    """That the fused loops of a block with a changed layout are independent is not known."""
    func = ops.depthwise_conv2d_func(n=1, c=8, h=14, w=14, multiplier=2)
    drawn = drawn_of_each(sketches(func, TARGET), TARGET, 1, 0)
    assert {"default+flat", "default+inlined"} <= {d.sketch for d in drawn}
    for candidate in drawn:
        for nest in statements(candidate.trace.apply(func).func.body):
            extents = [s.extent for s in loops_in(nest) if s.thread == "threadIdx.x"]
            assert extents
            assert all(isinstance(n, int) and n > 1 for n in extents)
