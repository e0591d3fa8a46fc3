"""`compute_at` and `reverse_compute_at`."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning, check_replays
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
    with refused(ScheduleError, "C"):
        sch.compute_at(sch.get_block("C"), loops(sch, "B")[0])


def test_consumer_elsewhere() -> None:
    sch = Schedule(fork())
    with pytest.raises(ScheduleError):
        sch.compute_at(sch.get_block("B"), loops(sch, "C")[0])


def test_already_there() -> None:
    sch = Schedule(chain())
    i = loops(sch, "C")[0]
    sch.compute_at(sch.get_block("B"), i)
    with pytest.raises(ScheduleError):
        sch.compute_at(sch.get_block("B"), i)


def test_inside_of_the_reduction() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError) as refusal:
        sch.reverse_compute_at(sch.get_block("D"), loops(sch, "C")[2])
    assert refusal.value.place.name == "C"


def test_no_producer_there() -> None:
    sch = Schedule(fork())
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("D"), loops(sch, "C")[0])


def test_consumer_of_neighbours() -> None:
    sch = Schedule(stencil())
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[0])


def test_producer_not_computed_yet() -> None:
    sch = Schedule(late())
    with refused(ScheduleError, "C", "D"):
        sch.reverse_compute_at(sch.get_block("D"), loops(sch, "B")[0])


def test_reverse_reduction_at(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[1])

    golden("reverse_compute_at/sums", sums_of_map(), script)


def test_into_a_vector() -> None:
    sch = Schedule(chain())
    (i,) = loops(sch, "C")
    sch.vectorize(i)
    with pytest.raises(ScheduleError):
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
    with pytest.raises(ScheduleError):
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


Tiling = list[tuple[int, int]]


def copied(
    shape: tuple[int, ...], extents: tuple[int, ...], result: str, size: int | None = None
) -> Func:
    """B = A * 2 of a `shape`, then C of `extents`, the `result` of its iterations c0, c1, ...

    With `size`, B has that many rows, of which only those of the shape are computed.
    """
    rows = shape if size is None else (size, *shape[1:])
    texts = []
    for name, prefix, sizes, value in (
        ("B", "p", shape, "A[{0}] * 2.0"),
        ("C", "c", extents, result),
    ):
        indices = ", ".join(f"{prefix}{d}" for d in range(len(sizes)))
        inside = "    " * len(sizes)
        lines = [f"{'    ' * (d + 1)}for {prefix}_{d} in range({n}):" for d, n in enumerate(sizes)]
        lines.append(f'{inside}    with T.block("{name}"):')
        domain = rows if name == "B" else sizes
        lines += [
            f"{inside}        {prefix}{d} = T.axis.spatial({n}, {prefix}_{d})"
            for d, n in enumerate(domain)
        ]
        lines.append(f"{inside}        {name}[{indices}] = {value.format(indices)}")
        texts.append("\n".join(lines))
    body = "\n".join(texts)
    return parse(f"""
