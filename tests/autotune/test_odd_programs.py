"""Programs of unusual form get sketches, whose candidates compute what is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tilewright import Schedule, build, ops, te
from tilewright.autotune.model.profile import profile
from tilewright.autotune.rules import fusion_groups
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import sketches
from tilewright.codegen.detect import resolve
from tilewright.schedule.find import blocks_in
from tilewright.target import CpuTarget
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from ..schedule.machinery import check_compiled

TARGET = replace(CpuTarget.of(resolve("cpu -mcpu=x86-64-v2 -threads=2")), l2_bytes=1024)
"""With a second level of cache that small inputs exceed."""


def tensor(name: str, *shape: int) -> te.Tensor:
    return te.placeholder(shape, "float32", name=name)


def a_factor_for_rows_and_one_for_all() -> Func:
    """A product whose rows have a factor each, which follows a scalar among the parameters."""
    alpha, a, b, r = te.scalar(), tensor("A", 6, 9), tensor("B", 9, 40), tensor("R", 6)
    k = te.reduce_axis(9, name="k")
    y = te.compute((6, 40), lambda i, j: te.sum(a[i, k] * b[k, j] * r[i], axis=k), name="Y")
    z = te.compute((6, 40), lambda i, j: y[i, j] * alpha, name="Z")
    return te.func([alpha, a, b, r, z], name="scaled")


def rows_scaled_by_a_parameter() -> Func:
    """A softmax with a scalar before its input."""
    alpha, x = te.scalar(), tensor("X", 6, 50)
    k = te.reduce_axis(50, name="k")
    m = te.compute((6,), lambda i: te.max(x[i, k] * alpha, axis=k), name="M")
    e = te.compute((6, 50), lambda i, j: te.exp(x[i, j] * alpha - m[i]), name="E")
    s = te.compute((6,), lambda i: te.sum(e[i, k], axis=k), name="S")
    y = te.compute((6, 50), lambda i, j: e[i, j] / s[i], name="Y")
    return te.func([alpha, x, y], name="softmax")


def an_element_for_a_sum() -> Func:
    """A reduction that reads one element, which has no iteration variable."""
    x, w = tensor("X", 1), tensor("W", 5)
    k = te.reduce_axis(5, name="k")
    s = te.compute((), lambda: te.exp(x[0]), name="S")
    y = te.compute((1,), lambda i: te.sum(s[()] * w[k], axis=k), name="Y")
    return te.func([x, w, y], name="element")


def an_element_of_a_window() -> Func:
    """A pipeline of stencils whose last stage is one element, without an iteration variable."""
    x = tensor("X", 6)
    s = te.compute((5,), lambda i: te.sqrt(te.abs(x[i] + x[i + 1])), name="S")
    y = te.compute((), lambda: s[1] + s[3], name="Y")
    return te.func([x, y], name="window")


def sums_that_start_at_what_they_read() -> Func:
    """The initial value of a reduction reads what its steps read."""
    return parse("""
