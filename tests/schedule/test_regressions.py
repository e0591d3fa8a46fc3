"""Steps that random schedules once got wrong: refused now, or right."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.find import find_block, loops_above
from tilewright.tir import te
from tilewright.tir.bounds import prove
from tilewright.tir.ir import Func, Label, const
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify
from tilewright.tir.visit import substitute

from ..refusals import refused
from .machinery import check_compiled, check_meaning, check_replays
from .programs import chain, loops, matmul, rowsum, stencil
from .random_instructions import SMALL


def check(sch: Schedule) -> None:
    """Check a schedule that was accepted: its program, its meaning, its replays."""
    verify(sch.func)
    check_meaning(sch.original, sch.func)
    check_replays(sch.original, sch)


def placeholder(*shape: int, name: str = "A") -> te.Tensor:
    return te.placeholder(shape, "int32", name=name)


def sums(x: te.Tensor, name: str) -> te.Tensor:
    """The sums of the rows of `x`."""
    r = te.reduce_axis(x.extents[1], name=f"r{name}")
    return te.compute(x.extents[:1], lambda i: te.sum(x[i, r], axis=r), name=name)


def twice_summed() -> Func:
    """S = the sums along the last axis of a product, then T = the sums of S."""
    a, b = placeholder(4, 3), placeholder(3, 5, name="B")
    r = te.reduce_axis(3, name="r")
    s = te.compute((4, 5), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="S")
    return te.func([a, b, sums(s, "T")], name="twice_summed")


def test_an_epilogue_that_is_a_reduction_is_not_fused() -> None:
    sch = Schedule(twice_summed())
    with refused(ScheduleError, "T"):
        sch.fuse_reduction_epilogue(sch.get_block("S"), sch.get_block("T"))


def test_an_epilogue_in_place_is_not_fused() -> None:
    a, z = placeholder(4, 3), placeholder(4, name="Z")
    s = sums(a, "S")
    new = te.compute((4,), lambda i: s[i] + z[i], name="U")
    sch = Schedule(te.func([a, z], inplace={new: z}, name="update"))
    with pytest.raises(ScheduleError):
        sch.fuse_reduction_epilogue(sch.get_block("S"), sch.get_block("U"))


@pytest.mark.parametrize("again", [0, 1, 2])
def test_a_partial_result_keeps_its_guard_where_it_goes(again: int) -> None:
    sch = Schedule(rowsum(3, 10))
    block = sch.get_block("S")
    _, r = sch.get_loops(block)
    _, inner = sch.split(r, factors=[None, 4])
    partial = sch.rfactor(inner, 1)
    for _ in range(again):
        sch.split(sch.get_loops(partial)[1], factors=[None, 2])
    sch.compute_at(partial, sch.get_loops(block)[0])
    assert "T.where" in str(sch.func)
    check(sch)


def test_a_guard_that_cannot_move_keeps_its_block_in_place() -> None:
    sch = Schedule(rowsum(3, 10))
    block = sch.get_block("S")
    _, r = sch.get_loops(block)
    _, inner = sch.split(r, factors=[None, 4])
    partial = sch.rfactor(inner, 1)
    _, outer, inner = sch.get_loops(partial)
    sch.split(sch.fuse(outer, inner), factors=[None, 5])
    with pytest.raises(ScheduleError):
        sch.compute_at(partial, sch.get_loops(block)[0])


def test_partial_results_of_loops_of_both_kinds_are_refused() -> None:
    sch = Schedule(rowsum(5, 6))
    i, r = loops(sch, "S")
    outer, inner = sch.split(r, factors=[None, 2])
    sch.reorder(outer, i)
    sch.fuse(outer, i)
    with pytest.raises(ScheduleError):
        sch.rfactor(inner, 0)


def test_a_guard_of_the_extent_does_not_need_to_move() -> None:
    sch = Schedule(chain(10))
    outer, inner = sch.split(loops(sch, "B")[0], factors=[None, 4])
    sch.split(sch.fuse(outer, inner), factors=[None, 5])
    sch.compute_at(sch.get_block("B"), loops(sch, "C")[0])
    assert "T.where" not in str(sch.func)
    check(sch)


def test_a_consumer_of_both_parts_of_a_loop_is_in_neither() -> None:
    sch = Schedule(chain(10))
    (i,) = loops(sch, "B")
    tail, _ = sch.loop_partition(i, at=6)
    for loop in (i, tail):
        with pytest.raises(ScheduleError):
            sch.reverse_compute_at(sch.get_block("C"), loop)


def test_a_producer_does_not_enter_the_vector_of_its_consumer() -> None:
    sch = Schedule(chain())
    sch.vectorize(loops(sch, "C")[0])
    with pytest.raises(ScheduleError):
        sch.compute_at(sch.get_block("B"), loops(sch, "C")[0])


def turned_sums() -> Func:
    """B[i, j] = A[i, j] + 1, then C[j] = the sums of the columns of B."""
    a = placeholder(4, 6)
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1, name="B")
    r = te.reduce_axis(4, name="r")
    c = te.compute((6,), lambda j: te.sum(b[r, j], axis=r), name="C")
    return te.func([a, c], name="turned_sums")


def test_a_thread_does_not_come_to_drive_a_reduction() -> None:
    sch = Schedule(turned_sums())
    i, j = loops(sch, "B")
    sch.bind(i, "threadIdx.x")
    with pytest.raises(ScheduleError) as refusal:
        sch.reverse_compute_at(sch.get_block("C"), j)
    assert refusal.value.found == "reduce"


def test_threads_do_not_come_to_share_the_results_of_a_consumer() -> None:
    a = placeholder(3)
    b = te.compute((3,), lambda i: a[i] + 3, name="B")
    c = te.compute((3, 6), lambda i, j: b[i] - 2, name="C")
    sch = Schedule(te.func([a, c], name="spread"))
    i, j = loops(sch, "C")
    sch.bind(j, "threadIdx.x")
    sch.compute_at(sch.get_block("B"), j)
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[2])
    assert loops(sch, "C")[0] is i


def test_a_reduction_enters_the_loops_of_its_input() -> None:
    sch = Schedule(turned_sums())
    _, j = loops(sch, "B")
    sch.reverse_compute_at(sch.get_block("C"), j)
    check(sch)


def halo() -> Func:
    """S = the sums of the rows of A, B[i] = S[i] + S[i + 1], C = B * 2."""
    a = placeholder(9, 3)
    s = sums(a, "S")
    b = te.compute((8,), lambda i: s[i] + s[i + 1], name="B")
    c = te.compute((8,), lambda i: b[i] * 2, name="C")
    return te.func([a, c], name="halo")


def test_what_a_thread_keeps_for_itself_is_not_read_outside() -> None:
    sch = Schedule(halo())
    outer, _ = sch.split(loops(sch, "B")[0], factors=[None, 4])
    sch.compute_at(sch.get_block("S"), outer)
    sch.bind(outer, "threadIdx.x")
    with pytest.raises(ScheduleError):
        sch.compute_at(sch.get_block("B"), loops(sch, "C")[0])
    with pytest.raises(ScheduleError):
        sch.compute_inline(sch.get_block("B"))


def test_results_that_iterations_share_are_not_made_in_parallel() -> None:
    sch = Schedule(overlapping())
    outer, _ = sch.split(loops(sch, "C")[0], factors=[None, 4])
    sch.compute_at(sch.get_block("B"), outer)
    sch.parallel(outer)
    with pytest.raises(ScheduleError):
        sch.compute_at(sch.get_block("C"), loops(sch, "D")[0])
    serial = Schedule(overlapping())
    outer, _ = serial.split(loops(serial, "C")[0], factors=[None, 4])
    serial.compute_at(serial.get_block("B"), outer)
    serial.compute_at(serial.get_block("C"), loops(serial, "D")[0])
    check(serial)
    with pytest.raises(ScheduleError):
        serial.parallel(outer)


def overlapping() -> Func:
    """B = A * 2, C[i] = B[i] + B[i + 1], D = C + 1."""
    a = placeholder(9)
    b = te.compute((9,), lambda i: a[i] * 2, name="B")
    c = te.compute((8,), lambda i: b[i] + b[i + 1], name="C")
    d = te.compute((8,), lambda i: c[i] + 1, name="D")
    return te.func([a, d], name="overlapping")


@pytest.mark.parametrize(("n", "outer", "inner"), [(23, 5, 2), (30, 7, 3)])
def test_guarded_tiles_within_tiles_run_in_parallel(n: int, outer: int, inner: int) -> None:
    sch = Schedule(chain(n))
    i0, i1 = sch.split(loops(sch, "C")[0], factors=[None, outer])
    sch.split(i1, factors=[None, inner])
    sch.parallel(i0)
    check(sch)


def test_a_consumer_waits_for_what_later_iterations_write() -> None:
    sch = Schedule(chain(12))
    (i,) = loops(sch, "B")
    outer, inner = sch.split(i, factors=[3, 4])
    sch.reorder(inner, outer)
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("C"), inner)


def two_inputs() -> Func:
    """B = A + 1, S = B's first row broadcast against it: C[i, j] = B[i, j] - B[0, j]."""
    a = placeholder(4, 6)
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((4, 6), lambda i, j: b[i, j] - b[3, j], name="C")
    return te.func([a, c], name="two_inputs")


