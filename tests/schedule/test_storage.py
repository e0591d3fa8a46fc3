"""storage_align: padded strides of internal buffers."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError, VerifyError
from tilewright.codegen.lower import lower
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.tir.parser import parse
from tilewright.tir.printer import func_text
from tilewright.tir.verify import verify

from ..differences import first_difference
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import elementwise, matmul_relu


def test_rows_apart(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        copy = sch.cache_read(sch.get_block("B"), 0, "shared")
        sch.storage_align(copy, 0, -2, 8, 5)

    golden("storage_align/rows", elementwise(), script)


def lowered(sch: Schedule) -> str:
    return func_text(lower(sch.func, Target.parse("cpu")))


@pytest.mark.parametrize(("factor", "offset", "stride"), [(8, 5, 13), (8, 4, 12), (16, 1, 17)])
def test_strides_are_a_multiple_and_the_offset(factor: int, offset: int, stride: int) -> None:
    sch = Schedule(elementwise())
    copy = sch.cache_read(sch.get_block("B"), 0, "global")
    sch.storage_align(copy, 0, 0, factor, offset)
    assert f"A_global = T.alloc(({15 * stride + 12},)" in lowered(sch).replace(
        "T.scratch", "T.alloc"
    )
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_what_a_tile_needs_is_aligned_too() -> None:
    sch = Schedule(matmul_relu(16, 16, 8))
    c, d = sch.get_block("C"), sch.get_block("D")
    i0, *_ = sch.tile(d, (4, 16))
    sch.compute_at(c, i0)
    sch.storage_align(c, 0, 0, 8, 3)
    assert "C = T.scratch((73,)" in lowered(sch), "three rows of 19 and one of 16"
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_two_axes_and_a_second_thought() -> None:
    sch = Schedule(matmul_relu())
    c = sch.get_block("C")
    sch.transform_layout(c, ("write", 0), lambda i, j: (i // 2, i % 2, j))
    sch.storage_align(c, 0, 1, 8, 0)
    sch.storage_align(c, 0, 0, 64, 5)
    sch.storage_align(c, 0, 1, 8, 1)
    (buffer,) = sch.func.allocs
    assert buffer.align == ((0, 64, 5), (1, 8, 1))
    verify(sch.func)
    check_compiled(sch.original, sch.func)


def test_sizes_may_be_open() -> None:
    sch = Schedule(matmul_relu(), symbolic=True)
    c, d = sch.get_block("C"), sch.get_block("D")
    i, _ = sch.get_loops(d)
    i0, _ = sch.split(i, factors=sch.sample_perfect_tile(i, n=2))
    sch.compute_at(c, i0)
    sch.storage_align(c, 0, 0, 8, 1)
    assert sch.func.allocs[0].align == ((0, 8, 1),)


@pytest.mark.parametrize(
    ("axis", "factor", "offset", "message"),
    [
        (2, 8, 1, "C has 2 dimensions; there is no axis 2"),
        (-3, 8, 1, "C has 2 dimensions; there is no axis -3"),
        (1, 8, 1, "axis 1 is the last one of C, whose elements lie side by side"),
        (-1, 8, 1, "axis -1 is the last one of C"),
        (0, 0, 0, "the factor is 0; expected 1 to 65536"),
        (0, 1 << 20, 0, "the factor is 1048576"),
        (0, 8, 8, "the offset is 8; expected 0 to 7"),
        (0, 8, -1, "the offset is -1; expected 0 to 7"),
    ],
)
def test_numbers_that_make_no_sense(axis: int, factor: int, offset: int, message: str) -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError, match=message):
        sch.storage_align(sch.get_block("C"), 0, axis, factor, offset)


def test_parameters_are_laid_out_by_the_caller() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError):
        sch.storage_align(sch.get_block("D"), 0, 0, 8, 1)
    with pytest.raises(ScheduleError):
        sch.storage_align(sch.get_block("D"), 1, 0, 8, 1)


def test_strides_of_its_own() -> None:
    text = """@tw.script
def f(A: T.Buffer((4, 3), "int32"), C: T.Buffer((4, 3), "int32")):
    B = T.alloc((4, 3), "int32", strides=(5, 1))
    for i, j in T.grid(4, 3):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
    for i, j in T.grid(4, 3):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj]
"""
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError):
        sch.storage_align(sch.get_block("B"), 0, 0, 8, 1)
    aligned = parse(text.replace("strides=(5, 1)", "align=((0, 8, 1),)"))
    verify(aligned)
    for wrong, message in [
        ("strides=(5, 1), align=((0, 8, 1),)", "B has strides of its own, and align"),
        ("align=((1, 8, 1),)", "expected different ones before the last of its 2 dimensions"),
        ("align=((0, 8, 1), (0, 8, 2))", "expected different ones"),
        ("align=((0, 8, 8),)", "aligns axis 0 to 8 more than multiples of 8"),
    ]:
        with pytest.raises(VerifyError, match=message):
            verify(parse(text.replace("strides=(5, 1)", wrong)))
    compact = parse(text.replace(", strides=(5, 1)", ""))
    assert first_difference(aligned, compact) is not None
    first, rest = text.split('"int32"', 1)
    wrong = f'{first}"int32", align=((0, 8, 1),){rest}'
    with pytest.raises(VerifyError):
        verify(parse(wrong))


def test_registers_have_no_strides() -> None:
    sch = Schedule(matmul_relu())
    c = sch.get_block("C")
    sch.set_scope(c, 0, "register")
    with pytest.raises(ScheduleError):
        sch.storage_align(c, 0, 0, 8, 1)
    sch = Schedule(matmul_relu())
    c = sch.get_block("C")
    sch.storage_align(c, 0, 0, 8, 1)
    with pytest.raises(ScheduleError):
        sch.set_scope(c, 0, "register")


def test_layouts_come_before() -> None:
    sch = Schedule(matmul_relu())
    c = sch.get_block("C")
    sch.storage_align(c, 0, 0, 8, 1)
    with pytest.raises(ScheduleError) as refusal:
        sch.transform_layout(c, ("write", 0), lambda i, j: (j, i))
    assert "before storage_align" in str(refusal.value)
