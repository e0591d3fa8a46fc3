"""parallel, vectorize, unroll, serial and bind: which loops may run how."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.codegen.build import compile_func
from tilewright.schedule import Schedule
from tilewright.schedule.distinct import gapless
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Range, Var
from tilewright.tir.parser import parse

from ..refusals import refused
from .conftest import Golden
from .machinery import check_meaning
from .programs import chain, elementwise, loops, matmul, matmul_relu, rowsum, stencil


def test_parallel(golden: Golden) -> None:
    golden("parallel/outer", matmul(), lambda sch: sch.parallel(loops(sch, "C")[0]))


def test_parallel_with_a_buffer_per_iteration(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        c, d = sch.get_block("C"), sch.get_block("D")
        i, _ = sch.get_loops(d)
        i0, _ = sch.split(i, factors=[None, 3])
        sch.compute_at(c, i0)
        sch.parallel(i0)

    golden("parallel/producer_inside", matmul_relu(4, 6, 3), script)


def test_parallel_with_overlapping_private_regions() -> None:
    sch = Schedule(stencil())
    b, c = sch.get_block("B"), sch.get_block("C")
    i0, _ = sch.split(sch.get_loops(c)[0], factors=[None, 4])
    sch.compute_at(b, i0)
    sch.parallel(i0)
    check_meaning(sch.original, sch.func)


def test_vectorize(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        _, inner = sch.split(loops(sch, "B")[1], factors=[None, 8])
        sch.vectorize(inner)

    golden("vectorize/tail", elementwise(), script)


def test_vectorize_around_an_unrolled_loop(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, j = loops(sch, "B")
        sch.reorder(j, i)
        sch.unroll(i)
        sch.vectorize(j)

    golden("vectorize/unrolled_inside", elementwise(2, 8), script)


def test_unroll(golden: Golden) -> None:
    golden("unroll/inner", matmul(), lambda sch: sch.unroll(loops(sch, "C")[2]))


KINDS = """
@tw.script
def kinds(A: T.Buffer((4, 6, 8), "int32"), B: T.Buffer((4, 6, 8), "int32")):
    for i in T.parallel(4):
        for j in T.unrolled(6):
            for k in T.vectorized(8):
                with T.block("B"):
                    vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                    B[vi, vj, vk] = A[vi, vj, vk] + 1