def copied(A: T.Buffer({shape}, "float32"), C: T.Buffer({extents}, "float32")):
    B = T.alloc({rows}, "float32")
{body}
""")


def tiled(sch: Schedule, tiles: Tiling) -> None:
    """Split loops of B, in turn: their positions, and the factors."""
    for position, factor in tiles:
        sch.split(loops(sch, "B")[position], factors=[None, factor])


@pytest.mark.parametrize(
    ("shape", "extents", "place", "tiles", "position"),
    [
        ((8, 16), (128,), "c0 // 16, c0 % 16", [], 0),
        ((8, 16), (128,), "c0 // 16, c0 % 16", [], 1),
        ((8, 16), (128,), "c0 // 16, c0 % 16", [(0, 3)], 0),
        ((8, 16), (128,), "c0 // 16, c0 % 16", [(1, 4)], 1),
        ((12, 8), (96,), "c0 // 8, c0 % 8", [(0, 5), (1, 2)], 1),
        ((16, 8), (128,), "c0 % 16, c0 // 16", [], 0),
        ((3, 5, 16), (6, 5, 8), "(c0 * 8 + c2) // 16, c1, (c0 * 8 + c2) % 16", [], 1),
        ((1, 6, 4, 3, 2, 5, 2), (3, 24, 20),
         "c0 // 8, c1 // 4, c2 // 5, c0, c1 % 4 // 2, c2 % 5, c1 % 2", [], 2),
        ((96,), (8, 12), "c0 * 12 + c1", [(0, 24)], 0),
        ((96,), (8, 12), "c0 * 12 + c1", [(0, 6)], 0),
        ((96,), (8, 12), "c0 * 12 + c1", [(0, 18)], 0),
        ((12,), (12,), "11 - c0", [(0, 4)], 0),
        ((12,), (7,), "c0 + 3", [(0, 4)], 0),
        ((12,), (6,), "c0 * 2", [(0, 4)], 0),
    ],
)  # fmt: skip
def test_reverse_at_through_indices_that_tell_the_iterations(
    shape: tuple[int, ...], extents: tuple[int, ...], place: str, tiles: Tiling, position: int
) -> None:
    func = copied(shape, extents, f"B[{place}] + 1.0")
    sch = Schedule(func)
    tiled(sch, tiles)
    outer = loops(sch, "B")
    sch.reverse_compute_at(sch.get_block("C"), outer[position])
    verify(sch.func)
    check_meaning(func, sch.func)
    check_replays(func, sch)
    check_compiled(func, sch.func)
    sch.parallel(outer[0])
    check_meaning(func, sch.func)


def test_reverse_at_through_fused_loops() -> None:
    func = copied((12, 7), (84,), "B[c0 // 7, c0 % 7] + 1.0")
    sch = Schedule(func)
    outer, _ = sch.split(sch.fuse(*loops(sch, "B")), factors=[None, 16])
    sch.reverse_compute_at(sch.get_block("C"), outer)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def test_reverse_at_of_another_layout(golden: Golden) -> None:
    func = copied((3, 16), (6, 8), "B[(c0 * 8 + c1) // 16, (c0 * 8 + c1) % 16] + 1.0")
    golden(
        "reverse_compute_at/layout",
        func,
        lambda s: s.reverse_compute_at(s.get_block("C"), loops(s, "B")[0]),
    )


def test_reverse_at_below_two_splits_with_a_tail(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        tiled(sch, [(0, 5), (1, 2)])
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[1])

    golden("reverse_compute_at/two_tails", chain(12), script)


@pytest.mark.parametrize("position", [0, 1, 2, 3])
@pytest.mark.parametrize("place", ["c0, c1", "c1, c0"])
@pytest.mark.parametrize("tiles", [[(0, 5), (1, 2), (3, 3)], [(0, 11), (1, 5), (2, 2)]])
def test_reverse_at_below_splits_with_tails(tiles: Tiling, place: str, position: int) -> None:
    extents = (13, 7) if place == "c0, c1" else (7, 13)
    func = copied((13, 7), extents, f"B[{place}] + 1.0")
    sch = Schedule(func)
    tiled(sch, tiles)
    outer = loops(sch, "B")
    sch.reverse_compute_at(sch.get_block("C"), outer[position])
    verify(sch.func)
    check_meaning(func, sch.func)
    check_replays(func, sch)
    check_compiled(func, sch.func)
    sch.parallel(outer[0])
    check_meaning(func, sch.func)


@pytest.mark.parametrize(
    ("extents", "result"),
    [
        ((8,), "B[c0 % 4, c0 // 4 * 0] + 1.0"),
        ((4, 3), "B[c0, 0] * B[3 - c0, c1]"),
        ((4, 3), "B[c0 * c1 % 4, c1 // 2]"),
        ((16,), "T.select(c0 < 8, B[c0 // 4, c0 % 4], 1.0)"),
    ],
)
def test_reverse_at_where_indices_do_not_tell_the_iterations(
    extents: tuple[int, ...], result: str
) -> None:
    sch = Schedule(copied((4, 4), extents, result))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[0])


def test_a_sum_does_not_follow_through_fused_indices() -> None:
    """Its parts would come in the order in which the elements are written, without its init."""
    a = te.placeholder((24,), name="A")
    b = te.compute((24,), lambda i: a[i] * 2, name="B")
    r = te.reduce_axis(4, name="r")
    c = te.compute((6,), lambda i: te.sum(b[i * 4 + r], axis=r), name="C")
    sch = Schedule(te.func([a, c], name="sums"))
    outer, _ = sch.split(loops(sch, "B")[0], factors=[None, 6])
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("C"), outer)


def test_what_also_runs_where_nothing_is_computed_stays() -> None:
    """Regression: values of C were left out where B has elements that nothing computes or reads."""
    sch = Schedule(copied((4,), (8,), "T.select(c0 < 4, B[c0], 1.0)", size=8))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("C"), loops(sch, "B")[0])


PARTS = {
    "steps": ("range(16)", "T.axis.opaque(16, i)", "B[vi + 1] = B[vi] + A[vi]"),
    "half": ("range(8)", "T.axis.spatial(8, i)", "B[vi] = A[vi]"),
    "half of its domain": ("range(8)", "T.axis.spatial(16, i)", "B[vi] = A[vi]"),
    "every second": ("range(8)", "T.axis.spatial(8, i)", "B[2 * vi] = A[vi]"),
    "behind others": ("range(8)", "T.axis.spatial(8, i)", "B[vi + 5] = A[vi]"),
    "some again": ("range(8)", "T.axis.spatial(8, i)", "B[vi + 5] = B[vi + 5] * 2.0"),
}


@pytest.mark.parametrize("index", ["vi", "16 - vi"])
@pytest.mark.parametrize("first", ["given", "stored"])
@pytest.mark.parametrize("name", PARTS)
def test_who_reads_more_than_a_block_stores_stays(name: str, first: str, index: str) -> None:
    """Regression: elements of C were left out where others than P store what it reads."""
    extent, axis, store = PARTS[name]
    stored = """
    B = T.alloc((17,), "float32")
    for i in range(17):
        with T.block("B"):
            vi = T.axis.spatial(17, i)
            B[vi] = -A[vi]
