"""`pipeline` and `double_buffer`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.codegen.build import compile_func, to_module
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func, Label, Var
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import assert_close, check_compiled, check_meaning, inputs, run
from .programs import chain, loops, matmul, rowsum, stencil


def staged_matmul(sch: Schedule) -> tuple[Label, Var]:
    """A panel of B is copied for each block of rows of it; gives the copy and the loop."""
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, 4])
    k0, k1 = sch.split(k, factors=[None, 5])
    sch.reorder(i, j0, k0, k1, j1)
    copy = sch.cache_read(block, 1, "local")
    sch.compute_at(copy, k0)
    return copy, k0


def test_copies_one_iteration_ahead(golden: Golden) -> None:
    func = matmul(4, 8, 20)
    sch = golden("double_buffer/matmul", func, lambda s: s.double_buffer(*staged_matmul(s)))
    check_compiled(func, sch.func)


def test_copies_in_a_parallel_loop(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        copy, loop = staged_matmul(sch)
        sch.parallel(sch.get_loops(copy)[0])
        sch.double_buffer(copy, loop)

    func = matmul(4, 8, 18)
    check_compiled(func, golden("double_buffer/parallel", func, script).func)


def test_a_parallel_loop_around_one_that_is_there(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        copy, loop = staged_matmul(sch)
        sch.double_buffer(copy, loop)
        sch.parallel(sch.get_loops(copy)[0])

    func = matmul(4, 8, 18)
    sch = golden("parallel/pipeline", func, script)
    module = to_module(compile_func(sch.func, "cpu -threads=2"))
    arguments, outputs = inputs(func, 0)
    module(*arguments)
    assert_close(run(func), outputs)


@pytest.mark.parametrize("stages", [[0, 1, 2], [0, 1, 1], [0, 2, 2]])
def test_a_parallel_loop_around_three_stages(stages: list[int]) -> None:
    sch = Schedule(three(24))
    (i,) = loops(sch, "D")
    outer, inner = sch.split(i, factors=[3, None])
    sch.compute_at(sch.get_block("C"), inner)
    sch.compute_at(sch.get_block("B"), inner)
    sch.pipeline(inner, stages)
    sch.parallel(outer)
    verify(sch.func)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_a_parallel_loop_around_versions_that_outlive_its_iterations() -> None:
    func = parse("""
@tw.script
def kept(A: T.Buffer((4, 6), "int32"), C: T.Buffer((4, 6), "int32")):
    B = T.alloc((2,), "int32")
    for i in range(4):
        for k in range(6):
            with T.block("C"):
                vi, vk = T.axis.remap("SS", [i, k])
                C[vi, vk] = T.select((vi > 0) | (vk > 0), B[(vk + 1) % 2], 0)
            with T.block("B"):
                vi, vk = T.axis.remap("SS", [i, k])
                B[vk % 2] = A[vi, vk]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError) as error:
        sch.parallel(loops(sch, "B")[0])
    assert "iteration i=0" in str(error.value)


def test_chain_of_three(golden: Golden) -> None:
    func = three()
    sch = golden("pipeline/three", func, lambda s: s.pipeline(gathered(s), [0, 1, 2]))
    check_compiled(func, sch.func)


def test_consumer_before_the_next_fill_needs_one_version(golden: Golden) -> None:
    func = three()
    sch = golden("pipeline/order", func, lambda s: s.pipeline(gathered(s), [0, 1, 1], [2, 0, 1]))
    assert all(b.shape == (12,) for b in sch.func.allocs)
    check_compiled(func, sch.func)


def test_more_versions_than_are_live() -> None:
    sch = Schedule(three())
    sch.pipeline(gathered(sch), [0, 1, 1], [2, 0, 1], versions=3)
    assert [b.shape for b in sch.func.allocs] == [(3, 1), (12,)]
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


@pytest.mark.parametrize("versions", [0, 9])
def test_too_few_or_too_many_versions(versions: int) -> None:
    sch = Schedule(three())
    loop = gathered(sch)
    with refused(ScheduleError, "8", versions):
        sch.pipeline(loop, [0, 1, 1], versions=versions)


