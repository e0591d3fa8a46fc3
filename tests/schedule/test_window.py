"""`rolling_buffer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.find import blocks_in
from tilewright.tir import te
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Func, Var
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import chain, loops, matmul, stencil


def test_a_stencil(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        b = sch.get_block("B")
        sch.compute_at(b, sch.get_loops(sch.get_block("C"))[0])
        sch.rolling_buffer(b, 0)

    sch = golden("rolling_buffer/stencil", stencil(), script)
    check_compiled(sch.original, sch.func)


def test_lines_of_an_image_in_parallel_tiles(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        b = sch.get_block("B")
        y, _ = sch.get_loops(sch.get_block("C"))
        outer, inner = sch.split(y, factors=[None, 4])
        sch.parallel(outer)
        sch.compute_at(b, inner)
        sch.rolling_buffer(b, 0)
        sch.vectorize(sch.get_loops(b)[-1])

    sch = golden("rolling_buffer/lines", blurred(10, 9), script)
    check_compiled(sch.original, sch.func)


def test_windows_that_move_by_two() -> None:
    sch = Schedule(pooled(17))
    b = sch.get_block("B")
    sch.compute_at(b, loops(sch, "C")[0])
    sch.rolling_buffer(b, 0)
    assert sch.func.allocs[0].shape == (3,)
    correct(sch)


def test_two_windows_in_one_loop() -> None:
    sch = Schedule(smoothed_twice())
    b, c = sch.get_block("B"), sch.get_block("C")
    (i,) = loops(sch, "D")
    sch.compute_at(c, i)
    sch.compute_at(b, i)
    sch.rolling_buffer(b, 0)
    sch.rolling_buffer(c, 0)
    assert sorted(x.shape for x in sch.func.allocs) == [(3,), (5,)]
    correct(sch)


def test_a_window_of_sums() -> None:
    sch = Schedule(sums_of_neighbours())
    s = sch.get_block("S")
    sch.compute_at(s, loops(sch, "C")[0])
    sch.rolling_buffer(s, 0)
    correct(sch)


@pytest.mark.parametrize("factor", [3, 5, 16])
def test_steps_that_follow(factor: int) -> None:
    sch = rolled()
    (i,) = loops(sch, "C")
    outer, inner = sch.split(i, factors=[None, factor])
    sch.unroll(inner)
    if factor < 16:
        sch.loop_partition(outer)
    correct(sch)


def test_unrolled() -> None:
    sch = Schedule(text(PLAIN + "B[vi] = A[vi]", loop="T.unrolled(8)"))
    sch.rolling_buffer(sch.get_block("B"), 0)
    correct(sch)


def tiled(func: Func, sizes: Sequence[int]) -> tuple[Any, list[Var]]:
    """A schedule with the last block in tiles, the others computed for each, and loops of tiles."""
    sch: Any = Schedule(func)
    *others, last = [b.label.name for b in blocks_in(func.body)]
    parts = [
        sch.split(loop, factors=[None, size])
        for loop, size in zip(sch.get_loops(last), sizes, strict=False)
    ]
    outer, inner = [p[0] for p in parts], [p[1] for p in parts]
    sch.reorder(*outer, *inner)
    for name in reversed(others):
        sch.compute_at(name, outer[-1])
    return sch, outer


@pytest.mark.parametrize(
    ("sizes", "loop", "shape"),
    [
        ((8, 4, 3), None, (10, 6, 3)),
        ((4, 8, 3), None, (6, 10, 3)),
        ((4, 4, 1), None, (10, 6, 3)),
        ((4, 4, 1), 1, (10, 6, 3)),
        ((4, 4, 1), 0, (6, 10, 3)),
        ((6, 5, 3), None, (10, 7, 3)),
        ((6, 5, 3), 0, (8, 10, 3)),
    ],
)
def test_tiles_of_an_image(
    sizes: tuple[int, int, int], loop: int | None, shape: tuple[int, ...]
) -> None:
    sch, outer = tiled(largest(8, 3), sizes)
    sch.rolling_buffer("B", 0, loop=None if loop is None else outer[loop])
    assert sch.func.allocs[0].shape == shape
    correct(sch)


def test_lines_that_tiles_inside_share(golden: Golden) -> None:
    def script(sch: Any) -> None:
        y, x = sch.get_loops(sch.get_block("C"))
        tile, _ = sch.split(x, factors=[None, 3])
        sch.compute_at(sch.get_block("B"), tile)
        sch.rolling_buffer(sch.get_block("B"), 0, loop=y)

    sch = golden("rolling_buffer/outer", blurred(6, 9), script)
    check_compiled(sch.original, sch.func)


@pytest.mark.parametrize("order", ["BC", "CB"])
@pytest.mark.parametrize("level", [None, 0, 1])
def test_tiles_of_two_stages(order: str, level: int | None) -> None:
    sch, outer = tiled(largest(8, 2, strided=True), (4, 4, 2))
    for name in order:
        sch.rolling_buffer(name, 0, loop=None if level is None else outer[level])
    shapes = {b.name: b.shape for b in sch.func.allocs}
    want = ({"B": (13, 21, 2), "C": (6, 10, 2)} if level == 0
            else {"B": (21, 13, 2), "C": (10, 6, 2)})  # fmt: skip
    assert shapes == want
    correct(sch)


@pytest.mark.parametrize("loop", [None, 0, 1])
def test_windows_that_move_by_two_or_three(loop: int | None) -> None:
    """Of two pixels for each one: five of them start at 0, 2, 5, 7 and 10."""
    sch, outer = tiled(enlarged(), (5, 5))
    sch.rolling_buffer("B", 0, loop=None if loop is None else outer[loop])
    assert sch.func.allocs[0].shape == ((5, 14) if loop == 0 else (14, 5))
    correct(sch)


def test_a_window_of_two_loops() -> None:
    sch: Any = Schedule(stencil(26))
    i0, i1, _ = sch.split(loops(sch, "C")[0], factors=[None, 4, 2])
    sch.compute_at("B", i1)
    sch.rolling_buffer("B", 0, loop=i0)
    assert sch.func.allocs[0].shape == (10,)
    correct(sch)


def test_a_window_that_moves_by_one_or_two() -> None:
    body = "vi = T.axis.spatial(11, i + i // 4 + a)\nB[vi] = A[vi]"
    sch: Any = Schedule(text(body, shape="11,", value="B[vi + vi // 4]"))
    sch.rolling_buffer("B", 0)
    assert sch.func.allocs[0].shape == (3,)
    correct(sch)


def test_a_loop_that_is_not_shared() -> None:
    sch, outer = tiled(largest(8, 3), (4, 4, 1))
    inner = sch.get_loops("B")[-1]
    with pytest.raises(ScheduleError):
        sch.rolling_buffer("B", 0, loop=inner)
    with pytest.raises(ScheduleError):
        sch.rolling_buffer("B", 0, loop=outer[2])
    assert sch.func.allocs == sch.original.allocs


def test_tiles_that_run_at_once_afterwards() -> None:
    """What rolls within a strip is of that strip, whether it is made parallel before or after."""
    scheduled = []
    for first in (True, False):
        sch: Any = Schedule(blurred(10, 9))
        outer, inner = sch.split(loops(sch, "C")[0], factors=[None, 4])
        if first:
            sch.parallel(outer)
        sch.compute_at("B", inner)
        sch.rolling_buffer("B", 0)
        if not first:
            sch.parallel(outer)
        correct(sch)
        scheduled.append(sch)
    assert structural_equal(scheduled[0].func, scheduled[1].func)


def test_tiles_that_share_lines_stay_in_order() -> None:
    sch, (y, x, _) = tiled(largest(8, 3), (4, 4, 1))
    sch.rolling_buffer("B", 0, loop=y)
    for step in (sch.parallel, sch.vectorize):
        for loop in (y, x):
            with pytest.raises(ScheduleError):
                step(loop)
    with pytest.raises(ScheduleError, match="opaque"):
        sch.reorder(x, y)
    correct(sch)


def test_it_stays_in_order() -> None:
    sch = rolled()
    (i,) = loops(sch, "C")
    window = sch.get_loops(sch.get_block("B"))[-1]
    for step in ("parallel", "vectorize"):
        with pytest.raises(ScheduleError):
            getattr(sch, step)(i)
        trial = sch.copy()
        getattr(trial, step)(window)  # of different elements in an iteration of i
        correct(trial)
    with pytest.raises(ScheduleError):
        sch.fission(i)
    with pytest.raises(ScheduleError, match="opaque"):
        sch.compute_at(sch.get_block("B"), i)


def test_who_reads_a_window_stays_in_its_loop() -> None:
    sch = Schedule(smoothed_twice())
    b = sch.get_block("B")
    sch.compute_at(b, loops(sch, "C")[0])
    sch.rolling_buffer(b, 0)
    words = (
        "block B keeps only a window of B, which block . must read in its loop|block B updates it"
    )
    with pytest.raises(ScheduleError, match=words):
        sch.compute_at(sch.get_block("C"), loops(sch, "D")[0])
    with pytest.raises(ScheduleError, match=words):
        sch.compute_inline(sch.get_block("C"))
    correct(sch)


def test_no_shared_loop() -> None:
    sch = Schedule(stencil())
    with refused(ScheduleError, "B"):
        sch.rolling_buffer(sch.get_block("B"), 0)


def test_no_consumer() -> None:
    sch = Schedule(unused())
    with refused(ScheduleError, "B"):
        sch.rolling_buffer(sch.get_block("B"), 0)


def test_an_output() -> None:
    sch = Schedule(matmul())
    with refused(ScheduleError, "C"):
        sch.rolling_buffer(sch.get_block("C"), 0)


def test_several_outputs() -> None:
    sch = Schedule(two_results())
    b = sch.get_block("L")
    sch.compute_at(b, loops(sch, "C")[0])
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(b, 0)


def test_nothing_to_share() -> None:
    sch = Schedule(chain())
    b = sch.get_block("B")
    sch.compute_at(b, loops(sch, "C")[0])
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(b, 0)


def test_loops_that_run_at_once() -> None:
    sch = Schedule(stencil())
    b = sch.get_block("B")
    (i,) = loops(sch, "C")
    sch.compute_at(b, i)
    sch.parallel(i)
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(b, 0)
    sch = Schedule(stencil())
    b = sch.get_block("B")
    sch.compute_at(b, loops(sch, "C")[0])
    sch.vectorize(sch.get_loops(b)[1])
    with refused(ScheduleError, "vectorized"):
        sch.rolling_buffer(b, 0)


def test_a_loop_of_one_iteration() -> None:
    sch = Schedule(stencil(3))
    b = sch.get_block("B")
    sch.compute_at(b, loops(sch, "C")[0])
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(b, 0)


def test_sizes_that_are_open() -> None:
    sch = Schedule(stencil(), symbolic=True)
    (i,) = loops(sch, "C")
    outer, _ = sch.split(i, factors=sch.sample_perfect_tile(i, 2, 8))
    sch.compute_at(sch.get_block("B"), outer)
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(sch.get_block("B"), 0)


def test_windows_of_open_sizes() -> None:
    sch = Schedule(filtered(), symbolic=True)
    i, k = loops(sch, "C")
    outer, inner = sch.split(k, factors=sch.sample_perfect_tile(k, 2, 8))
    sch.reorder(outer, i, inner)
    sch.compute_at(sch.get_block("B"), i)
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(sch.get_block("B"), 0)


LOOP = """
@tw.script
def f(A: T.Buffer((40,), "int32"), C: T.Buffer((8,), "int32"){1}):
    B = T.alloc(({2}), "int32")
    for i in {4}:
        for a in range(3):
            with T.block("B"):
                {0}
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = {3}
"""


def text(
    body: str,
    params: str = "",
    shape: str = "10,",
    value: str = "B[vi] + B[vi + 2]",
    loop: str = "range(8)",
) -> Func:
    body = body.replace("\n", "\n" + " " * 16)
    return parse(LOOP.replace("{0}", body).replace("{1}", params).replace("{2}", shape)
                 .replace("{3}", value).replace("{4}", loop))  # fmt: skip


PLAIN = "vi = T.axis.spatial(10, i + a)\n"


def test_the_plain_case_of_the_following() -> None:
    sch = Schedule(text(PLAIN + "B[vi] = A[vi]"))
    sch.rolling_buffer(sch.get_block("B"), 0)
    correct(sch)


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (
            text("vi, vj = T.axis.remap('SS', [i, a])\nB[vi, vj] = A[vi + vj]", shape="8, 3",
                 value="B[vi, 0]"),
            "compute 1 elements each, 1 apart; they share none",
        ),
        (
            text("vi = T.axis.spatial(10, i + a)\nvj = T.axis.spatial(10, i + a)\n"
                 "B[vi, vj] = A[vi + vj]", shape="10, 10", value="B[vi, vi]"),
            "loop i moves 2 iteration variables of block B",
        ),
        (
            text("vi = T.axis.spatial(10, i + a)\nvj = T.axis.spatial(3, a)\nB[vi] = A[vi + vj]"),
            "a loop feeds both vi and vj of block B",
        ),
        (
            text("vi = T.axis.spatial(10, 9 - i - a)\nB[vi] = A[vi]", value="B[7 - vi]"),
            "is no window that moves ahead",
        ),
        (
            text("vi = T.axis.spatial(10, 7 - i + a)\nB[vi] = A[vi]", value="B[7 - vi]"),
            "is no window that moves ahead",
        ),
        (
            text("vi = T.axis.spatial(13, i + i // 4 * 3 + a)\nB[vi] = A[vi]", shape="13,",
                 value="B[vi + vi // 4 * 3]"),
            "compute 3 elements each, 3 apart; they share none",
        ),
        (
            text("vi = T.axis.spatial(10, i - i // 4 * 2 + a)\nB[vi] = A[vi]",
                 value="B[vi - vi // 4 * 2]"),
            "is no window that moves ahead",
        ),
        (
            text("vi = T.axis.reduce(10, i + a)\nwith T.init():\n    B[vi] = 0\nB[vi] = A[vi]"),
            "block B stores to other elements of B in each iteration of its reduction",
        ),
        (
            text("vi = T.axis.spatial(24, i + a * 8)\nB[vi] = A[vi]", shape="24,",
                 value="B[vi + 8]"),
            "beyond what is known to be written|is no window that moves ahead",
        ),
        (
            text(PLAIN + "T.where(i < 9 - a * 2)\nB[vi] = A[vi]", value="B[vi]"),
            "only runs where i < 9 - a . 2, which depends on more than the element",
        ),
        (
            text(PLAIN + "B[vi % 8] = A[vi]"),
            "moves 1 iteration variables of block B; expected one, that indexes B",
        ),
        (
            text(PLAIN + "B[vi] = A[vi] + 1", value="B[vi + 3]"),
            "block C reads B beyond what is known to be written",
        ),
    ],
)  # fmt: skip
def test_what_is_no_window(func: Func, words: str) -> None:
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=words):
        sch.rolling_buffer(sch.get_block("B"), 0)


def test_a_dimension_that_is_no_plain_variable() -> None:
    sch = Schedule(text(PLAIN + "B[vi, 1] = A[vi]", shape="10, 2", value="B[vi, 1]"))
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(sch.get_block("B"), 0)


def test_a_unit_of_a_line() -> None:
    sch = Schedule(blurred(10, 9))
    block = sch.get_block("B")
    sch.compute_at(block, loops(sch, "C")[0])
    sch.blockize(sch.get_loops(block)[-1])
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(block, 0)


def test_several_places() -> None:
    sch = Schedule(text(PLAIN + "B[vi] = A[vi]\nB[vi] = A[vi] + 1\nB[9 - vi] = A[vi]"))
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(sch.get_block("B"), 0)


def test_sources_that_change_in_the_loop() -> None:
    sch = Schedule(
        parse(
            """