"""
    func = parse(f"""
def f(A: T.Buffer((17,), "float32"), {'B: T.Buffer((17,), "float32"), ' if first == "given" else ""}
      C: T.Buffer((17,), "float32")):
    {"T.inplace(B)" if first == "given" else stored}
    for i in {extent}:
        with T.block("P"):
            vi = {axis}
            {store}
    for i in range(17):
        with T.block("C"):
            vi = T.axis.spatial(17, i)
            C[vi] = B[{index}] + 1.0
""")
    sch = Schedule(func)
    consumer, (loop,) = sch.get_block("C"), loops(sch, "P")
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(consumer, loop)
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.cache_read(consumer, 0, "global"), loop)


@pytest.mark.parametrize(
    ("condition", "moves"), [("vi < 0", False), ("vi != 1", True), ("k < 3", True)]
)
def test_what_an_init_alone_wrote_is_read_too(condition: str, *, moves: bool) -> None:
    """Regression: values of C were left out where no update of B follows the init."""
    func = parse(f"""
@tw.script
def f(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc((4,), "float32")
    for i in range(4):
        with T.block("start"):
            vi = T.axis.spatial(4, i)
            B[vi] = 1.0
        for k in range(6):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.opaque(6, k)
                T.where({condition})
                B[vi] = B[vi] * 0.5 + A[vi, vk]
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = B[vi] * 2.0
""")
    sch = Schedule(func)
    target = sch.get_loops(sch.get_block("B"))[0]
    if moves:
        sch.reverse_compute_at(sch.get_block("C"), target)
    else:
        with pytest.raises(ScheduleError):
            sch.reverse_compute_at(sch.get_block("C"), target)
    check_meaning(func, sch.func)