def test_a_consumer_of_other_elements_too_waits_for_them() -> None:
    sch = Schedule(two_inputs())
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[0])


def wider(before: int) -> Func:
    """C = B with zeros before or after it."""
    a = placeholder(6)
    b = te.compute((6,), lambda i: a[i] * 2, name="B")

    def padded(i: te.Expr) -> te.Expr:
        if before:
            return te.select((i >= before) & (i < 6 + before), b[i - before], 0)
        return te.select(i < 6, b[i], 0)

    return te.func([a, te.compute((9,), padded, name="C")], name="wider")


@pytest.mark.parametrize("before", [0, 2])
def test_a_wider_consumer_is_computed_to_its_end(before: int) -> None:
    sch = Schedule(wider(before))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[0])
    with pytest.raises(ScheduleError):
        sch.reverse_compute_inline(sch.get_block("C"))


def test_two_producers_do_not_both_say_where_a_consumer_is() -> None:
    a, z = placeholder(4), placeholder(4, name="Z")
    b = te.compute((4,), lambda i: a[i] + 1, name="B")
    d = te.compute((4,), lambda i: z[i] + b[i], name="D")
    c = te.compute((4, 4), lambda i, j: b[i] * d[j], name="C")
    sch = Schedule(te.func([a, z, c], name="outer"))
    sch.reverse_compute_at(sch.get_block("D"), loops(sch, "B")[0])
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[0])