@tw.script
def f(X: T.Buffer((10,), "int32"), C: T.Buffer((8,), "int32")):
    T.inplace(X)
    B = T.alloc((10,), "int32")
    for i in range(8):
        for a in range(3):
            with T.block("B"):
                vi = T.axis.spatial(10, i + a)
                B[vi] = X[vi]
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + B[vi + 2]
        with T.block("X"):
            vi = T.axis.spatial(8, i)
            X[vi + 1] = C[vi]
"""
        )
    )
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(sch.get_block("B"), 0)


FED = """
@tw.script
def f(A: T.Buffer((40,), "int32"), C: T.Buffer((8,), "int32")):
    X = T.alloc((10,), "int32")
    B = T.alloc((10,), "int32")
    for i in range(8):
{0}
        for a in range(3):
            with T.block("B"):
                vi = T.axis.spatial(10, i + a)
                B[vi] = {1}
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + B[vi + 2]
"""
FILLED = """
        for b in range(3):
            with T.block("X"):
                vi = T.axis.spatial(10, i + b)
                X[vi] = A[vi]
"""
CHANGED = """
        with T.block("Y"):
            vi = T.axis.spatial(8, i)
            X[vi + 1] = 5
"""
LAST = """
        with T.block("X"):
            vi = T.axis.opaque(8, i)
            X[0] = A[vi]