@tw.script
def started(A: T.Buffer((2,), "float32"), P: T.Buffer((4, 2), "float32"),
            Y: T.Buffer((4,), "float32")):
    S = T.alloc((2,), "float32")
    J = T.alloc((2,), "float32")
    for i in range(2):
        with T.block("S"):
            vi = T.axis.spatial(2, i)
            S[vi] = A[1 - vi] + 1.0
    for i in range(2):
        with T.block("J"):
            vi = T.axis.spatial(2, i)
            J[vi] = S[vi] + S[1 - vi]
    for i, k in T.grid(4, 2):
        with T.block("Y"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = J[vi % 2]
            Y[vi] = Y[vi] + J[vk] * P[vi, vk]
""")


def a_transpose_with_a_row_first() -> Func:
    """The first input is contiguous along the rows of the second one, but not transposed."""
    a, b = tensor("A", 24), tensor("B", 40, 24)
    return te.func([a, b, te.compute((24, 40), lambda i, j: a[i] + b[j, i], name="Y")])


def prefetching() -> Func:
    sch = Schedule(ops.add_relu_func(64))
    block = sch.get_block(0)
    sch.prefetch(block, 0, sch.get_loops(block)[-1], offset=16)
    return sch.func


STARTED = """
T_copy = T.alloc((1, 9), "float32")
for k in range(9):
    with T.block("T_copy"):
        vk = T.axis.spatial(9, k)
        T_copy[0, vk] = A[0, vk]
for i in range(9):
    with T.block("C_init"):
        vi = T.axis.spatial(9, i)
        C[0, vi] = T_copy[0, vi]
for i, k in T.grid(9, 40):
    with T.block("C"):
        vi, vk = T.axis.remap("SR", [i, k])
        C[0, vi] = C[0, vi] + B[vi, vk]
"""
ROW = """
for j, k in T.grid(40, 9):
    with T.block("C"):
        vi = T.axis.spatial(1, 0)
        vj, vk = T.axis.remap("SR", [j, k])
        with T.init():
            C[vi, vj] = 0.0
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
TURN = """
for i, j in T.grid(40, 9):
    with T.block("C"):
        vn = T.axis.spatial(1, 0)
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = B[vj, vi] + A[vn, vj]
"""
SUM = """
for k in range(9):
    with T.block("C"):
        vi = T.axis.spatial(1, 0)
        vk = T.axis.reduce(9, k)
        with T.init():
            C[vi, 0] = 0.0
        C[vi, 0] = C[vi, 0] + A[vi, vk]
"""


def written(body: str, shape: tuple[int, int] = (1, 40)) -> Func:
    return parse(
        f"""@tw.script
def odd(
    A: T.Buffer((1, 9), "float32"),
    B: T.Buffer((9, 40), "float32"),
    C: T.Buffer({shape}, "float32"),
):
"""
        + "".join(f"    {line}\n" for line in body.strip().splitlines())
    )


PROGRAMS: dict[str, tuple[Callable[[], Func], list[str]]] = {
    "factor": (a_factor_for_rows_and_one_for_all, ["tiled", "tiled_across_packA_local"]),
    "rows": (rows_scaled_by_a_parameter, ["rows_ahead", "rows"]),
    "element": (an_element_for_a_sum, ["rows+rows"]),
    "window": (an_element_of_a_window, ["rows+rows"]),
    "start": (sums_that_start_at_what_they_read, []),
    "transpose": (a_transpose_with_a_row_first, ["squares", "tiles", "rows"]),
    "started": (lambda: written(STARTED, (1, 9)), ["written", "rows"]),
    "prefetch": (prefetching, ["written", "rows"]),
    "row": (lambda: written(ROW), ["written", "tiled"]),
    "turn": (lambda: written(TURN, (40, 9)), ["written", "squares", "tiles", "rows"]),
    "sum": (lambda: written(SUM), ["written", "rows"]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_candidates_compute_what_is_written(name: str) -> None:
    make, first = PROGRAMS[name]
    func = make()
    created = sketches(func, TARGET)
    assert [s.name for s in created][: len(first)] == first
    rng = np.random.default_rng(0)
    for sketch in created:
        (row,) = Rowspace(sketch).sample(rng, 1)
        check_compiled(func, sketch.trace.with_row(row.tolist()).apply(func).func)


def test_prefetches_are_kept() -> None:
    fusion = fusion_groups(prefetching(), TARGET)
    assert [label.name for label in fusion.kept] == ["A_prefetch"]
    assert [[label.name for label in group.members] for group in fusion.groups] == [["C"]]
    assert len(list(blocks_in(fusion.func.body))) == 2


def test_a_program_of_no_elements_whose_loops_are_fused_is_built() -> None:
    x = tensor("X", 4, 0)
    sch = Schedule(te.func([x, te.compute((4, 0), lambda i, j: x[i, j] * 2.0, name="Y")]))
    sch.fuse(*sch.get_loops(sch.get_block(0)))
    assert profile(sch.func).visits == ()
    y = np.empty((4, 0), np.float32)
    build(sch.func, "cpu")(y, y.copy())


def test_what_never_runs_costs_nothing() -> None:
    x, y = tensor("X", 4, 0), tensor("Y", 64)
    none = te.compute((4, 0), lambda i, j: x[i, j] * 2.0, name="none")
    some = te.compute((64,), lambda i: y[i] * 2.0, name="some")
    visits = profile(te.func([x, y, none, some])).visits
    assert len(visits) == 1
    assert visits[0].extents == (64,)


@pytest.mark.parametrize("step", ["N[0]", "N[vi]", "n"])
def test_steps_that_are_loaded_or_passed_are_not_known(step: str) -> None:
    """Of such an index the estimate knows no more than the size of its dimension."""
    func = parse(f"""
@tw.script
def strided(
    A: T.Buffer((64,), "int32"),
    N: T.Buffer((8,), "int64", value_range=(0, 10)),
    n: T.int64,
    S: T.Buffer((8,), "int32"),
):
    for i in range(8):
        with T.block("S"):
            vi = T.axis.spatial(8, i)
            S[vi] = A[T.minimum(T.maximum(vi * {step}, 0), 63)]
""")
    a, s = np.arange(64, dtype=np.int32), np.zeros(8, np.int32)
    build(func, "cpu -threads=1")(a, np.full(8, 3), 3, s)
    assert s.tolist() == [3 * k for k in range(8)]


SIDE_BY_SIDE = """
@tw.script
def rows(A: T.Buffer((4,), "float32"), B: T.Buffer((4, 8), "float32"),
         C: T.Buffer((4, 8, 16), "float32")):
    for b in range(4):
        with T.block("row"):
            vb = T.axis.opaque(4, b)
            x = A[vb]
            for i in range(8):
                B[vb, i] = x
            for i in range(8):
                if i > vb:
                    for j in range(16):
                        if j < i:
                            C[vb, i, j] = x * 2.0
"""


def test_loops_side_by_side_in_a_block_are_not_inside_of_each_other() -> None:
    """Each is a visit, with the share of its iterations that conditions on these leave."""
    visits = profile(parse(SIDE_BY_SIDE)).visits
    assert [v.extents for v in visits] == [(4,), (4, 8), (4, 8, 16)]
    assert [[a.buffer.name for a in v.accesses] for v in visits] == [["A"], ["B"], ["C"]]
    run = sum(j < i for b in range(4) for i in range(b + 1, 8) for j in range(16))
    assert [v.runs for v in visits] == [1.0, 1.0, run / (4 * 8 * 16)]


def test_conditions_in_a_loop_without_iterations_are_estimated() -> None:
    visits = profile(parse(SIDE_BY_SIDE.replace("range(16)", "range(0)"))).visits
    assert [v.runs for v in visits] == [1.0, 1.0, 1.0]