"""


def test_serial_again(golden: Golden) -> None:
    """The loops of a program that came with kinds are free for others."""

    def script(sch: Schedule) -> None:
        i, j, k = loops(sch, "B")
        for loop in (i, j, k):
            sch.serial(loop)
        sch.reorder(k, i, j)
        sch.parallel(k)

    golden("serial/kinds", parse(KINDS), script)


def test_serial_undoes_the_other_kinds() -> None:
    for kind in ("parallel", "vectorize", "unroll"):
        sch = Schedule(elementwise(4, 8))
        loop = loops(sch, "B")[1]
        sch.annotate(loop, "note", 1)
        before = sch.func
        getattr(sch, kind)(loop)
        sch.serial(loop)
        assert structural_equal(sch.func, before)


def test_a_serial_loop_is_serial_already() -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError):
        sch.serial(loops(sch, "B")[1])


def test_threads_do_not_run_one_after_the_other() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    sch.bind(i, "threadIdx.x")
    with pytest.raises(ScheduleError):
        sch.serial(i)


def test_no_serial_loop_inside_a_vector() -> None:
    sch = Schedule(parse(KINDS))
    _, j, k = loops(sch, "B")
    sch.serial(k)
    sch.reorder(k, j)
    sch.vectorize(k)
    with pytest.raises(ScheduleError):
        sch.serial(j)


@pytest.mark.parametrize("kind", ["unroll", "vectorize"])
def test_registers_keep_their_constant_indices(kind: str) -> None:
    sch = Schedule(chain())
    b = sch.get_block("B")
    sch.set_scope(b, 0, "register")
    (i,) = loops(sch, "C")
    getattr(sch, kind)(i)
    with pytest.raises(ScheduleError):
        sch.serial(i)
    sch.set_scope(b, 0, "local")
    sch.serial(i)


def test_what_does_not_index_registers_may_be_serial() -> None:
    """A loop of one iteration does not, nor do those around tiles that iterations have each."""
    sch = Schedule(chain())
    b, c = sch.get_block("B"), sch.get_block("C")
    sch.set_scope(b, 0, "register")
    outer, inner, one = sch.split(sch.get_loops(c)[0], factors=[None, 4, 1])
    sch.compute_at(b, outer)
    for loop in (*sch.get_loops(b)[1:], inner, one):
        sch.unroll(loop)
    sch.parallel(outer)
    for loop in (outer, one):
        sch.serial(loop)
    check_meaning(sch.original, sch.func)
    compile_func(sch.func, "cpu -threads=1")


def test_bind(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i0, j0, i1, j1 = sch.tile(sch.get_block("C"), (4, 6))
        sch.bind(i0, "blockIdx.y")
        sch.bind(j0, "blockIdx.x")
        sch.bind(i1, "threadIdx.y")
        sch.bind(j1, "threadIdx.x")

    golden("bind/tile", matmul(), script)


@pytest.mark.parametrize("kind", ["parallel", "vectorize", "bind"])
def test_a_reduction_loop_cannot_run_at_once(kind: str) -> None:
    sch = Schedule(rowsum())
    _, r = loops(sch, "S")
    args = ("threadIdx.x",) if kind == "bind" else ()
    with pytest.raises(ScheduleError) as refusal:
        getattr(sch, kind)(r, *args)
    assert (refusal.value.place, refusal.value.found) == (r, "reduce")


def test_a_fused_loop_with_a_part_of_the_reduction_cannot_run_at_once() -> None:
    sch = Schedule(rowsum())
    fused = sch.fuse(*loops(sch, "S"))
    with pytest.raises(ScheduleError) as refusal:
        sch.parallel(fused)
    assert refusal.value.found == "reduce"


SCAN = """
@tw.script
def scan(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in T.serial(8):
        with T.block("scan"):
            vi = T.axis.opaque(8, i)
            B[vi] = T.select(vi > 0, B[vi - 1], 0) + A[vi]
"""


def test_an_opaque_loop_cannot_run_at_once() -> None:
    sch = Schedule(parse(SCAN))
    with pytest.raises(ScheduleError) as refusal:
        sch.parallel(loops(sch, "scan")[0])
    assert refusal.value.found == "opaque"


NEIGHBOURS = """
@tw.script
def neighbours(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    B = T.alloc((9,), "int32")
    for i in T.serial(8):
        with T.block("first"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
        with T.block("second"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.select(vi > 0, B[vi - 1], 0)
"""


def test_a_value_from_the_iteration_before_is_a_dependence() -> None:
    sch = Schedule(parse(NEIGHBOURS))
    with pytest.raises(ScheduleError):
        sch.parallel(loops(sch, "first")[0])


def test_a_running_sum_read_by_another_block_is_a_dependence() -> None:
    sch = Schedule(matmul_relu(4, 6, 3))
    c, d = sch.get_block("C"), sch.get_block("D")
    i, _ = sch.get_loops(c)[:2]
    sch.reverse_compute_at(d, i)
    sch.parallel(i)
    check_meaning(sch.original, sch.func)


def test_a_private_buffer_is_not_for_vectors() -> None:
    sch = Schedule(stencil())
    b, c = sch.get_block("B"), sch.get_block("C")
    (i,) = sch.get_loops(c)
    sch.compute_at(b, i)
    for loop in sch.get_loops(b)[1:]:
        sch.unroll(loop)
    with pytest.raises(ScheduleError):
        sch.vectorize(i)


@pytest.mark.parametrize("first", ["parallel", "vectorize", "unroll"])
def test_a_loop_has_one_kind(first: str) -> None:
    sch = Schedule(elementwise(1, 8))
    _, j = loops(sch, "B")
    getattr(sch, first)(j)
    for second in ("parallel", "vectorize", "unroll"):
        with pytest.raises(ScheduleError) as refusal:
            getattr(sch, second)(j)
        assert (refusal.value.hint is None) is (first == second)


def test_parallel_loops_do_not_nest() -> None:
    for outer_first in (True, False):
        sch = Schedule(elementwise())
        i, j = loops(sch, "B")
        a, b = (i, j) if outer_first else (j, i)
        sch.parallel(a)
        with pytest.raises(ScheduleError):
            sch.parallel(b)


def test_only_unrolled_loops_inside_a_vector() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError) as refusal:
        sch.vectorize(i)
    assert "# <-- here" in str(refusal.value)


def test_vectors_are_bounded() -> None:
    sch = Schedule(elementwise(1, 1025))
    with pytest.raises(ScheduleError):
        sch.vectorize(loops(sch, "B")[1])


def test_unrolling_is_bounded() -> None:
    sch = Schedule(elementwise(64, 65))
    i, j = loops(sch, "B")
    sch.unroll(j)
    with pytest.raises(ScheduleError):
        sch.unroll(i)
    sch = Schedule(elementwise(64, 65))
    i, j = loops(sch, "B")
    sch.unroll(i)
    with pytest.raises(ScheduleError):
        sch.unroll(j)


def test_unrolling_of_a_billion_is_refused() -> None:
    sch = Schedule(elementwise(10**9, 1))
    with pytest.raises(ScheduleError):
        sch.unroll(loops(sch, "B")[0])


def test_an_unknown_axis_is_refused() -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError):
        sch.bind(loops(sch, "B")[0], "threadIdx.w")


def test_an_axis_is_bound_once_on_a_path() -> None:
    for k in (0, 1):
        sch = Schedule(elementwise())
        both = loops(sch, "B")
        sch.bind(both[k], "threadIdx.x")
        with refused(ScheduleError, "threadIdx.x"):
            sch.bind(both[1 - k], "threadIdx.x")


def test_a_copy_inside_of_thread_loops_has_no_axis_of_its_own() -> None:
    sch = Schedule(matmul(32, 32, 32))
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    _, t0 = sch.split(i, factors=[None, 8])
    _, t1 = sch.split(j, factors=[None, 8])
    k0, k1 = sch.split(k, factors=[None, 8])
    sch.reorder(t0, t1, k0, k1)
    copy = sch.cache_read(c, 0, "shared")
    sch.compute_at(copy, k0)
    sch.bind(t1, "threadIdx.x")
    with pytest.raises(ScheduleError) as error:
        sch.bind(sch.get_loops(copy)[-1], "threadIdx.x")
    assert error.value.place is sch.get_loops(copy)[-1]


def test_extents_of_an_axis_agree_within_a_kernel() -> None:
    sch = Schedule(matmul_relu(4, 6, 3))
    c, d = sch.get_block("C"), sch.get_block("D")
    i, j = sch.get_loops(d)
    sch.compute_at(c, i)
    sch.bind(j, "threadIdx.x")
    c_loops = sch.get_loops(c)
    outer, _ = sch.split(c_loops[1], factors=[None, 2])
    with pytest.raises(ScheduleError):
        sch.bind(outer, "threadIdx.x")


def test_kernels_of_their_own_have_their_own_extents() -> None:
    sch = Schedule(chain())
    (i,), (j,) = loops(sch, "B"), loops(sch, "C")
    outer, _ = sch.split(j, factors=[None, 4])
    sch.bind(i, "threadIdx.x")
    sch.bind(outer, "threadIdx.x")


FIRST_ONLY = """
@tw.script
def first_only(A: T.Buffer((4,), "int32"), C: T.Buffer((4, 4), "int32")):
    B = T.alloc((4,), "int32")
    for i in T.serial(4):
        for j in T.serial(4):
            with T.block("write"):
                vj = T.axis.spatial(4, j)
                T.where(i < 1)
                B[vj] = A[vj]
        for j in T.serial(4):
            with T.block("read"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vj]
"""


def test_a_buffer_that_only_the_first_iteration_writes_is_not_private() -> None:
    sch = Schedule(parse(FIRST_ONLY))
    with pytest.raises(ScheduleError):
        sch.parallel(loops(sch, "read")[0])


EVERY_OTHER = """
@tw.script
def every_other(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
    B = T.alloc((8,), "int32")
    for j in T.serial(8):
        with T.block("start"):
            vj = T.axis.spatial(8, j)
            B[vj] = 0
    for i in T.serial(4):
        for j in T.serial(4):
            with T.block("even"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vj * 2] = A[vi, vj]
        for j in T.serial(8):
            with T.block("read"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vj]
"""


@pytest.mark.parametrize(("written", "legal"), [("vx", True), ("0", False)])
def test_a_buffer_that_keeps_values_for_loops_around_is_not_private(
    written: str, legal: bool
) -> None:
    """Iterations of x may have B to themselves only if iteration y > 0 does not read it too."""
    func = parse(f"""
@tw.script
def kept(A: T.Buffer((4,), "int32"), C: T.Buffer((8, 4), "int32")):
    B = T.alloc((4,), "int32")
    for y in range(8):
        for x in range(4):
            with T.block("B"):
                vy, vx = T.axis.remap("SS", [y, x])
                T.where(y == 0)
                B[{written}] = A[vx]
            with T.block("C"):
                vy, vx = T.axis.remap("SS", [y, x])
                C[vy, vx] = B[{written}]
""")
    for step in ("parallel", "bind"):
        sch = Schedule(func)
        arguments = ("threadIdx.x",) if step == "bind" else ()
        if legal:
            getattr(sch, step)(sch.get_loop("x"), *arguments)
            check_meaning(func, sch.func)
        else:
            with pytest.raises(ScheduleError) as refusal:
                getattr(sch, step)(sch.get_loop("x"), *arguments)
            assert "x=0 writes B[0], iteration x=1 writes it" in str(refusal.value)


def test_elements_between_those_written_are_not_private() -> None:
    sch = Schedule(parse(EVERY_OTHER))
    with pytest.raises(ScheduleError):
        sch.parallel(loops(sch, "read")[0])


def test_a_loop_of_one_iteration_leaves_no_gap() -> None:
    outer, inner = Var("o"), Var("i")
    place = Range(outer * 16 + inner, 1)
    swept = gapless(place, {outer: 1, inner: 14}, {outer: (0, 0), inner: (0, 13)})
    assert swept is not None
    assert swept.extent == 14
    assert gapless(place, {outer: 2, inner: 14}, {outer: (0, 1), inner: (0, 13)}) is None