def test_buffers_of_a_stage_are_others_after_the_loop() -> None:
    """Each shrinks to what an iteration needs."""
    sch = Schedule(three())
    loop = gathered(sch)
    sch.set_scope(sch.get_block("C"), 0, "local")
    sch.pipeline(loop, [0, 1, 1])
    assert [b.name for b in sch.func.allocs] == ["B_stages", "C", "C_end"]
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_open_sizes_in_loops_that_are_concurrent() -> None:
    """An iteration of a loop around fills all versions itself, whatever the sizes are."""
    func = matmul(4, 8, 20)
    sch = Schedule(func, symbolic=True)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    k0, k1 = sch.split(k, factors=sch.sample_tile(k, 2, 10))
    sch.reorder(i, k0, j, k1)
    copy = sch.cache_read(block, 1, "local")
    sch.compute_at(copy, k0)
    sch.decompose_reduction(block, k0)
    sch.parallel(i)
    sch.pipeline(k0, [0, 1], versions=2)
    for n in (2, 5, 10):
        check_meaning(func, sch.trace.with_row([n]).apply(func).func)


def test_stage_that_is_skipped() -> None:
    sch = Schedule(three())
    sch.pipeline(gathered(sch), [0, 0, 3])
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_open_sizes() -> None:
    func = chain(24)
    sch = Schedule(func, symbolic=True)
    (i,) = loops(sch, "C")
    i0, _ = sch.split(i, factors=sch.sample_tile(i, 2, 12))
    sch.compute_at(sch.get_block("B"), i0)
    sch.pipeline(i0, [0, 1])
    for n in (2, 5, 12):
        check_meaning(func, sch.trace.with_row([n]).apply(func).func)


def test_windows_that_overlap_are_made_anew() -> None:
    sch = Schedule(stencil())
    (i,) = loops(sch, "C")
    i0, _ = sch.split(i, factors=[None, 4])
    block = sch.get_block("B")
    sch.compute_at(block, i0)
    sch.double_buffer(block, i0)
    (buffer,) = sch.func.allocs
    assert buffer.shape == (2, 6)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


@pytest.mark.parametrize(
    ("stages", "order", "message"),
    [
        ([0, 1], None, "2 stages for the 3 statements in loop i"),
        ([0, 0, 0], None, "with 0 and another one among them"),
        ([1, 2, 3], None, "with 0 and another one among them"),
        ([0, 1, 8], None, "numbers from 0 to at most 7"),
        ([0, 1, -1], None, "with 0 and another one among them"),
        ([0, 1, 1], [0, 1, 1], r"order \[0, 1, 1\] is not the positions 0 to 2"),
        ([0, 1, 1], [0, 2, 1], "statement 1 of loop i uses C before statement 2 does"),
        ([1, 0, 1], None, "statement 0 of loop i uses B before statement 1 does; in stages 1"),
    ],
)
def test_stages_that_do_not_fit(
    stages: Sequence[int], order: Sequence[int] | None, message: str
) -> None:
    sch = Schedule(three())
    loop = gathered(sch)
    with pytest.raises(ScheduleError, match=message):
        sch.pipeline(loop, stages, order)


def test_loop_that_is_too_short() -> None:
    sch = Schedule(three(3))
    loop = gathered(sch)
    with pytest.raises(ScheduleError):
        sch.pipeline(loop, [0, 0, 3])


def test_loop_that_is_parallel() -> None:
    sch = Schedule(three())
    loop = gathered(sch)
    sch.parallel(loop)
    with pytest.raises(ScheduleError, match="only the iterations of a serial loop overlap"):
        sch.pipeline(loop, [0, 1, 2])


def test_loop_with_a_single_statement() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="contains a single statement; there is nothing to"):
        sch.pipeline(loops(sch, "B")[0], [0])


def test_too_many_blocks() -> None:
    sch = Schedule(long_chain(40))
    (i,) = loops(sch, "S40")
    for n in reversed(range(1, 40)):
        sch.compute_at(sch.get_block(f"S{n}"), i)
    with pytest.raises(ScheduleError):
        sch.pipeline(i, [0] * 39 + [7])