@pytest.mark.parametrize("factor", [4, 5])
def test_copies_leave_padding_alone(factor: int) -> None:
    sch = Schedule(chain(10))
    block = sch.get_block("B")
    sch.transform_layout(block, ("write", 0), lambda i: (i // factor, i % factor))
    sch.cache_write(block, 0, "local")
    sch.cache_read(sch.get_block("C"), 0, "global")
    check(sch)


OVERWRITTEN = """
@tw.script
def late(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    T.inplace(A)
    B = T.alloc((4,), "int32")
    for i in T.serial(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] + 1
    for i in T.serial(4):
        with T.block("U"):
            vi = T.axis.spatial(4, i)
            A[vi] = A[vi] * 2
    for i in T.serial(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = B[vi] * 3
"""


@pytest.mark.parametrize("divisor", [0, -1])
def test_index_maps_divide_by_positive_numbers(divisor: int) -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="not known to be positive"):
        sch.transform_layout(
            sch.get_block("B"), ("write", 0), lambda i: (i // divisor, i % divisor)
        )


def test_an_input_that_is_overwritten_is_not_read_later() -> None:
    sch = Schedule(parse(OVERWRITTEN))
    with pytest.raises(ScheduleError):
        sch.compute_inline(sch.get_block("B"))
    with pytest.raises(ScheduleError):
        sch.compute_at(sch.get_block("B"), loops(sch, "C")[0])
    sch.reverse_compute_inline(sch.get_block("C"))
    check(sch)


def test_what_an_inlined_block_never_reads_is_left_out() -> None:
    a = placeholder(1)
    b = te.compute((1,), lambda i: te.select(i < 0, a[i - 1], 7), name="B")
    c = te.compute((3,), lambda i: b[0] + i.astype("int32"), name="C")
    sch = Schedule(te.func([a, c], name="constant"))
    sch.compute_inline(sch.get_block("B"))
    check(sch)


def test_compute_at_of_one_of_several_results() -> None:
    a = placeholder(4, 6)
    r = te.reduce_axis(6, name="r")
    made = te.compute((4,), lambda i: te.argmax(a[i, r], axis=r), name=("P", "V"))
    _, value = made
    c = te.compute((4,), lambda i: value[i] + 1, name="C")
    sch = Schedule(te.func([a, c], name="best"))
    sch.compute_at(sch.get_block(0), loops(sch, "C")[0])
    check(sch)


def test_parts_of_a_block_with_local_values_have_their_own() -> None:
    a = placeholder(4, 6)
    r = te.reduce_axis(6, name="r")
    made = te.compute((4,), lambda i: te.argmax(a[i, r], axis=r), name=("P", "V"))
    sch = Schedule(te.func([a, *made], name="best"))
    sch.loop_partition(sch.get_loops(sch.get_block(0))[1], at=2)
    check(sch)


def test_a_stencil_goes_to_the_last_of_its_inputs() -> None:
    sch = Schedule(stencil())
    outer, _ = sch.split(loops(sch, "C")[0], factors=[None, 5])
    sch.compute_at(sch.get_block("B"), outer)
    check(sch)


@pytest.mark.parametrize("factor", [1 << 13, 1 << 45])
def test_sizes_that_make_no_sense(factor: int) -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.split(loops(sch, "B")[0], factors=[None, factor])
    with pytest.raises(ScheduleError):
        sch.pack(sch.get_block("C"), 0, "Aa", [factor])
    with pytest.raises(ScheduleError):
        sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i: i * factor)


def test_a_symbolic_tile_may_run_in_parallel_in_the_end() -> None:
    sch = Schedule(matmul(33, 50, 17, "float32"), symbolic=True)
    block = sch.get_block("C")
    write = sch.cache_write(block, 0, "register")
    i, j, k = sch.get_loops(block)
    sizes = [sch.sample_categorical([1, 2, 4]) for _ in range(4)]
    i0, i1, i2 = sch.split(i, factors=[None, *sizes[:2]])
    j0, j1, j2, j3 = sch.split(j, factors=[None, *sizes[2:], 16])
    sch.reorder(i0, j0, i1, j1, k, i2, j2, j3)
    fused = sch.fuse(i0, j0)
    sch.reverse_compute_at(write, j1)
    sch.split(sch.get_loops(write)[-1], factors=[None, 16])
    sch.decompose_reduction(block, k)
    sch.parallel(fused)
    assert "T.parallel" in str(sch.func)


def test_loops_that_are_split_again_after_a_split_that_left_a_tail() -> None:
    a = placeholder(7, 6)
    sch = Schedule(te.func([a, te.compute((5, 7, 6), lambda n, i, j: a[i, j] - 2, name="B")]))
    _, i, j = loops(sch, "B")
    outer, middle, _ = sch.split(sch.fuse(i, j), factors=[None, 2, 1])
    fused = sch.fuse(outer, *sch.split(middle, factors=[None, 8]))
    sch.split(fused, factors=[None, 5])
    check(sch)


def test_an_input_goes_where_nothing_is_computed() -> None:
    a = placeholder(0)
    b = te.compute((0,), lambda i: a[i] * 2, name="B")
    c = te.compute((0, 2), lambda i, j: b[i * 2 + j] + 1, name="C")
    sch = Schedule(te.func([a, c]))
    i, j = loops(sch, "C")
    sch.reorder(j, i)
    sch.compute_at(sch.get_block("B"), sch.split(j, factors=[None, 6, 3])[-1])
    check(sch)


def test_a_buffer_without_elements_has_none_in_another_layout() -> None:
    a = placeholder(0, 5)
    b = te.compute((0, 5), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((0,), lambda i: b[i, 0] + b[i, 4], name="C")
    sch = Schedule(te.func([a, c]))
    sch.transform_layout(sch.get_block("C"), ("read", 0), lambda i, j: i * 8 + j)
    check(sch)


def test_what_no_condition_lets_in_is_inlined() -> None:
    a = placeholder(0, 6)
    b = te.compute((0,), lambda i: a[i // 6, i % 6], name="B")
    c = te.compute((2,), lambda i: te.select((i >= 1) & (i < 1), b[i - 1], 0), name="C")
    sch = Schedule(te.func([a, c]))
    sch.compute_inline(sch.get_block("B"))
    check(sch)


def test_a_guard_on_a_loop_that_feeds_nothing_goes_with_the_init() -> None:
    sch = Schedule(rowsum())
    i, _ = loops(sch, "S")
    *_, innermost = sch.split(sch.add_unit_loop(i), factors=[4, 1, None])
    sch.decompose_reduction(sch.get_block("S"), innermost)
    check(sch)


def test_no_block_goes_into_a_loop_without_iterations() -> None:
    a = placeholder(0, 5)
    b = te.compute((0, 5), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((2, 5), lambda i, j: te.select(i < 0, b[i, j], 1), name="C")
    sch = Schedule(te.func([a, b, c]))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[0])


def test_a_guard_on_a_quotient_beside_unit_loops_bounds_what_is_divided() -> None:
    x = placeholder(3, 5)
    sch = Schedule(te.func([x, te.compute((3, 5), lambda i, j: x[i, j] + 1, name="B")], name="f"))
    _, unit, inner = sch.split(loops(sch, "B")[0], factors=[1, 1, None])
    sch.fuse(sch.split(unit, factors=[None, 3])[1], inner)
    check(sch)


def test_what_an_empty_block_divides_by_is_not_inlined() -> None:
    a = placeholder(3, 0)
    b = te.compute((0,), lambda i: a[i // 0, i % 0], name="B")
    c = te.compute((2,), lambda i: te.select(i < 0, b[i], 7), name="C")
    sch = Schedule(te.func([a, c]))
    sch.compute_inline(sch.get_block("B"))
    check(sch)


def test_a_copy_for_indices_computed_ahead_holds_all_they_may_be() -> None:
    a = placeholder(3, 4)
    sch = Schedule(te.func([a, te.compute((12,), lambda i: a[i // 4, i % 4] + 1, name="B")]))
    block = sch.get_block("B")
    sch.cache_index(block, "local")
    sch.read_at(sch.get_loops(block)[0], block, 0, "local")
    check(sch)


GATHER = """
@tw.script
def gather(
    I: T.Buffer((4,), "int64", value_range=(0, 6)),
    A: T.Buffer((6,), "int32"),
    C: T.Buffer((4,), "int32"),
):
    B = T.alloc((6,), "int32")
    for i in T.serial(6):
        with T.block("B"):
            vi = T.axis.spatial(6, i)
            B[vi] = A[vi] + 1
    for i in T.serial(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            T.reads(B[I[vi]], I[vi])
            T.writes(C[vi])
            C[vi] = B[I[vi]] * 2
"""


def test_a_region_that_depends_on_data_needs_all_of_the_dimension() -> None:
    sch = Schedule(parse(GATHER))
    sch.compute_at(sch.get_block("B"), loops(sch, "C")[0])
    assert [s.extent for s in loops_above(sch.func, sch.get_block("B"))] == [4, 6]
    check(sch)


def test_copies_of_a_copy_stay_around_it_after_a_block_became_two() -> None:
    a, z = placeholder(3, 4), placeholder(3, name="Z")
    s = sums(a, "S")
    new = te.compute((3,), lambda i: s[i] - z[i], name="U")
    sch = Schedule(te.func([a, z], inplace={new: z}, name="update"))
    update = sch.get_block("U")
    sch.cache_inplace(update, 0, "global")
    sch.split_reduction(loops(sch, "S")[1], 2)
    sch.cache_inplace(update, 0, "local")
    check(sch)


def test_rows_that_data_choose_are_found_in_a_slanted_layout() -> None:
    a = placeholder(7)
    at = te.placeholder((3,), "int32", name="I", value_range=(0, 7))
    b = te.compute((7, 5), lambda i, j: a[i] - 2, name="B")
    c = te.compute((3, 5), lambda i, j: b[at[i], j] * 2, name="C")
    sch = Schedule(te.func([a, at, c]))
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i, j: (i + j, j))
    check(sch)


def test_what_a_moved_copy_leaves_out_is_not_copied_back() -> None:
    a = placeholder(6, 5)
    sch = Schedule(te.func([a, te.compute((2, 5), lambda i, j: a[i, j] * 3, name="B")]))
    i, _ = loops(sch, "B")
    copy = sch.cache_read(sch.get_block("B"), 0, "local")
    sch.compute_at(copy, i)
    sch.fission(i)
    with pytest.raises(ScheduleError):
        sch.cache_write(copy, 0, "global")
    with pytest.raises(ScheduleError):
        sch.cache_read(sch.get_block("B"), 0, "global")


def test_both_parts_of_a_loop_write_all_of_a_buffer() -> None:
    sch = Schedule(chain(10))
    sch.loop_partition(loops(sch, "B")[0], at=6)
    sch.cache_read(sch.get_block("C"), 0, "local")
    check(sch)


def test_an_index_map_of_a_size_that_is_open_keeps_elements_apart() -> None:
    sch = Schedule(chain())
    size = sch.sample_categorical([2, 3, 4])
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i: (i // size, i % size))
    check(sch)
    assert "B[vi // " in str(sch.trace.apply(sch.original, symbolic=True).func)


def test_what_is_gone_is_not_prefetched() -> None:
    sch = Schedule(chain())
    (i,) = loops(sch, "C")
    sch.prefetch(sch.get_block("C"), 0, i, offset=2)
    changed = sch.copy()
    changed.transform_layout(changed.get_block("B"), ("write", 0), lambda i: (i // 4, i % 4))
    assert "T.prefetch(B[" in str(changed.func)
    check(changed)
    sch.compute_inline(sch.get_block("B"))
    assert "prefetch" not in str(sch.func)
    check(sch)


def test_a_window_that_is_prefetched_stays_in_its_place() -> None:
    sch = Schedule(stencil())
    (i,) = loops(sch, "C")
    sch.compute_at(sch.get_block("B"), i)
    sch.prefetch(sch.get_block("C"), 0, i, offset=1)
    for step in (
        lambda: sch.rolling_buffer(sch.get_block("B"), 0),
        lambda: sch.double_buffer(sch.get_block("B"), i),
        lambda: sch.set_scope(sch.get_block("B"), 0, "register"),
    ):
        with pytest.raises(ScheduleError):
            step()


def test_what_some_iterations_leave_out_is_not_reindexed() -> None:
    a = placeholder(6, 5)
    sch = Schedule(te.func([a, te.compute((2, 5), lambda i, j: a[i, j] * 3, name="B")]))
    outer = sch.cache_read(sch.get_block("B"), 0, "local")
    inner = sch.cache_read(outer, 0, "global")
    (i, _) = loops(sch, "B")
    sch.compute_at(outer, i)
    sch.compute_at(inner, i)
    sch.fission(i)
    with pytest.raises(ScheduleError):
        sch.reindex(outer, ("read", 0))
    with pytest.raises(ScheduleError):
        sch.reindex(outer, ("write", 0))


@pytest.mark.parametrize("padded", [True, False])
def test_a_copy_in_another_order_has_a_layout_of_its_own(padded: bool) -> None:
    a = placeholder(4, 6)
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((4,), lambda i: b[i, 2] * 2, name="C")
    sch = Schedule(te.func([a, c]))
    if padded:
        sch.storage_align(sch.get_block("B"), 0, -2, 8, 1)
    else:
        sch.swizzle(sch.get_block("B"), 0, 1, 0, 2)
    sch.reindex(sch.get_block("C"), ("read", 0))
    check(sch)


def test_an_init_finds_its_term_where_it_goes() -> None:
    a, z = placeholder(5, 3), placeholder(5, name="Z")
    s = sums(a, "S")
    sch = Schedule(te.func([a, z, te.compute((5,), lambda i: s[i] + z[i], name="T")]))
    block = sch.get_block("S")
    sch.fuse_reduction_epilogue(block, sch.get_block("T"))
    i, r = sch.get_loops(block)
    sch.compute_at(sch.cache_read(block, 1, "local"), r)
    with pytest.raises(ScheduleError):
        sch.decompose_reduction(block, i)
    check(sch)


def test_a_loop_of_three_parts_fused_again_ends_where_it_did() -> None:
    a = placeholder(5, 2)
    sch = Schedule(te.func([a, te.compute((5, 2), lambda i, j: a[i, j] * 2, name="B")]))
    fused = sch.fuse(*loops(sch, "B"))
    sch.fuse(*sch.split(fused, factors=[None, 2, 4]))
    check(sch)


def test_a_unit_of_one_iteration_is_followed_under_its_guard() -> None:
    a = placeholder(2, 1)
    s = sums(a, "S")
    sch = Schedule(te.func([a, te.compute((2,), lambda i: s[i] + 1, name="T")]))
    block, (i,) = sch.get_block("S"), loops(sch, "T")
    sch.compute_at(block, i)
    _, inner = sch.split(i, factors=[None, 5])
    sch.blockize(sch.get_loops(block)[-1])
    sch.cache_write(sch.get_block("T"), 0, "local")
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("T"), inner)
    sch.reverse_compute_at(sch.get_block("T"), sch.get_loops(block)[-1])
    check(sch)


def test_a_prefetch_in_a_unit_follows_its_buffer() -> None:
    sch = Schedule(chain())
    (i,) = loops(sch, "C")
    hint = sch.prefetch(sch.get_block("C"), 0, i, offset=2)
    sch.blockize(sch.get_loops(hint)[-1])
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i: (i // 4, i % 4))
    check(sch)


def test_the_layout_of_what_an_instruction_takes_is_not_swizzled() -> None:
    a, b = placeholder(4, 6), placeholder(4, 8, name="B")
    r = te.reduce_axis(4, name="r")
    c = te.compute((6, 8), lambda i, j: te.sum(a[r, i] * b[r, j], axis=r), name="C")
    sch = Schedule(te.func([a, b, c]))
    block = sch.get_block("C")
    sch.cache_write(block, 0, "global")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, factors=[None, 2])
    j0, j1 = sch.split(j, factors=[None, 2])
    sch.reorder(i0, j0, k, i1, j1)
    sch.decompose_reduction(block, k)
    sch.tensorize(i1, SMALL[0])
    with pytest.raises(ScheduleError):
        sch.swizzle(block, 0, 1, 0, 2, 3)
    sch.storage_align(block, 0, 0, 16, 1)
    check(sch)
    check_compiled(sch.original, sch.func)


def test_what_a_thread_keeps_is_not_shared_with_iterations_beside_the_loop() -> None:
    a = placeholder(5)
    b = te.compute((5,), lambda i: a[i] - 2, name="B")
    c = te.compute((6, 2), lambda i, j: te.select(i < 5, b[i], 0), name="C")
    sch = Schedule(te.func([a, c]))
    block = sch.get_block("C")
    i, j = sch.get_loops(block)
    sch.blockize(loops(sch, "B")[0])
    sch.decompose_padding(block, j)
    sch.bind(j, "threadIdx.x")
    sch.compute_at(sch.get_block("B"), j)
    with pytest.raises(ScheduleError):
        sch.pipeline(i, [0, 1], [1, 0])
    check(sch)


def test_a_window_in_a_loop_of_a_size_that_is_open_needs_a_second_iteration() -> None:
    sch = Schedule(stencil(18), symbolic=True)
    block, consumer = sch.get_block("B"), sch.get_block("C")
    size = sch.sample_categorical([1, 4])
    outer, _ = sch.split(sch.get_loops(consumer)[0], factors=[size, 16])
    sch.compute_at(block, outer)
    sch.rolling_buffer(block, 0)
    assert sch.space is not None
    assert any("has one iteration" in c.message for c in sch.space.constraints)


def test_a_copy_of_more_than_is_read_does_not_store_the_results_of_threads() -> None:
    a = placeholder(8)
    sch = Schedule(te.func([a, te.compute((8,), lambda i: a[i] * 2, name="B")]))
    block, (i,) = sch.get_block("B"), loops(sch, "B")
    sch.bind(i, "threadIdx.x")
    copy = sch.write_at(i, block, 0, "global")
    sch.compute_inline(block)
    sch.split(sch.get_loops(copy)[-1], factors=[None, 8])
    sch.compute_at(sch.cache_read(copy, 0, "local"), i)
    with pytest.raises(ScheduleError):
        sch.reverse_compute_inline(copy)
    check(sch)


@pytest.mark.parametrize("opened", [False, True])
def test_the_parts_of_a_loop_have_a_copy_each_of_what_iterations_have(opened: bool) -> None:
    a = placeholder(3)
    func = te.func([a, te.compute((5,), lambda i: a[i * 3 // 5] + 1, name="B")])
    sch = Schedule(func, symbolic=opened)
    size = sch.sample_categorical([3, 4]) if opened else 4
    block = sch.get_block("B")
    outer, inner = sch.split(loops(sch, "B")[0], factors=[None, size])
    sch.parallel(inner)
    sch.compute_at(sch.cache_read(block, 0, "local"), inner)
    sch.loop_partition(outer)
    assert {b.name for b in sch.func.allocs} == {"A_local", "A_local_tail"}
    check(sch.trace.with_row([4]).apply(func) if opened else sch)


@pytest.mark.parametrize("moved", [True, False])
def test_an_index_computed_ahead_and_inlined_again_is_what_it_was(moved: bool) -> None:
    a = placeholder(4)
    b = te.compute((4,), lambda i: a[i] * 2, name="B")
    sch = Schedule(te.func([a, te.compute((6,), lambda i: b[i * 2 // 3] + 1, name="C")]))
    block = sch.get_block("C")
    (index,) = sch.cache_index(block, "local", 0)
    sch.compute_inline(index)
    assert "T.int32" in str(sch.func)
    if moved:
        sch.compute_at(sch.cache_read(block, 0, "local"), loops(sch, "C")[0])
    else:
        sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i: (i * 2 + 1,))
    check(sch)


def test_what_iterations_have_to_themselves_is_not_filled_by_a_loop_of_its_own() -> None:
    sch = Schedule(
        parse("""
def unread(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    D = T.alloc((10,), "int32")
    for i in T.parallel(8):
        for j in range(3):
            with T.block("D"):
                vi = T.axis.spatial(10, i + j)
                D[vi] = T.select((vi >= 1) & (vi < 9), A[vi - 1], 0)
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
""")
    )
    block, (i, j) = sch.get_block("D"), loops(sch, "D")
    with pytest.raises(ScheduleError):
        sch.decompose_padding(block, i)
    sch.decompose_padding(block, j)
    check(sch)


@pytest.mark.parametrize("step", [2, 3, 4, 5, 8])
def test_who_reads_a_doubled_buffer_does_not_depend_on_sizes(step: int) -> None:
    a = te.placeholder((2,), "int32", name="A")
    b = te.compute((3,), lambda i: te.select(i < 2, a[i], 0), name="B")
    func = te.func([a, b], name="main")
    sch = Schedule(func, symbolic=True)
    block = sch.get_block("B")
    size = sch.sample_categorical([2, 3, 4, 5, 8])
    _, inner = sch.split(sch.get_loops(block)[0], factors=[None, size])
    copy = sch.cache_read(block, 0, "local")
    sch.compute_at(copy, inner)
    sch.double_buffer(copy, inner)
    assert len(sch.get_consumers(copy)) == 2
    check(sch.trace.with_row([step]).apply(func))


def test_a_part_of_a_fused_reduction_does_not_begin_it_again() -> None:
    sch = Schedule(rowsum(3, 8))
    block = sch.get_block("S")
    sch.transform_block_layout(block, lambda i, r: (i, r // 4, r % 4))
    copy = sch.cache_read(block, 0, "local")
    fused = sch.fuse(*loops(sch, "S")[1:])
    sch.compute_at(copy, fused)
    sch.loop_partition(fused, at=5)
    part, (part_copy, _) = sch.loop_partition(fused, at=3)  # the places (0, 3) and (1, 0)
    with pytest.raises(ScheduleError):
        sch.double_buffer(part_copy, part)


def test_the_tail_of_a_reduction_does_not_begin_it_again() -> None:
    sch = Schedule(rowsum(3, 7))
    block = sch.get_block("S")
    copy = sch.cache_read(block, 0, "local")
    _, inner = sch.split(loops(sch, "S")[1], factors=[None, 5])
    sch.compute_at(copy, inner)
    tail, (tail_copy, _) = sch.loop_partition(inner, at=3)
    sch.double_buffer(tail_copy, tail)
    check(sch)


def test_nothing_to_compute_is_compiled_too() -> None:
    a = te.placeholder((0, 8), "int64", name="A")
    func = te.func([a, te.compute((0, 8), lambda i, j: a[i, j] * 2, name="B")], name="main")
    sch = Schedule(func)
    block = sch.get_block("B")
    sch.reindex_cache_write(block, 0, "global", lambda i, j: (j, i))
    _, inner = sch.split(sch.get_loops(block)[1], factors=[None, 3])
    sch.vectorize(inner)
    check(sch)
    check_compiled(func, sch.func)


def test_a_rolling_buffer_of_nothing_is_not_copied() -> None:
    a = te.placeholder((7, 0), "int32", name="A")
    b = te.compute((6, 0), lambda i, j: a[i, j] + a[i + 1, j], name="B")
    c = te.compute((4, 0), lambda i, j: b[i, j] + b[i + 2, j], name="C")
    sch = Schedule(te.func([a, c], name="main"))
    producer, consumer = sch.get_block("B"), sch.get_block("C")
    loop = sch.get_loops(consumer)[0]
    sch.compute_at(producer, loop)
    sch.rolling_buffer(producer, 0)
    sch.fission(loop)
    with pytest.raises(ScheduleError):
        sch.cache_read(consumer, 0, "local")


def test_what_a_moved_block_left_out_is_not_read_elsewhere() -> None:
    a = placeholder(3, 6)
    b = te.compute((3, 6), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((3, 6), lambda i, j: b[i, j] * 2, name="C")
    sch = Schedule(
        te.func([a, te.compute((3, 6), lambda i, j: c[i, j] + 1, name="D")], name="main")
    )
    consumer = sch.get_block("C")
    packed = sch.pack(consumer, 0, "ABb", [5], "global")
    local = sch.cache_write(packed, 0, "local")
    sch.compute_at(local, sch.get_loops(consumer)[1])
    sch.compute_at(packed, sch.get_loops(local)[1])
    outer, _ = sch.get_loops(sch.get_block("D"))
    sch.compute_at(consumer, outer)
    with pytest.raises(ScheduleError):
        sch.compute_at(local, outer)


@pytest.mark.parametrize("width", [2, 3])
def test_a_tile_that_ends_early_is_known_to_be_written(width: int) -> None:
    a = placeholder(2, 4)
    w = te.placeholder((3, 2), "int32", name="W")
    k = te.reduce_axis(2, name="k")
    b = te.compute((3, 4), lambda i, j: te.sum(w[i, k] * a[k, j], k), name="B")
    func = te.func([w, a, te.compute((3, 4), lambda i, j: b[i, j] + 1, name="C")], name="main")
    sch = Schedule(func, symbolic=True)
    product = sch.get_block("B")
    j = sch.get_loops(product)[1]
    sch.blockize(j)
    outer, inner = sch.get_loops(sch.get_block("C"))
    sch.compute_at(product, outer)
    size = sch.sample_categorical([1, 2, 3])
    packed = sch.pack(product, 1, "AaB", [size], "local")
    sch.compute_at(packed, sch.get_loops(product)[1])
    sch.split(sch.get_loops(packed)[3], factors=[None, 4, 4], perfect=False)
    sch.compute_at(product, inner)
    check(sch.trace.with_row([width]).apply(func))


@pytest.mark.parametrize("size", [1, 4, 8])
def test_what_can_be_asked_for_ahead_does_not_depend_on_sizes(size: int) -> None:
    a = placeholder(8)
    b = te.compute(
        (8,), lambda i: te.select(i > 0, a[i - 1], 0) + te.select(i < 7, a[i + 1], 0), name="B"
    )
    func = te.func([a, b], name="main")
    sch = Schedule(func, symbolic=True)
    block = sch.get_block("B")
    step = sch.sample_categorical([1, 4, 8])
    outer, _ = sch.split(sch.get_loops(block)[0], factors=[None, step])
    sch.prefetch(block, 0, outer, offset=3)
    check(sch.trace.with_row([size]).apply(func))


def test_rfactor_keeps_no_guard_on_a_loop_that_it_leaves() -> None:
    sch = Schedule(rowsum(3, 4))
    i, r = loops(sch, "S")
    unit = sch.add_unit_loop(i)
    sch.split(unit, factors=[None, 2], perfect=False)
    with pytest.raises(ScheduleError):
        sch.rfactor(r)


def test_what_is_written_later_has_no_value_to_update() -> None:
    sch = Schedule(
        parse("""
def main(A: T.Buffer((5,), "int32"), B: T.Buffer((5,), "int32")):
    for i in range(4):
        with T.block("B"):
            v = T.axis.spatial(5, i)
            B[v] = A[v]
    for i in range(4):
        with T.block("U"):
            v = T.axis.spatial(4, i)
            B[v] = B[v] + 1
    for i in range(1):
        with T.block("rest"):
            v = T.axis.spatial(5, i + 4)
            B[v] = A[v]
""")
    )
    with pytest.raises(ScheduleError):
        sch.cache_inplace(sch.get_block("U"), 0, "local")


@pytest.mark.parametrize(
    ("layout", "places"),
    [(lambda i, j: i, 4), (lambda i, j: (j,), 6), (lambda i, j: (0, 0), 1), (lambda i, j: (), 1)],
)
def test_a_layout_that_leaves_out_an_index_is_refused(
    layout: Callable[..., object], places: int
) -> None:
    a = placeholder(4, 6)
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1, name="B")
    sch = Schedule(te.func([a, te.compute((4, 6), lambda i, j: b[i, j] * 2, name="C")]))
    with refused(ScheduleError, "24", "B", places):
        sch.transform_layout(sch.get_block("B"), ("write", 0), layout)


def test_a_layout_of_no_elements_keeps_them_apart() -> None:
    a = placeholder(4, 0)
    b = te.compute((4, 0), lambda i, j: a[i, j] + 1, name="B")
    sch = Schedule(te.func([a, te.compute((4, 0), lambda i, j: b[i, j] * 2, name="C")]))
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i, j: (i // 2, j))
    check(sch)


def test_what_a_reduction_starts_with_is_not_placed_by_its_reduce_iterations() -> None:
    sch = Schedule(
        parse("""
def main(A: T.Buffer((4, 5), "int32"), P: T.Buffer((4,), "int32"), S: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 5):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = P[vi]
            S[vi] = S[vi] + A[vi, vk]
""")
    )
    block = sch.get_block("S")
    reads = [r.buffer.name for r in find_block(sch.func, block).reads]
    index = [name for name in dict.fromkeys(reads) if name != "S"].index("P")
    with pytest.raises(ScheduleError):
        sch.reindex_cache_read(block, index, "local", lambda i, k: (i, k))
    sch.reindex_cache_read(block, index, "local", lambda i, k: (i,))
    check(sch)


def test_a_loop_of_one_iteration_may_be_asked_ahead_of() -> None:
    """Sizes that are open may turn out to be one, and what such a loop moves is simplified away."""
    a = placeholder(4, 4)
    sch = Schedule(te.func([a, te.compute((4, 4), lambda i, j: a[i, j] + 1, name="B")]))
    block = sch.get_block("B")
    sch.prefetch(block, 0, sch.add_unit_loop(block))
    check(sch)


@pytest.mark.parametrize("symbolic", [True, False])
def test_a_window_that_starts_below_zero_is_one_loop_however_large(symbolic: bool) -> None:
    """A window as large as its dimension was read whole, where an open one slid: the steps after it
    differed, too."""
    f = parse("""
def main(A: T.Buffer((7,), "int64"), B: T.Buffer((9,), "int64")):
    for i in range(9):
        with T.block("B"):
            vi = T.axis.spatial(9, i)
            B[vi] = T.select((vi >= 1) & (vi < 8), A[vi - 1], 0)
""")
    sch = Schedule(f, symbolic=symbolic)
    inner = sch.sample_categorical([2, 8], decision=[8])
    outer, _ = sch.split(sch.get_loops(sch.get_block("B"))[0], factors=[None, inner])
    sch.compute_at(sch.cache_read(sch.get_block("B"), 0, "local"), outer)
    sch.fission(outer, after=None)
    if sch.space is None:
        check(sch)
    else:
        assert not sch.space.constraints


@pytest.mark.parametrize(
    ("count", "read"), [("0", "vi * 8 // 0"), ("5", "vi // (5 - vi)"), ("5", "4 % (5 - vi)")]
)
def test_a_window_is_not_moved_to_where_its_divisor_is_zero(count: str, read: str) -> None:
    sch = Schedule(
        parse(f"""
def main(A: T.Buffer((8,), "int32"), C: T.Buffer(({count},), "int32")):
    B = T.alloc((8,), "int32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] + 1
    for i in range({count}):
        with T.block("C"):
            vi = T.axis.spatial({count}, i)
            C[vi] = B[{read}] * 2
""")
    )
    (outer,) = sch.split(sch.get_loops(sch.get_block("C"))[0], factors=[8], perfect=False)
    sch.compute_at(sch.get_block("B"), outer)
    check(sch)


def test_indices_that_depend_on_open_decisions_stay() -> None:
    """How many there are to compute would be another with each decision."""
    a = te.placeholder((5, 4), "int32", name="A")
    sch = Schedule(
        te.func([a, te.compute((20,), lambda i: a[i // 4, i % 4] + 1, name="B")]), symbolic=True
    )
    factor = sch.sample_categorical([1, 2, 3])
    packed = sch.pack(sch.get_block("B"), 0, "BAba", [factor, 5])
    with pytest.raises(ScheduleError):
        sch.cache_index(packed, "global")


def test_a_parallel_loop_is_not_put_around_one_that_writes_the_same_again() -> None:
    a = placeholder(8, 4)
    sch = Schedule(te.func([a, te.compute((5, 4), lambda i, j: a[i, j] + a[i + 3, j], name="B")]))
    block = sch.get_block("B")
    written = sch.cache_write(block, 0, "shared")
    _, inner = sch.split(sch.get_loops(block)[0], factors=[None, 4])
    copy = sch.cache_read(block, 0, "local")
    sch.compute_at(copy, inner)
    rows = sch.get_loops(copy)[2]
    sch.parallel(rows)
    sch.compute_at(block, sch.get_loops(written)[-1])
    with pytest.raises(ScheduleError):
        sch.reorder(rows, inner)
    check(sch)


def test_a_block_in_a_loop_of_no_iterations_writes_nothing() -> None:
    a = placeholder(1)
    sch = Schedule(te.func([a, te.compute((0,), lambda i: a[0] + i, name="B")]))
    (loop,) = sch.get_loops(sch.get_block("B"))
    copy = sch.cache_read(sch.get_block("B"), 0, "local")
    sch.compute_at(copy, loop)
    sch.fission(loop, after=None)
    with pytest.raises(ScheduleError):
        sch.cache_write(copy, 0, "shared")
    check(sch)


def test_a_pipeline_is_refused_where_its_versions_depend_on_open_decisions() -> None:
    """A handle of a buffer in versions has an index more than one of the buffer."""
    a = placeholder(4, 8)
    b = te.compute((4, 8), lambda i, j: a[i, j] + 1, name="B")
    sch = Schedule(
        te.func([a, te.compute((4, 8), lambda i, j: b[i, j] * 2, name="C")]), symbolic=True
    )
    size = sch.sample_categorical([1, 2, 3, 4, 5, 8])
    _, outer, _ = sch.split(sch.get_loops(sch.get_block("C"))[1], factors=[None, 2, size])
    sch.compute_at(sch.get_block("B"), outer)
    sch.split(sch.get_loops(sch.get_block("B"))[-1], factors=[None, 4])
    with pytest.raises(ScheduleError):
        sch.pipeline(outer, [0, 1])


@pytest.mark.parametrize("size", [None, 2, 3])
def test_an_open_factor_is_no_loop_of_a_reduction(size: int | None) -> None:
    """It was taken for zero at the first visit of each partial result, which then seemed to run."""
    a = placeholder(7)
    k = te.reduce_axis(7, name="k")
    f = te.func([a, te.compute((1,), lambda i: te.sum(a[k + i], axis=k), name="S")])
    sch = Schedule(f, symbolic=size is None)
    block = sch.get_block("S")
    outer, _ = sch.split(sch.get_loops(block)[1], factors=[None, 3])
    partial = sch.rfactor(outer, 0)
    factor = sch.sample_categorical([2, 3], decision=[size])
    pieces, _ = sch.split(sch.get_loops(partial)[-1], factors=[None, factor])
    if size == 3:
        sch.rfactor(pieces, 0)
        check(sch)
    else:
        with pytest.raises(ScheduleError):
            sch.rfactor(pieces, 0)


def test_a_loop_of_unknown_reach_under_an_open_factor() -> None:
    """It was given a number for its reach, and 16 times that is no int64."""
    a = te.placeholder((6, 0), "float32", name="A")
    f = te.func([a, te.compute((6, 0), lambda i, j: a[i, j] + 1, name="B")])
    sch = Schedule(f, symbolic=True)
    factor = sch.sample_categorical([2, 3])
    block = sch.get_block("B")
    outer, _ = sch.split(sch.get_loops(block)[0], factors=[None, factor])
    copy = sch.cache_read(block, 0, "local")
    sch.compute_at(copy, outer)
    sch.fuse(*sch.get_loops(copy)[1:])
    sch.transform_layout(copy, ("write", 0), lambda i, j: (i * 8 + j,))
    for choice in (2, 3):
        check_meaning(f, sch.trace.with_row([choice]).apply(f).func)


def test_versions_by_a_loop_of_an_open_extent() -> None:
    """The first block had a variable less than a step after it knew of, where the extent was 1."""
    a = placeholder(8)
    f = te.func([a, te.compute((5,), lambda i: a[i % 8] * 2, name="B")])

    def staged(decision: int | None) -> tuple[Schedule, Label]:
        sch = Schedule(f, symbolic=decision is None)
        factor = sch.sample_categorical([3, 8], decision=[decision])
        block = sch.get_block("B")
        _, inner = sch.split(sch.get_loops(block)[0], factors=[None, factor])
        copy = sch.cache_read(block, 0, "local")
        sch.compute_at(copy, inner)
        first, _ = sch.double_buffer(copy, inner)
        return sch, first

    open_, first = staged(None)
    assert len(find_block(open_.func, first).iters) == 2
    assert open_.space is not None
    (single,) = [c for c in open_.space.constraints if "single iteration" in c.message]
    (factor,) = open_.space.bounds
    for decision, count in ((3, 2), (8, 1)):
        sch, first = staged(decision)
        check(sch)
        assert len(find_block(sch.func, first).iters) == count
        assert prove(substitute(single.condition, {factor: const(decision)})) is (count == 2)


@pytest.mark.parametrize("init", ["0", "A[vi]"])
def test_a_reduction_of_two_elements_does_not_follow_one(init: str) -> None:
    """Both its variables followed the loop that makes one element: pairs of others were lost."""
    func = parse(f"""
@tw.script
def pairs(A: T.Buffer((3,), "int32"), C: T.Buffer((3,), "int32")):
    for i, k in T.grid(3, 3):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = {init}
            C[vi] = C[vi] + A[vi] * A[vk]
""")
    sch = Schedule(func)
    block = sch.get_block("C")
    copy = sch.cache_read(block, 0, "local")
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(block, sch.get_loops(copy)[0])
    check(sch)


def test_unit_that_reads_more_than_an_iteration_has_produced() -> None:
    """It reads 7 elements from the one on at which it follows what a loop writes."""
    func = parse("""
def sums(A: T.Buffer((7,), "float32"), S: T.Buffer((7,), "float32")):
    for i, r in T.grid(7, 1):
        with T.block("S"):
            vi, vr = T.axis.remap("SR", [i, r])
            with T.init():
                S[vi] = 0.0
            S[vi] = S[vi] + A[vi + vr]
""")
    sch = Schedule(func)
    block = sch.get_block("S")
    sch.blockize(sch.get_loops(block)[0])
    copy = sch.cache_read(block, 0, "local")
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(block, sch.get_loops(copy)[0])


def test_a_reduction_that_ends_a_loop_of_its_results_leaves_some_out() -> None:
    func = parse(
        """
@tw.script
def f(A: T.Buffer((1,), "int32"), B: T.Buffer((2,), "int32")):
    S = T.alloc((2,), "int32")
    for i, k in T.grid(2, 1):
        with T.block("S"):
            vi = T.axis.spatial(2, i + k)
            vk = T.axis.reduce(1, k)
            with T.init():
                S[vi] = 0
            S[vi] = S[vi] + A[vk]
    for i in range(2):
        with T.block("B"):
            vi = T.axis.spatial(2, i)
            B[vi] = S[vi] * 2
"""
    )
    sch = Schedule(func)
    i, k = loops(sch, "S")
    sch.split(k, factors=[None, 2])
    sch.reverse_compute_at(sch.get_block("B"), i)
    check(sch)


def test_a_layout_simplifies_the_indices_of_what_a_block_reads() -> None:
    # The value has the dtype of indices: it is none.
    func = parse(
        dedent("""
        @tw.script
        def sums(A: T.Buffer((5, 4), "int64"), B: T.Buffer((20,), "int64")):
            for i, j, k in T.grid(5, 4, 4):
                with T.block("B"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        B[vi * 4 + vj] = 0
                    if vj >= 2:
                        B[vi * 4 + vj] = B[vi * 4 + vj] + A[vi, vk]
        """)
    )
    sch = Schedule(func)
    sch.transform_block_layout(sch.get_block("B"), index_map=lambda i, j, k: (i * 4 + j, k))
    check(sch)


@pytest.mark.parametrize("parallel", [False, True])
def test_a_fused_loop_starts_each_element_under_its_condition(parallel: bool) -> None:
    func = parse(
        dedent("""
        @tw.script
        def lowest(A: T.Buffer((5, 8), "int32"), B: T.Buffer((5,), "int32"),
                   M: T.Buffer((5,), "int32")):
            for i, k in T.grid(5, 8):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        if M[vi] > 0:
                            B[vi] = 2147483647
                    if M[vi] > 0:
                        B[vi] = T.minimum(B[vi], A[vi, vk])
        """)
    )
    sch = Schedule(func)
    fused = sch.fuse(*sch.get_loops(sch.get_block("B")))
    if parallel:
        with pytest.raises(ScheduleError):
            sch.parallel(fused)
        return
    check(sch)
