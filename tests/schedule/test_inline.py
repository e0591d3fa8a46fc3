"""`compute_inline` and `reverse_compute_inline`."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.find import blocks_in
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning, check_replays
from .programs import chain, loops, matmul_relu, stencil


def test_inline(golden: Golden) -> None:
    golden("compute_inline/chain", chain(), lambda s: s.compute_inline(s.get_block("B")))


def test_inline_into_several_reads(golden: Golden) -> None:
    golden("compute_inline/stencil", stencil(), lambda s: s.compute_inline(s.get_block("B")))


def test_inline_of_a_unit() -> None:
    sch = Schedule(chain())
    block = sch.get_block("B")
    sch.blockize(sch.split(sch.get_loops(block)[0], factors=[None, 4])[1])
    with pytest.raises(ScheduleError):
        sch.compute_inline(block)


def test_epilogue_of_a_sum_in_two_blocks() -> None:
    sch = Schedule(matmul_relu())
    sch.decompose_reduction(sch.get_block("C"), sch.get_loops(sch.get_block("C"))[2])
    with pytest.raises(ScheduleError):
        sch.reverse_compute_inline(sch.get_block("D"))


def test_inline_into_a_reduction(golden: Golden) -> None:
    golden("compute_inline/reduction", scaled(), lambda s: s.compute_inline(s.get_block("B")))


def test_reverse_inline(golden: Golden) -> None:
    golden(
        "reverse_compute_inline/chain",
        chain(),
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


def test_reverse_inline_of_a_transpose(golden: Golden) -> None:
    golden(
        "reverse_compute_inline/transpose",
        turned(),
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


def test_inline_of_several_results(golden: Golden) -> None:
    golden("compute_inline/several", several(), lambda s: s.compute_inline(s.get_block("P")))


def test_reverse_inline_of_one_of_several_results(golden: Golden) -> None:
    golden(
        "reverse_compute_inline/several",
        several(shown=True),
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


def test_reverse_inline_of_a_block_of_several_results() -> None:
    func = several_after()
    sch = Schedule(func)
    sch.reverse_compute_inline(sch.get_block("P"))
    check_meaning(func, sch.func)
    check_replays(func, sch)
    check_compiled(func, sch.func)


def test_inline_of_several_results_of_which_one_is_a_parameter() -> None:
    sch = Schedule(several(shown=True))
    with pytest.raises(ScheduleError):
        sch.compute_inline(sch.get_block("P"))


def test_reverse_inline_beside_what_it_reads() -> None:
    a = te.placeholder((6,), "int32", name="A")
    p, q = te.compute((6,), lambda i: (a[i] + 1, a[i] * 3), name=("P", "Q"))
    c = te.compute((6,), lambda i: p[5 - i] * q[i], name="C")
    sch = Schedule(te.func([a, p, c], name="beside"))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_inline(sch.get_block("C"))


def test_inline_of_two_stores_to_one_buffer() -> None:
    func = parse("""
@tw.script
def twice(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    B = T.alloc((8, 2), "int32")
    for i in T.serial(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi, 0] = A[vi]
            B[vi, 1] = A[vi] + 1
    for i in T.serial(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi, vi % 2]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.compute_inline(sch.get_block("B"))


def test_inline_of_a_parameter() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.compute_inline(sch.get_block("C"))


def test_inline_of_a_reduction() -> None:
    sch = Schedule(matmul_relu())
    with refused(ScheduleError, "C"):
        sch.compute_inline(sch.get_block("C"))


def test_reverse_inline_into_a_reduction() -> None:
    sch = Schedule(matmul_relu())
    with refused(ScheduleError, "C"):
        sch.reverse_compute_inline(sch.get_block("D"))


def test_reverse_inline_of_a_reduction() -> None:
    sch = Schedule(scaled())
    with pytest.raises(ScheduleError) as refusal:
        sch.reverse_compute_inline(sch.get_block("S"))
    assert refusal.value.place.name == "S"


def test_reverse_inline_at_other_places() -> None:
    sch = Schedule(stencil())
    with pytest.raises(ScheduleError):
        sch.reverse_compute_inline(sch.get_block("C"))


def test_reverse_inline_of_inputs_alone() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.reverse_compute_inline(sch.get_block("B"))


def test_reverse_inline_with_another_reader() -> None:
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] + 1, name="B")
    c = te.compute((6,), lambda i: b[i] * 2, name="C")
    d = te.compute((6,), lambda i: b[i] * 3, name="D")
    sch = Schedule(te.func([a, c, d], name="fork"))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_inline(sch.get_block("C"))