def test_iterations_that_share_elements() -> None:
    sch = Schedule(handed_on(', B: T.Buffer((1,), "int32")', ""))
    with pytest.raises(ScheduleError):
        sch.pipeline(loops(sch, "C")[0], [0, 1])


def test_iterations_of_both_a_reduction_and_its_elements() -> None:
    sch = Schedule(rowsum())
    block = sch.get_block("S")
    loop = sch.fuse(*sch.get_loops(block))
    copy = sch.cache_read(block, 0, "local")
    sch.compute_at(copy, loop)
    with pytest.raises(ScheduleError, match="part of both the reduction and the elements of bl"):
        sch.double_buffer(copy, loop)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_what_decides_whether_a_reduction_stores(order: list[int]) -> None:
    sch = Schedule(
        parse("""
def rows(A: T.Buffer((1,), "float32"), B: T.Buffer((3,), "float32"), S: T.Buffer((2,), "float32")):
    for i, k in T.grid(2, 3):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                if A[0] > 1.0:
                    S[vi] = 0.0
            if A[0] > 1.0:
                S[vi] = S[vi] + B[vk]
""")
    )
    block = sch.get_block("S")
    _, k = sch.get_loops(block)
    condition = sch.cache_read(block, 0, "local")
    sch.compute_at(condition, k)
    with pytest.raises(ScheduleError, match="where data decide that"):
        sch.pipeline(k, [0, 1], order)


@pytest.mark.parametrize("named", [False, True])
def test_conditions_on_data_that_store_all_elements_together(named: bool) -> None:
    data = "(vi + M[0]) % 9007199254740991"
    name, whole = (f"whole = {data}", "whole") if named else ("", data)
    sch = Schedule(
        parse(f"""
def halves(A: T.Buffer((5,), "int32"), M: T.Buffer((1,), "int64"), C: T.Buffer((5,), "int32")):
    B = T.alloc((5,), "int32")
    for i in range(5):
        with T.block("B0"):
            vi = T.axis.spatial(5, i)
            {name}
            if {whole} + -9223372036854775807 > {whole}:
                B[vi] = A[vi]
        with T.block("B1"):
            vi = T.axis.spatial(5, i)
            {name}
            if {whole} + -9223372036854775807 <= {whole}:
                B[vi] = 0
    for i in range(5):
        with T.block("C"):
            vi = T.axis.spatial(5, i)
            C[vi] = B[vi]
""")
    )
    verify(sch.func)
    with pytest.raises(ScheduleError, match="where data decide that"):
        sch.pipeline(loops(sch, "B0")[0], [0, 1])


def test_versions_in_registers() -> None:
    sch = Schedule(three())
    loop = gathered(sch)
    sch.set_scope(sch.get_block("B"), 0, "register")
    with pytest.raises(ScheduleError):
        sch.pipeline(loop, [0, 1, 1])


def test_versions_with_strides() -> None:
    sch = Schedule(handed_on("", '    B = T.alloc((1,), "int32", strides=(2,))'))
    with pytest.raises(ScheduleError):
        sch.pipeline(loops(sch, "C")[0], [0, 1])


def test_versions_are_aligned_as_the_buffer_was() -> None:
    sch = Schedule(matmul(4, 8, 20))
    copy, loop = staged_matmul(sch)
    sch.storage_align(copy, 0, 0, 16, 3)
    sch.double_buffer(copy, loop)
    (buffer,) = sch.func.allocs
    assert buffer.align == ((1, 16, 3),)
    check_compiled(sch.original, sch.func)


def test_double_buffer_of_a_block_elsewhere() -> None:
    sch = Schedule(chain())
    with refused(ScheduleError, "B", "i"):
        sch.double_buffer(sch.get_block("B"), loops(sch, "C")[0])


def test_double_buffer_of_a_result() -> None:
    sch = Schedule(three())
    loop = gathered(sch)
    with pytest.raises(ScheduleError, match="D, which block D writes, is not filled anew"):
        sch.double_buffer(sch.get_block("D"), loop)