"""
TOTAL = """
        with T.block("X"):
            vx = T.axis.spatial(1, 0)
            vi = T.axis.reduce(8, i)
            with T.init():
                X[vx] = 0
            X[vx] = X[vx] + A[vi]
"""


def test_sources_that_are_made_in_the_loop() -> None:
    sch = Schedule(parse(FED.replace("{0}", FILLED).replace("{1}", "X[vi]")))
    sch.rolling_buffer(sch.get_block("B"), 0)
    correct(sch)


@pytest.mark.parametrize(
    ("made", "value", "words"),
    [
        (FILLED + CHANGED, "X[vi]", r"X, which block B reads, changes in loop i \(in block X\)"),
        (LAST, "X[0]", r"X, which block B reads, changes in loop i \(in block X\)"),
        (TOTAL, "X[0]", "block X is still being reduced over loop i where block B reads it"),
    ],
    ids=["by another block", "in order", "a sum"],
)
def test_sources_that_are_not_the_same_in_all_iterations(made: str, value: str, words: str) -> None:
    sch = Schedule(parse(FED.replace("{0}", made).replace("{1}", value)))
    with pytest.raises(ScheduleError, match=words):
        sch.rolling_buffer(sch.get_block("B"), 0)


OUTER = """
@tw.script
def f(A: T.Buffer((8, 10), "int32"), C: T.Buffer((8, 8), "int32")):
    X = T.alloc((1,), "int32")
    B = T.alloc((10,), "int32")
    for t in range({0}):
        for i in range(8):
            with T.block("X"):
                vt = T.axis.opaque(8, {1})
                X[0] = A[vt, 0]
            for a in range(3):
                with T.block("B"):
                    vi = T.axis.spatial(10, {2} + a)
                    B[vi] = A[0, vi] + X[0]
            with T.block("C"):
                vt, vi = T.axis.remap("SS", {3})
                C[vt, vi] = B[{4}] + B[{4} + 2]