def several(shown: bool = False) -> Func:
    """P = A + 1 and Q = A * 3, then C = P[0, j] * Q, or of Q alone where P is an output."""
    a = te.placeholder((6, 4), "int32", name="A")
    p, q = te.compute((6, 4), lambda i, j: (a[i, j] + 1, a[i, j] * 3), name=("P", "Q"))
    if shown:
        c = te.compute((6, 4), lambda i, j: q[i, j] * 2, name="C")
        return te.func([a, p, c], name="several")
    c = te.compute((6, 4), lambda i, j: p[0, j] * q[i, j], name="C")
    return te.func([a, c], name="several")


def several_after() -> Func:
    """B = A * 2, then P = B + 1 and Q = B * 3."""
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] * 2, name="B")
    p, q = te.compute((6,), lambda i: (b[i] + 1, b[i] * 3), name=("P", "Q"))
    return te.func([a, p, q], name="several")


def scaled() -> Func:
    """The sums of the rows of A * 2."""
    a = te.placeholder((6, 4), "int32", name="A")
    b = te.compute((6, 4), lambda i, j: a[i, j] * 2, name="B")
    r = te.reduce_axis(4, name="r")
    s = te.compute((6,), lambda i: te.sum(b[i, r], axis=r), name="S")
    return te.func([a, s], name="scaled")