def test_double_buffer_that_nothing_else_uses() -> None:
    sch = Schedule(chain())
    i0, i1 = sch.split(loops(sch, "C")[0], factors=[None, 4])
    block = sch.get_block("B")
    sch.compute_at(block, i1)
    with pytest.raises(ScheduleError) as refusal:
        sch.double_buffer(block, i0)
    assert refusal.value.place.name == "B"


def test_loops_around_that_are_empty() -> None:
    sch = Schedule(elementwise_pair())
    block = sch.get_block("B")
    _, j = loops(sch, "C")
    sch.compute_at(block, j)
    sch.double_buffer(block, j)
    verify(sch.func)


def test_choices_that_an_iteration_leaves_no_more() -> None:
    a = te.placeholder((1,), "int32", name="A")
    b = te.compute((3,), lambda i: te.select((i >= 1) & (i < 2), a[i - 1], 0), name="B")
    sch = Schedule(te.func([a, b], name="selected"))
    block = sch.get_block("B")
    (i,) = sch.get_loops(block)
    copy = sch.cache_read(block, 0, "local")
    sch.compute_at(copy, i)
    sch.double_buffer(copy, i)
    verify(sch.func)
    check_meaning(sch.original, sch.func)


def test_copy_of_a_part_of_the_versions() -> None:
    sch = Schedule(three())
    *_, end = sch.pipeline(gathered(sch), [0, 1, 1])
    with pytest.raises(ScheduleError):
        sch.cache_read(end, 1, "local")


def three(n: int = 12) -> Func:
    """B = A * 2, C = B + 1, D = C * B."""
    a = te.placeholder((n,), "int32", name="A")
    b = te.compute((n,), lambda i: a[i] * 2, name="B")
    c = te.compute((n,), lambda i: b[i] + 1, name="C")
    d = te.compute((n,), lambda i: c[i] * b[i], name="D")
    return te.func([a, d], name="three")


def gathered(sch: Schedule) -> Var:
    """All blocks of `three` in the loop of the last one."""
    (i,) = loops(sch, "D")
    sch.compute_at(sch.get_block("C"), i)
    sch.compute_at(sch.get_block("B"), i)
    return i


def handed_on(parameter: str, alloc: str) -> Func:
    """B = A[i], then C[i] = B, in each iteration of a loop."""
    return parse(f"""
@tw.script
def handed_on(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32"){parameter}):
{alloc}
    for i in range(8):
        with T.block("B"):
            vi = T.axis.opaque(8, i)
            B[0] = A[vi]
        with T.block("C"):
            vi = T.axis.opaque(8, i)
            C[vi] = B[0]
""")


def elementwise_pair() -> Func:
    """B = A * 2, C = B + 1, of no rows."""
    a = te.placeholder((0, 6), "int32", name="A")
    b = te.compute((0, 6), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((0, 6), lambda i, j: b[i, j] + 1, name="C")
    return te.func([a, c], name="pair")


def long_chain(count: int) -> Func:
    """S1 = A + 1, S2 = S1 + 1, and so on."""
    x = te.placeholder((16,), "int32", name="A")
    first = x
    for n in range(1, count + 1):
        x = te.compute((16,), lambda i, x=x: x[i] + 1, name=f"S{n}")
    return te.func([first, x], name="long_chain")


@pytest.mark.parametrize("count", [1, 5, 17, 33])
def test_a_loop_with_more_iterations_than_the_reduction_has_parts(count: int) -> None:
    source = f"""
@tw.script
def parts(P: T.Buffer(({count}, 7), "int32"), S: T.Buffer((7,), "int32")):
    for i, k in T.grid(7, {count}):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = 0
            S[vi] = S[vi] + P[vk, vi]
"""
    func = parse(source)
    sch = Schedule(func)
    _, k = sch.get_loops(sch.get_block("S"))
    inner = sch.split(k, factors=[None, 8, 2], perfect=False)[-1]
    partial, part = sch.split_reduction(inner, parts=3, factor_axis=0, tree=False)
    sch.serial(part)
    sch.read_at(part, partial, read_buffer_index=0, storage_scope="global")
    sch.pipeline(part, stages=[0, 1], versions=1)
    verify(sch.func)
    check_meaning(func, sch.func)
