"""`swizzle`, and what becomes of it when programs are lowered."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError, VerifyError
from tilewright.codegen.lower import lower
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.tir.ir import Alloc, Op, Store
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify
from tilewright.tir.visit import walk

from ..differences import first_difference
from .conftest import Golden
from .machinery import check_compiled
from .programs import loops, matmul, matmul_relu
from .test_pipeline import staged_matmul

TRANSPOSE = """@tw.script
def transpose(A: T.Buffer((8, 8), "int32"), C: T.Buffer((8, 8), "int32")):
    B = T.alloc((8, 8), "int32", swizzle=(1, 0, 4, 2))
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
    for i, j in T.grid(8, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vj, vi]
"""


def test_rows_in_orders_of_their_own(golden: Golden) -> None:
    func = matmul_relu()
    sch = golden("swizzle/rows", func, lambda s: s.swizzle(s.get_block("C"), 0, -1, 0, 4, 2))
    check_compiled(func, sch.func)


def test_vectors_in_parts_that_hold_them(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        sch.swizzle(block, 0, 1, 0, 2, 4)
        for name in ("C", "D"):
            _, j1 = sch.split(loops(sch, name)[1], factors=[None, 4])
            if name == "D":
                sch.vectorize(j1)

    func = matmul_relu(8, 16)
    check_compiled(func, golden("swizzle/vectors", func, script).func)


def test_places_are_those_that_the_buffer_says() -> None:
    func = lower(parse(TRANSPOSE), Target.parse("cpu -threads=1"))
    stores = [n for n in walk(func) if type(n) is Store and n.buffer.name == "B"]
    assert any(getattr(n, "op", None) is Op.XOR for s in stores for n in walk(s.indices[0]))
    (alloc,) = [n for n in walk(func) if type(n) is Alloc]
    assert alloc.buffer.shape == (64,)
    check_compiled(parse(TRANSPOSE.replace(", swizzle=(1, 0, 4, 2)", "")), parse(TRANSPOSE))


def test_dimension_that_is_no_multiple_is_widened() -> None:
    text = TRANSPOSE.replace("8", "7")
    (alloc,) = [
        n for n in walk(lower(parse(text), Target.parse("cpu -threads=1"))) if type(n) is Alloc
    ]
    assert alloc.buffer.shape == (56,)
    check_compiled(parse(text), parse(text))


def test_after_compute_at_of_a_part() -> None:
    sch = Schedule(matmul_relu())
    block = sch.get_block("C")
    sch.swizzle(block, 0, 1, 0, 4)
    sch.compute_at(block, sch.split(loops(sch, "D")[0], factors=[None, 3])[0])
    check_compiled(sch.original, sch.func)


def test_a_swizzle_is_part_of_the_program() -> None:
    plain = parse(TRANSPOSE.replace(", swizzle=(1, 0, 4, 2)", ""))
    assert first_difference(parse(TRANSPOSE), plain) is not None
    verify(parse(TRANSPOSE))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("swizzle=(1, 1, 4, 2)", "swizzles axis 1 by axis 1; expected two of 2"),
        ("swizzle=(2, 0, 4, 2)", "swizzles axis 2 by axis 0; expected two of 2"),
        ("swizzle=(1, 0, 6, 2)", "swizzles 6 rows in parts of 2 elements; expected a power of two"),
        ("swizzle=(1, 0, 4, 0)", "swizzles 4 rows in parts of 0 elements"),
        ("strides=(9, 1), swizzle=(1, 0, 4, 2)", "has strides of its own, and a swizzle"),
    ],
)
def test_swizzles_that_make_no_sense(wrong: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(parse(TRANSPOSE.replace("swizzle=(1, 0, 4, 2)", wrong)))


def test_parameter_with_a_swizzle() -> None:
    first, rest = TRANSPOSE.split('"int32"', 1)
    with pytest.raises(VerifyError):
        verify(parse(f'{first}"int32", swizzle=(1, 0, 4, 2){rest}'))


@pytest.mark.parametrize(
    ("axis", "by", "rows", "width", "message"),
    [
        (0, 0, 4, 1, "axis 0 by axis 0; expected two of the 2 dimensions of C"),
        (0, -2, 4, 1, "axis 0 by axis -2; expected two of the 2 dimensions of C"),
        (2, 0, 4, 1, "axis 2 by axis 0; expected two"),
        (1, -3, 4, 1, "axis 1 by axis -3; expected two"),
        (2, 1, 4, 1, "axis 2 by axis 1; expected two"),
        (1, 2, 4, 1, "axis 1 by axis 2; expected two"),
        (1, 0, 6, 1, "6 rows; expected a power of two from 2 on"),
        (1, 0, 1, 1, "1 rows; expected a power of two from 2 on"),
        (1, 0, 4, 0, "parts of 0 elements; expected at least one"),
        (1, 0, 4096, 2, "4096 rows in parts of 2 elements reorder 8192 places; at most 4096"),
    ],
)
def test_refused(axis: int, by: int, rows: int, width: int, message: str) -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError, match=message):
        sch.swizzle(sch.get_block("C"), 0, axis, by, rows, width)


def test_parameter() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError):
        sch.swizzle(sch.get_block("D"), 0, 1, 0, 4)


def test_strides_of_its_own() -> None:
    sch = Schedule(parse(TRANSPOSE.replace("swizzle=(1, 0, 4, 2)", "strides=(9, 1)")))
    with pytest.raises(ScheduleError):
        sch.swizzle(sch.get_block("B"), 0, 1, 0, 4)


def test_registers_have_no_layout() -> None:
    sch = Schedule(matmul_relu())
    block = sch.get_block("C")
    sch.set_scope(block, 0, "register")
    with pytest.raises(ScheduleError):
        sch.swizzle(block, 0, 1, 0, 4)
    sch = Schedule(matmul_relu())
    block = sch.get_block("C")
    sch.swizzle(block, 0, 1, 0, 4)
    with pytest.raises(ScheduleError):
        sch.set_scope(block, 0, "register")


def test_layouts_come_before() -> None:
    sch = Schedule(matmul_relu())
    block = sch.get_block("C")
    sch.swizzle(block, 0, 1, 0, 4)
    with pytest.raises(ScheduleError):
        sch.transform_layout(block, ("write", 0), lambda i, j: (j, i))


def test_versions_are_swizzled_as_the_buffer_was() -> None:
    sch = Schedule(matmul(4, 8, 20))
    copy, loop = staged_matmul(sch)
    sch.swizzle(copy, 0, 1, 0, 2)
    sch.double_buffer(copy, loop)
    (buffer,) = sch.func.allocs
    assert buffer.swizzle == (2, 1, 2, 1)
    check_compiled(sch.original, sch.func)
