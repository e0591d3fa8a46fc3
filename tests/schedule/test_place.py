"""`compute_at` and `reverse_compute_at`."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_meaning
from .programs import chain, loops, matmul, matmul_relu, stencil


def test_at(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        outer, _ = sch.split(loops(sch, "C")[0], factors=[None, 4])
        sch.compute_at(sch.get_block("B"), outer)

    golden("compute_at/tile", chain(), script)


def test_at_with_a_halo(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        outer, _ = sch.split(loops(sch, "C")[0], factors=[None, 4])
        sch.compute_at(sch.get_block("B"), outer)

    golden("compute_at/halo", stencil(), script)


def test_at_with_a_tail(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        outer, _ = sch.split(loops(sch, "C")[0], factors=[None, 5])
        sch.compute_at(sch.get_block("B"), outer)

    golden("compute_at/tail", stencil(), script)


def test_reduction_at(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, _ = loops(sch, "D")
        outer, _ = sch.split(i, factors=[None, 2])
        sch.compute_at(sch.get_block("C"), outer)

    golden("compute_at/reduction", matmul_relu(), script)


def test_reverse_at(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        outer, _ = sch.split(loops(sch, "B")[0], factors=[None, 5])
        sch.reverse_compute_at(sch.get_block("C"), outer)

    golden("reverse_compute_at/tail", chain(), script)


def test_reverse_at_outside_of_a_reduction(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        _, j, _ = loops(sch, "C")
        sch.reverse_compute_at(sch.get_block("D"), j)

    golden("reverse_compute_at/reduction", matmul_relu(), script)


def test_partial_sums_where_they_are_made(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        outer, _ = sch.split(k, factors=[None, 5])
        partial = sch.rfactor(outer, 0)
        i, j, outer, _ = sch.get_loops(partial)
        sch.reorder(outer, i, j)
        sch.reverse_compute_at(block, j)

    golden("reverse_compute_at/partial_sums", matmul(), script)


def test_without_consumer() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="block C writes C, a parameter"):
        sch.compute_at(sch.get_block("C"), loops(sch, "B")[0])


def test_consumer_elsewhere() -> None:
    sch = Schedule(fork())
    with pytest.raises(ScheduleError, match="block D consumes B but is not inside loop i"):
        sch.compute_at(sch.get_block("B"), loops(sch, "C")[0])


def test_already_there() -> None:
    sch = Schedule(chain())
    i = loops(sch, "C")[0]
    sch.compute_at(sch.get_block("B"), i)
    with pytest.raises(ScheduleError, match="block B is inside loop i already"):
        sch.compute_at(sch.get_block("B"), i)


def test_inside_of_the_reduction() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError, match="block C is still being reduced over loop r at loop r"):
        sch.reverse_compute_at(sch.get_block("D"), loops(sch, "C")[2])


def test_no_producer_there() -> None:
    sch = Schedule(fork())
    with pytest.raises(ScheduleError, match="no producer of block D is inside loop i"):
        sch.reverse_compute_at(sch.get_block("D"), loops(sch, "C")[0])


def test_consumer_of_neighbours() -> None:
    sch = Schedule(stencil())
    with pytest.raises(ScheduleError, match="block C reads B beyond what is known to be written"):
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[0])


def test_producer_not_computed_yet() -> None:
    sch = Schedule(late())
    with pytest.raises(ScheduleError, match="block C, which block D needs, is computed after"):
        sch.reverse_compute_at(sch.get_block("D"), loops(sch, "B")[0])


def test_reverse_reduction_at(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[1])

    golden("reverse_compute_at/sums", sums_of_map(), script)


def test_into_a_vector() -> None:
    sch = Schedule(chain())
    (i,) = loops(sch, "C")
    sch.vectorize(i)
    with pytest.raises(ScheduleError, match="loop i is vectorized; block B would bring loops"):
        sch.compute_at(sch.get_block("B"), i)


def fork() -> Func:
    """B = A + 1, read by C = B * 2 and by D = B * 3."""
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] + 1, name="B")
    c = te.compute((6,), lambda i: b[i] * 2, name="C")
    d = te.compute((6,), lambda i: b[i] * 3, name="D")
    return te.func([a, c, d], name="fork")


def late() -> Func:
    """D = B + C of two maps of A."""
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] + 1, name="B")
    c = te.compute((6,), lambda i: a[i] * 2, name="C")
    d = te.compute((6,), lambda i: b[i] + c[i], name="D")
    return te.func([a, d], name="late")


def sums_of_map() -> Func:
    """B = A + 1, then C = the sums of the rows of B."""
    a = te.placeholder((6, 4), "int32", name="A")
    b = te.compute((6, 4), lambda i, j: a[i, j] + 1, name="B")
    r = te.reduce_axis(4, name="r")
    c = te.compute((6,), lambda i: te.sum(b[i, r], axis=r), name="C")
    return te.func([a, c], name="sums")


def test_what_reads_the_values_of_before_is_not_moved_behind_what_overwrites_them() -> None:
    x, s = te.placeholder((4,), name="X"), te.placeholder((4,), name="S")
    y = te.compute((4,), lambda i: s[i] - x[i], name="Y")
    sch = Schedule(te.func([s, x], name="updated", inplace={y: x}))
    block = sch.get_block("Y")
    before, after = sch.cache_inplace(block, 0, "local")
    sch.distinguish_updates(block, read_buffer_index=0)
    (loop,) = sch.get_loops(after)
    with pytest.raises(ScheduleError, match="overwrites what block .* has read before"):
        sch.reverse_compute_at(before, loop)


def test_at_of_an_index_that_wraps_around() -> None:
    """A multiple of a number that is passed may be any int64; 2**64 is no multiple of 3."""
    func = parse("""
@tw.script
def turned(A: T.Buffer((3,), "int32"), step: T.int64, B: T.Buffer((3,), "int32")):
    for i in T.serial(3):
        with T.block("B"):
            vi = T.axis.spatial(3, i)
            B[vi] = A[(vi * step + 3) % 3]
""")
    sch = Schedule(func)
    (i,) = loops(sch, "B")
    sch.compute_at(sch.cache_read(sch.get_block("B"), 0, "local"), i)
    verify(sch.func)
    a = np.arange(3, dtype=np.int32)
    for step in (1, 2**63 - 2, 2**62 + 1, -(2**63)):
        expected, found = np.empty_like(a), np.empty_like(a)
        interpret(func, a, step, expected)
        interpret(sch.func, a, step, found)
        assert (found == expected).all()


def test_at_of_an_index_whose_terms_are_in_another_order() -> None:
    func = parse("""
@tw.script
def turned(A: T.Buffer((4, 6), "int32"), step: T.uint8, B: T.Buffer((4, 6), "int32")):
    for i, u, j in T.grid(4, 1, 6):
        with T.block("B"):
            vi = T.axis.spatial(4, i + u)
            vj = T.axis.spatial(6, j)
            B[vi, vj] = A[(vi + T.int64(step)) // 128 % 4, vj]
""")
    sch = Schedule(func)
    i, _, _ = loops(sch, "B")
    sch.compute_at(sch.cache_read(sch.get_block("B"), 0, "local"), i)
    verify(sch.func)
    check_meaning(func, sch.func)