def turned() -> Func:
    """B = A + 1, then C the transpose of B * 2."""
    a = te.placeholder((6, 4), "int32", name="A")
    b = te.compute((6, 4), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((4, 6), lambda i, j: b[j, i] * 2, name="C")
    return te.func([a, c], name="turned")


def epilogue(
    shape: tuple[int, ...],
    extents: tuple[int, ...],
    result: str,
    *,
    sizes: tuple[int, ...] | None = None,
    place: str | None = None,
) -> Func:
    """B = A * 2 of a `shape`, then C of `extents`, the `result` of its iterations c0, c1, ...

    With `sizes`, the iterations of B, which stores at a `place` of p0, p1, ...
    """
    sizes = shape if sizes is None else sizes
    points = ", ".join(f"p{d}" for d in range(len(sizes)))
    return parse(f"""
def epilogue(A: T.Buffer({sizes}, "float32"), C: T.Buffer({extents}, "float32")):
    B = T.alloc({shape}, "float32")
{nest("B", "p", sizes, f"B[{points if place is None else place}] = A[{points}] * 2.0")}
{nest("C", "c", extents, f"C[{', '.join(f'c{d}' for d in range(len(extents)))}] = {result}")}
""")


def nest(name: str, prefix: str, extents: tuple[int, ...], store: str) -> str:
    """The text of a block in a loop for each of its iterations."""
    lines = [f"for {prefix}_{d} in range({n}):" for d, n in enumerate(extents)]
    lines.append(f'with T.block("{name}"):')
    bodies = [f"{prefix}{d} = T.axis.spatial({n}, {prefix}_{d})" for d, n in enumerate(extents)]
    depth = len(lines)
    nested = [f"{'    ' * (1 + d)}{line}" for d, line in enumerate(lines)]
    return "\n".join([*nested, *(f"{'    ' * (1 + depth)}{line}" for line in (*bodies, store))])


def check_inlined(func: Func, *steps: str) -> Schedule:
    """Inline the blocks named in `steps` into their producers, and check the program."""
    sch = Schedule(func)
    for name in steps:
        sch.reverse_compute_inline(sch.get_block(name))
    verify(sch.func)
    assert not {f"{b.name}" for b in sch.func.allocs} & {"B", *steps}
    check_meaning(func, sch.func)
    check_replays(func, sch)
    check_compiled(func, sch.func)
    return sch


FLAT = "((c0 * 6 + c1) * 4 + c2) * 2 + c3"


@pytest.mark.parametrize(
    ("shape", "extents", "place"),
    [
        ((16, 24), (8, 6, 4, 2), f"({FLAT}) // 24, ({FLAT}) % 24"),
        ((24, 5), (4, 6, 5), "c0 * 6 + c1, c2"),
        ((24, 5), (1, 4, 6, 5), "c1 * 6 + c2, c3"),
        ((24,), (4, 6), "c0 * 6 + c1"),
        ((4, 6), (24,), "c0 // 6, c0 % 6"),
        ((4, 6), (6, 2, 2), "c1 * 2 + c2, c0"),
        ((4, 5, 6), (20, 6), "c0 % 4, c0 // 4, c1"),
        ((9,), (9,), "8 - c0"),
        ((12,), (3, 4), "11 - c0 * 4 - c1"),
        ((12,), (3, 4), "c0 * 4 + (3 - c1)"),
    ],
)
def test_reverse_inline_through_indices_that_tell_the_iterations(
    shape: tuple[int, ...], extents: tuple[int, ...], place: str
) -> None:
    func = epilogue(shape, extents, f"B[{place}] + 1.0")
    sch = check_inlined(func, "C")
    (block,) = blocks_in(sch.func.body)
    assert block.predicate is None
    assert [i.extent for i in block.iters] == list(shape)
    check_inlined(epilogue(shape, extents, f"B[{place}] * (1.0 + B[{place}])"), "C")


@pytest.mark.parametrize(
    ("shape", "extents", "place"),
    [
        ((8, 12), (7, 11), "c0, c1"),
        ((12,), (7,), "c0 + 3"),
        ((12,), (7,), "9 - c0"),
        ((12,), (6,), "c0 * 2"),
        ((13,), (6,), "c0 * 2 + 1"),
        ((3, 4, 5), (11, 5), "c0 // 4, c0 % 4, c1"),
        ((8, 12), (12,), "3, c0"),
        ((24, 5), (3, 6, 5), "c0 * 6 + c1, c2"),
        ((24,), (4, 5), "c0 * 6 + c1"),
    ],
)
def test_reverse_inline_of_what_reads_a_part(
    shape: tuple[int, ...], extents: tuple[int, ...], place: str
) -> None:
    sch = check_inlined(epilogue(shape, extents, f"B[{place}] + 1.0"), "C")
    (block,) = blocks_in(sch.func.body)
    assert block.predicate is not None
    assert [i.extent for i in block.iters] == list(extents)
    # The rest may be scheduled.
    sch.cache_write(sch.get_block("B"), 0, "global")
    verify(sch.func)
    check_meaning(sch.original, sch.func)


def test_reverse_inline_of_a_reshape(golden: Golden) -> None:
    golden(
        "reverse_compute_inline/reshape",
        epilogue((6, 8), (12, 4), "B[(c0 * 4 + c1) // 8, (c0 * 4 + c1) % 8] + 1.0"),
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


def test_reverse_inline_of_a_part_into_a_tiled_producer(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, j = loops(sch, "B")
        outer, _ = sch.split(i, factors=[None, 3])
        sch.parallel(outer)
        sch.vectorize(j)
        sch.reverse_compute_inline(sch.get_block("C"))

    sch = golden(
        "reverse_compute_inline/part", epilogue((8, 12), (6, 8), "B[c0 + 1, c1] + 1.0"), script
    )
    check_compiled(sch.original, sch.func)


@pytest.mark.parametrize("steps", [("C", "D"), ("D", "C")])
@pytest.mark.parametrize("rows", [24, 20])
def test_reverse_inline_of_a_chain(steps: tuple[str, str], rows: int) -> None:
    text = str(epilogue((24, 5), (rows // 4, 4, 5), "B[c0 * 4 + c1, c2] + 1.0"))
    size = f"({rows // 4}, 4, 5)"
    signature = f'C: T.Buffer({size}, "float32")'
    assert signature in text
    text = text.replace(signature, f'D: T.Buffer((1, {size[1:]}, "float32")')
    text = text.replace("    B = T.alloc", f'    C = T.alloc({size}, "float32")\n    B = T.alloc')
    text += "\n" + nest("D", "d", (1, rows // 4, 4, 5), "D[d0, d1, d2, d3] = C[d1, d2, d3] * 3.0")
    check_inlined(parse(text), *steps)


@pytest.mark.parametrize(
    ("shape", "extents", "result"),
    [
        ((8,), (8,), "B[c0]"),
        ((8,), (7,), "B[c0]"),
        ((8,), (4,), "B[c0 + 1]"),
        ((3, 4), (12,), "B[c0 // 4, c0 % 4]"),
    ],
)
def test_reverse_inline_of_what_does_not_always_read(
    shape: tuple[int, ...], extents: tuple[int, ...], result: str
) -> None:
    check_inlined(epilogue(shape, extents, f"T.select(c0 < 2, {result}, 1.0)"), "C")


@pytest.mark.parametrize(
    ("sizes", "extents", "result"),
    [
        ((6,), (8,), "T.select(c0 < 6, B[c0], 1.0)"),
        ((8,), (8,), "T.select(c0 >= 2, B[c0 - 2], 1.0)"),
        ((8,), (16,), "T.select(c0 >= 8, B[c0 - 8], 1.0)"),
        ((8,), (9,), "T.select(c0 < 8, B[c0], 1.0)"),
    ],
)
def test_what_also_runs_where_nothing_is_computed_is_not_inlined(
    sizes: tuple[int, ...], extents: tuple[int, ...], result: str
) -> None:
    """Regression: B may have elements that are neither computed nor read, while C has values."""
    sch = Schedule(epilogue((8,), extents, result, sizes=sizes, place="p0"))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_inline(sch.get_block("C"))


@pytest.mark.parametrize(
    ("shape", "extents", "place"),
    [
        ((8,), (8, 4), "c0"),
        ((8, 8), (8,), "c0, c0"),
        ((24, 24), (4, 6), "c0 * 6 + c1, c0 * 6 + c1"),
        ((10,), (4, 4), "c0 * 2 + c1"),
        ((8,), (8,), "c0 // 2"),
        ((8, 8), (8, 8), "c0, c0 * c1 % 8"),
        ((16,), (3, 5), "c0 * 6 + (c1 + 2) % 6"),
    ],
)
def test_reverse_inline_at_indices_that_do_not_tell_the_iterations(
    shape: tuple[int, ...], extents: tuple[int, ...], place: str
) -> None:
    sch = Schedule(epilogue(shape, extents, f"B[{place}] + 1.0"))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_inline(sch.get_block("C"))


def test_reverse_inline_of_a_part_beside_what_is_whole() -> None:
    a = te.placeholder((6,), "int32", name="A")
    p, q = te.compute((6,), lambda i: (a[i] + 1, a[i] * 3), name=("P", "Q"))
    c = te.compute((5,), lambda i: q[i] * 2, name="C")
    sch = Schedule(te.func([a, p, c], name="several"))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_inline(sch.get_block("C"))


PLACES: list[tuple[tuple[int, ...], tuple[int, ...], str]] = [
    ((12,), (3, 4), "p0 * 4 + p1"),
    ((24,), (2, 3, 4), "p0 * 12 + p1 * 4 + p2"),
    ((3, 4), (12,), "p0 // 4, p0 % 4"),
    ((8,), (8,), "7 - p0"),
    ((12,), (6,), "p0 * 2"),
]


@pytest.mark.parametrize(("shape", "sizes", "place"), PLACES[:-1])
@pytest.mark.parametrize("less", [0, 1])
def test_reverse_inline_into_what_stores_at_indices_that_tell_its_iterations(
    shape: tuple[int, ...], sizes: tuple[int, ...], place: str, less: int
) -> None:
    extents = tuple(n - less for n in shape)
    read = ", ".join(f"c{d}" for d in range(len(shape)))
    check_inlined(epilogue(shape, extents, f"B[{read}] + 1.0", sizes=sizes, place=place), "C")


@pytest.mark.parametrize(("shape", "sizes", "place"), PLACES)
def test_inline_of_what_stores_at_indices_that_tell_its_iterations(
    shape: tuple[int, ...], sizes: tuple[int, ...], place: str
) -> None:
    (last,) = {shape[-1]}
    read = ", ".join([*(f"c{d}" for d in range(len(shape) - 1)), f"c{len(shape) - 1} // 2 * 2"])
    func = epilogue(shape, shape, f"B[{read}] + 1.0", sizes=sizes, place=place)
    assert last % 2 == 0
    sch = Schedule(func)
    sch.compute_inline(sch.get_block("B"))
    check_meaning(func, sch.func)
    check_replays(func, sch)
    check_compiled(func, sch.func)


@pytest.mark.parametrize(
    ("shape", "sizes", "place"),
    [
        ((8,), (3, 4), "p0 * 2 + p1"),
        ((2,), (4,), "p0 // 2"),
        ((8,), (2, 2), "p0 * 4 + p0"),
        ((3,), (3, 4), "p0"),
    ],
)
def test_inline_of_what_stores_elements_twice(
    shape: tuple[int, ...], sizes: tuple[int, ...], place: str
) -> None:
    func = epilogue(shape, shape, "B[c0] + 1.0", sizes=sizes, place=place)
    for name, step in (("B", "compute_inline"), ("C", "reverse_compute_inline")):
        sch = Schedule(func)
        with pytest.raises(ScheduleError):
            getattr(sch, step)(sch.get_block(name))


def test_inline_of_what_nobody_reads(golden: Golden) -> None:
    golden("compute_inline/unread", unread(), lambda s: s.compute_inline(s.get_block("B")))


def test_inline_of_what_nobody_reads_any_more() -> None:
    sch = Schedule(unread())
    outer, _ = sch.split(loops(sch, "C")[0], factors=[None, 2])
    sch.compute_at(sch.cache_read(sch.get_block("B"), 0, "global"), loops(sch, "B")[0])
    sch.compute_inline(sch.get_block("B"))
    sch.compute_inline(sch.get_block("A_global"))
    sch.parallel(outer)
    check_meaning(sch.original, sch.func)
    check_replays(sch.original, sch)


def test_inline_of_the_only_block() -> None:
    func = parse("""
def alone(A: T.Buffer((4,), "int32")):
    B = T.alloc((4,), "int32")
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.compute_inline(sch.get_block("B"))


def unread() -> Func:
    """B = A * 2, which nobody reads, and C = A + 1."""
    return epilogue((4, 6), (4, 6), "A[c0, c1] + 1.0")
