"""`reindex`, `reindex_cache_read` and `reindex_cache_write`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Expr, Func
from tilewright.tir.parser import parse

from ..codegen.borders import BORDERS, SPELLINGS
from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import elementwise, loops, matmul, matmul_relu, stencil

Bend = Callable[[Expr, int], Expr]


def test_reads_in_the_order_of_iterations(golden: Golden) -> None:
    golden("reindex/read", strided(), lambda s: s.reindex(s.get_block("B"), ("read", 0)))


def test_writes_in_the_order_of_iterations(golden: Golden) -> None:
    golden("reindex/write", matmul(), lambda s: s.reindex(s.get_block("C"), ("write", 0)))


def test_places_that_data_choose(golden: Golden) -> None:
    golden("reindex/gather", gather(), lambda s: s.reindex(s.get_block("B"), ("read", 0)))


def test_read_by_a_map(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        copy = sch.reindex_cache_read(block, 1, "global", lambda i, j, k: (j // 4, k, j % 4))
        sch.reorder(*reversed(sch.get_loops(copy)))

    golden("reindex_cache_read/panels", matmul(), script)


def test_a_copy_that_repeats(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        sch.reindex_cache_read(sch.get_block("C"), 0, "local", lambda i, j, k: (j, k, i))

    golden("reindex_cache_read/repeated", matmul(2, 3, 4), script)


def clamped(index: Expr, extent: int) -> Expr:
    return te.maximum(te.minimum(index, extent - 1), 0)


def window(bend: Bend, h: int = 5, w: int = 9, stride: int = 1) -> Func:
    """Windows of 3 by 4 elements, at places that `bend` gives."""
    x = te.placeholder((h, w), "int32", name="X")
    r, q = te.reduce_axis(3, name="r"), te.reduce_axis(4, name="q")
    y = te.compute(
        (h, -(-w // stride)),
        lambda i, j: te.max(
            x[bend(i + r - 1, h), bend(j * stride + q - 2, w)] - x[i, j], axis=[r, q]
        ),
        name="Y",
    )
    sch = Schedule(te.func([x, y], name="window"))
    sch.distinguish_reads(sch.get_block("Y"), 0)
    return sch.func


def test_a_window_is_copied_once(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        copy = sch.reindex_cache_read(
            sch.get_block("Y"), 0, "local", lambda i, j, r, q: (i + r, j + q)
        )
        sch.unroll(sch.get_loops(copy)[0])

    sch = golden("reindex_cache_read/window", window(clamped), script)
    check_compiled(sch.original, sch.func)


@pytest.mark.parametrize("stride", [1, 2, 5])
@pytest.mark.parametrize("turned", [False, True])
def test_windows_at_places_that_a_map_turns(stride: int, turned: bool) -> None:
    sch = Schedule(window(lambda e, n: (e + n) % n, stride=stride))
    sch.reindex_cache_read(
        sch.get_block("Y"),
        0,
        "global",
        lambda i, j, r, q: (j * stride + q, 9 - (i + r)) if turned else (i + r, j * stride + q + 3),
    )
    assert len(loops(sch, "X_global")) == 2
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


@pytest.mark.parametrize(
    "places",
    [
        lambda i, j, r, q: (i + r, j + q // 2),
        lambda i, j, r, q: (i + r, j * 2 + q),
        lambda i, j, r, q: (i + r,),
    ],
)
def test_a_window_that_a_map_makes_smaller(places: Callable[..., tuple[Expr, ...]]) -> None:
    sch = Schedule(window(clamped))
    with pytest.raises(ScheduleError):
        sch.reindex_cache_read(sch.get_block("Y"), 0, "global", places)


@pytest.mark.parametrize(("mode", "spelling"), SPELLINGS)
def test_windows_with_any_border_are_copied_once(mode: str, spelling: str) -> None:
    sch = Schedule(window(BORDERS[mode][spelling]))
    label = sch.get_block("Y")
    copy = sch.reindex_cache_read(label, 0, "global", lambda i, j, r, q: (i + r, j + q))
    assert sch.func.allocs[-1].shape == (7, 12)
    assert len(sch.get_loops(copy)) == 2
    check_meaning(sch.original, sch.func)


def test_a_window_that_reaches_beyond_its_border() -> None:
    """Reflected once, an index of -3 of a row of 3 elements is 3."""
    sch = Schedule(guarded_reflection())
    with pytest.raises(ScheduleError):
        sch.reindex_cache_read(sch.get_block("B"), 0, "global", lambda i: (i,))


def guarded_reflection() -> Func:
    x = te.placeholder((3,), "int32", name="X")
    return te.func(
        [
            x,
            te.compute(
                (6,),
                lambda i: te.select(i >= 1, x[te.where(i < 3, 3 - i, i - 3)], 0),
                name="B",
            ),
        ]
    )


def test_windows_that_share_nothing_are_copied_by_their_iterations() -> None:
    """At the places between them the source has no elements."""
    x, q = te.placeholder((2,), "int32", name="X"), te.reduce_axis(2, name="q")
    y = te.compute((3,), lambda i: te.max(x[(i * 4 + q) % 4] * i, axis=q), name="Y")
    sch = Schedule(te.func([x, y]))
    sch.reindex_cache_read(sch.get_block("Y"), 0, "global", lambda i, q: (i * 4 + q,))
    assert len(loops(sch, "X_global")) == 2
    check_meaning(sch.original, sch.func)


def test_a_map_without_a_known_range() -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError):
        sch.reindex_cache_read(sch.get_block("B"), 0, "local", lambda i, j: (i, j, i // j))


def test_write_by_a_map(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        copy = sch.reindex_cache_write(block, 0, "local", lambda i, j, k: (j, i))
        sch.reverse_compute_at(copy, sch.get_loops(block)[0])

    golden("reindex_cache_write/transposed", matmul(), script)


def test_symbolic_sizes() -> None:
    sch = Schedule(matmul(), symbolic=True)
    block = sch.get_block("C")
    _, f = sch.sample_perfect_tile(sch.get_loops(block)[1], 2, 8)
    sch.reindex_cache_read(block, 1, "global", lambda i, j, k: (j // f, k, j % f))
    sch.reindex(block, ("write", 0))
    again = Schedule(sch.original)
    for step in sch.trace:
        again.replay(step)
    check_meaning(again.original, again.func)
    check_compiled(again.original, again.func)


def test_several_results() -> None:
    sch = Schedule(extremes())
    sch.reindex(sch.get_block("L"), ("write", 1))
    sch.reindex(sch.get_block("L"), ("read", 0))
    check_meaning(sch.original, sch.func)


def test_no_elements() -> None:
    sch = Schedule(matmul(0, 4, 3))
    copy = sch.reindex_cache_read(sch.get_block("C"), 0, "global", lambda i, j, k: (i * 9 + k,))
    assert copy.name == "A_global"
    assert sch.func.allocs[0].shape == (0,)
    check_meaning(sch.original, sch.func)


def test_what_is_no_buffer() -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError):
        sch.reindex(sch.get_block("B"), ("both", 0))


def test_several_places() -> None:
    sch = Schedule(stencil())
    with pytest.raises(ScheduleError):
        sch.reindex(sch.get_block("C"), ("read", 0))


def test_place_that_the_body_binds() -> None:
    sch = Schedule(bound_inside())
    with pytest.raises(ScheduleError, match="depends on x, which is bound in its body"):
        sch.reindex(sch.get_block("B"), ("read", 0))


def test_padding() -> None:
    sch = Schedule(padded())
    with pytest.raises(ScheduleError):
        sch.reindex(sch.get_block("B"), ("read", 0))


def test_division() -> None:
    sch = Schedule(divided())
    with pytest.raises(ScheduleError):
        sch.reindex(sch.get_block("B"), ("read", 1))


def test_read_under_a_condition() -> None:
    sch = Schedule(half_written())
    with pytest.raises(ScheduleError):
        sch.reindex(sch.get_block("C"), ("read", 0))


def test_read_in_a_part_of_the_reduction() -> None:
    """Each first iteration of a partial sum reads an element, but not each iteration does."""
    sch = Schedule(partial_sums())
    with pytest.raises(ScheduleError):
        sch.reindex(sch.get_block("C"), ("read", 0))


def test_place_from_what_is_written_in_part() -> None:
    sch = Schedule(half_known())
    with pytest.raises(ScheduleError):
        sch.reindex(sch.get_block("C"), ("read", 0))


def test_map_that_loses_elements() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.reindex_cache_read(sch.get_block("C"), 1, "global", lambda i, j, k: (j // 2, k))
    with pytest.raises(ScheduleError):
        sch.reindex_cache_write(sch.get_block("C"), 0, "global", lambda i, j, k: (i,))


def test_map_of_another_rank() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError) as refusal:
        sch.reindex_cache_read(sch.get_block("C"), 1, "global", lambda i, j: (i, j))
    assert refusal.value.place.name == "C"


def test_map_below_zero() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.reindex_cache_read(sch.get_block("C"), 1, "global", lambda i, j, k: (j - 1, k))


def test_map_into_the_distance() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.reindex_cache_read(sch.get_block("C"), 1, "global", lambda i, j, k: (j * 99999, k))


def test_one_place_for_an_element_of_a_reduction() -> None:
    sch = Schedule(matmul())
    with refused(ScheduleError, "vr", "reduce"):
        sch.reindex_cache_write(sch.get_block("C"), 0, "global", lambda i, j, k: (i, j, k))


def test_unknown_scope() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.reindex_cache_read(sch.get_block("C"), 1, "L1", lambda i, j, k: (j, k))
    with pytest.raises(ScheduleError):
        sch.reindex_cache_write(sch.get_block("C"), 0, "L1", lambda i, j, k: (i, j))


def test_update_in_place() -> None:
    x = te.placeholder((4,), "int32", name="X")
    y = te.compute((4,), lambda i: x[i] + 1, name="Y")
    sch = Schedule(te.func([x], name="inc", inplace={y: x}))
    with pytest.raises(ScheduleError, match="updated in place|reads X, which it writes"):
        sch.reindex(sch.get_block("Y"), ("write", 0))


def test_output_in_place_of_what_is_not_read() -> None:
    sch = Schedule(
        parse(
            """