"""


def outer(extent: int, source: str, place: str, where: str, read: str) -> Func:
    """A window of B that adds an element which X takes in order."""
    values = (str(extent), source, place, where, read)
    program = OUTER
    for n, value in enumerate(values):
        program = program.replace(f"{{{n}}}", value)
    return parse(program)


def test_sources_that_loops_inside_change() -> None:
    """Iteration t has the window of t - 1 in the same iteration of i, and X as it was there."""
    sch = Schedule(outer(8, "i", "t", "[t, i]", "vt"))
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(sch.get_block("B"), 0, loop=loops(sch, "C")[0])
    assert sch.func is sch.original


def test_iterations_that_compute_nothing() -> None:
    """What iteration i = 1 would have computed is missing from the window of i = 2."""
    func = parse("""
@tw.script
def f(A: T.Buffer((10,), "int32"), C: T.Buffer((8,), "int32")):
    T.inplace(C)
    B = T.alloc((10,), "int32")
    for i in range(8):
        if i % 2 == 0:
            for a in range(3):
                with T.block("B"):
                    vi = T.axis.spatial(10, i + a)
                    B[vi] = A[vi]
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi] + B[vi + 1] + B[vi + 2]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(sch.get_block("B"), 0)
    assert sch.func is func


def test_in_the_lanes_of_a_vector() -> None:
    sch = Schedule(
        parse(
            """
@tw.script
def f(A: T.Buffer((4, 10), "int32"), C: T.Buffer((4, 8), "int32")):
    B = T.alloc((4, 10), "int32")
    for l in T.vectorized(4):
        for i in T.unrolled(8):
            for a in T.unrolled(3):
                with T.block("B"):
                    vl = T.axis.spatial(4, l)
                    vi = T.axis.spatial(10, i + a)
                    B[vl, vi] = A[vl, vi]
            with T.block("C"):
                vl, vi = T.axis.remap("SS", [l, i])
                C[vl, vi] = B[vl, vi] + B[vl, vi + 2]
"""
        )
    )
    with pytest.raises(ScheduleError):
        sch.rolling_buffer(sch.get_block("B"), 0)