@tw.script
def f(A: T.Buffer((4,), "int32"), X: T.Buffer((4,), "int32")):
    T.inplace(X)
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            X[vi] = A[vi]
"""
        )
    )
    with pytest.raises(ScheduleError):
        sch.reindex(sch.get_block("B"), ("write", 0))


def test_stores_under_a_condition() -> None:
    sch = Schedule(
        parse(
            """
@tw.script
def f(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            if A[vi] > 0:
                B[vi] = A[vi]
"""
        )
    )
    with pytest.raises(ScheduleError):
        sch.reindex(sch.get_block("B"), ("write", 0))


def test_several_stores_to_an_element() -> None:
    text = """
@tw.script
def f(A: T.Buffer((4,), "int32"), B: T.Buffer((16,), "int32")):
    for i, j in T.grid(4, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[{0}] = A[0]
"""
    sch = Schedule(parse(text.replace("{0}", "vi")))
    with pytest.raises(ScheduleError):
        sch.reindex(sch.get_block("B"), ("write", 0))
    sch = Schedule(parse(text.replace("{0}", "vi + vj")))
    with pytest.raises(ScheduleError):
        sch.reindex(sch.get_block("B"), ("write", 0))


def test_relu_reads_its_own_tile() -> None:
    sch = Schedule(matmul_relu())
    sch.reindex(sch.get_block("D"), ("read", 0))
    sch.reindex(sch.get_block("C"), ("write", 0))
    check_meaning(sch.original, sch.func)


def strided() -> Func:
    """B[i, j] = A[j * 2, i] * 3."""
    a = te.placeholder((16, 6), "int32", name="A")
    b = te.compute((6, 8), lambda i, j: a[j * 2, i] * 3, name="B")
    return te.func([a, b], name="strided")


def gather() -> Func:
    """B[i] = A[P[i]]."""
    a = te.placeholder((10,), "int32", name="A")
    p = te.placeholder((6,), "int32", name="P", value_range=(0, 10))
    b = te.compute((6,), lambda i: a[p[i]] + 1, name="B")
    return te.func([a, p, b], name="gather")


def padded() -> Func:
    """B[i] = A[i - 1], or 0 at the border."""
    a = te.placeholder((8,), "int32", name="A")
    b = te.compute((9,), lambda i: te.select(i >= 1, a[i - 1], 0), name="B")
    return te.func([a, b], name="padded")


def divided() -> Func:
    """B[i] = A[i % N[i]] where N[i] is positive."""
    return parse(
        """
@tw.script
def f(N: T.Buffer((8,), "int64"), A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = T.select(N[vi] > 0, A[T.minimum(T.maximum(vi // N[vi], 0), 7)], 0)
"""
    )


def bound_inside() -> Func:
    """B[i] = A[x] with x = i // 2."""
    return parse(
        """
@tw.script
def f(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            x = vi // 2
            B[vi] = A[x]
"""
    )


def half_written() -> Func:
    """C[i] = B[i] of the even i, which alone are written."""
    return parse(
        """
@tw.script
def f(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    B = T.alloc((8,), "int32")
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi * 2] = A[vi]
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.select(vi % 2 == 0, B[vi], 0)
"""
    )


def partial_sums() -> Func:
    """Partial sums of pairs of 7 elements: the last pair lacks one."""
    return parse("""
@tw.script
def partial_sums(A: T.Buffer((7,), "int32"), C: T.Buffer((4,), "int32")):
    B = T.alloc((4, 2), "int32")
    for i, j in T.grid(4, 2):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where(i * 2 + j < 7)
            B[vi, vj] = A[vi * 2 + vj] + 1
    for i, j in T.grid(4, 2):
        with T.block("C"):
            vi, vj = T.axis.remap("SR", [i, j])
            T.where(i * 2 + j < 7)
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + B[vi, vj]
""")


def half_known() -> Func:
    """C[i] = A[P[i]] of the even i, of which alone P is written."""
    return parse(
        """
@tw.script
def f(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    P = T.alloc((8,), "int64", value_range=(0, 8))
    for i in range(4):
        with T.block("P"):
            vi = T.axis.spatial(4, i)
            P[vi * 2] = vi
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.select(vi % 2 == 0, A[P[vi]], 0)
"""
    )


def extremes() -> Func:
    """The sum and difference of neighbours."""
    a = te.placeholder((6, 8), "int32", name="A")
    low, high = te.compute((6, 8), lambda i, j: (a[i, j] - 1, a[i, j] + 1), name=("L", "H"))
    return te.func([a, low, high], name="extremes")