def correct(sch: Schedule) -> None:
    verify(sch.func)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def rolled() -> Schedule:
    """A stencil that keeps the last three elements."""
    sch = Schedule(stencil())
    b = sch.get_block("B")
    sch.compute_at(b, loops(sch, "C")[0])
    sch.rolling_buffer(b, 0)
    return sch


def blurred(n: int, m: int) -> Func:
    """The sums of three lines of A * 2."""
    a = te.placeholder((n + 2, m), "int32", name="A")
    b = te.compute((n + 2, m), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + b[i + 1, j] + b[i + 2, j], name="C")
    return te.func([a, c], name="blurred")


def pooled(n: int) -> Func:
    """Every other sum of three neighbours."""
    a = te.placeholder((n,), "int32", name="A")
    b = te.compute((n,), lambda i: a[i] * 2, name="B")
    c = te.compute(((n - 1) // 2,), lambda i: b[i * 2] + b[i * 2 + 1] + b[i * 2 + 2], name="C")
    return te.func([a, c], name="pooled")


def smoothed_twice() -> Func:
    """D is the sums of three neighbours of C, as C is of B."""
    a = te.placeholder((14,), "int32", name="A")
    b = te.compute((14,), lambda i: a[i] * 2, name="B")
    c = te.compute((12,), lambda i: b[i] + b[i + 1] + b[i + 2], name="C")
    d = te.compute((10,), lambda i: c[i] + c[i + 1] + c[i + 2], name="D")
    return te.func([a, d], name="smoothed")


def sums_of_neighbours() -> Func:
    """C[i] = S[i] + S[i + 1], of row sums S."""
    a = te.placeholder((9, 4), "int32", name="A")
    r = te.reduce_axis(4, name="r")
    s = te.compute((9,), lambda i: te.sum(a[i, r], axis=r), name="S")
    c = te.compute((8,), lambda i: s[i] + s[i + 1], name="C")
    return te.func([a, c], name="neighbours")


def filtered() -> Func:
    """The sums of eight neighbours of A * 2."""
    a = te.placeholder((16,), "int32", name="A")
    b = te.compute((16,), lambda i: a[i] * 2, name="B")
    k = te.reduce_axis(8, name="k")
    c = te.compute((9,), lambda i: te.sum(b[i + k], axis=k), name="C")
    return te.func([a, c], name="filtered")


def largest(n: int, channels: int, *, strided: bool = False) -> Func:
    """The largest of 3 x 3 pixels twice; `strided`, thrice, of every other pixel in between."""
    middle = n + 2
    wide = 2 * middle + 1 if strided else middle
    a = te.placeholder((wide + 2, wide + 2, channels), "int32", name="A")

    def stage(x: te.Tensor, size: int, step: int, name: str) -> te.Tensor:
        r, s = te.reduce_axis(3, name="r"), te.reduce_axis(3, name="s")
        return te.compute(
            (size, size, channels),
            lambda i, j, c: te.max(x[i * step + r, j * step + s, c], axis=(r, s)),
            name=name,
        )

    b = stage(a, wide, 1, "B")
    c = stage(b, middle, 2, "C") if strided else b
    return te.func([a, stage(c, n, 1, "D")], name="largest")


def enlarged() -> Func:
    """The sums of three neighbours, each way, of an image of twice the size of B."""
    a = te.placeholder((14, 14), "int32", name="A")
    b = te.compute((14, 14), lambda i, j: a[i, j] * 2, name="B")
    r = te.reduce_axis(3, name="r")
    d = te.compute((24, 24), lambda i, j: te.sum(b[i // 2 + r, j // 2 + r], axis=r), name="D")
    return te.func([a, d], name="enlarged")


def two_results() -> Func:
    """A block with two results, of which neighbours are added."""
    a = te.placeholder((9,), "int32", name="A")
    low, high = te.compute((9,), lambda i: (a[i] - 1, a[i] + 1), name=("L", "H"))
    c = te.compute((8,), lambda i: low[i] * high[i + 1] + low[i + 1] * high[i], name="C")
    return te.func([a, c], name="two")


def unused() -> Func:
    """B is computed and read by nobody."""
    return parse(
        """
@tw.script
def f(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    B = T.alloc((4,), "int32")
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi]
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = A[vi]
"""
    )
