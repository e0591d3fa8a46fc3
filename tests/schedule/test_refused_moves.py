"""Moves, copies and fusions that would leave elements out, or touch too many, are refused."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .machinery import check_meaning
from .programs import chain, rowsum


def added(n: int) -> Func:
    a = te.placeholder((8, 4), "int32", name="A")
    z = te.placeholder((8,), "int32", name="Z")
    r = te.reduce_axis(4, name="r")
    s = te.compute((8,), lambda i: te.sum(a[i, r], axis=r), name="S")
    d = te.compute((n,), lambda i: s[i] + z[i], name="D")
    return te.func([a, z, d], name="added")


def test_an_epilogue_of_a_part_is_not_fused() -> None:
    sch = Schedule(added(5))
    with pytest.raises(ScheduleError):
        sch.fuse_reduction_epilogue(sch.get_block("S"), sch.get_block("D"))


LATE = """
@tw.script
def late(A: T.Buffer((8, 4), "int32"), Z: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")):
    S = T.alloc((8,), "int32")
    Y = T.alloc((8,), "int32")
    for i, r in T.grid(8, 4):
        with T.block("S"):
            vi, vr = T.axis.remap("SR", [i, r])
            with T.init():
                S[vi] = START
            S[vi] = S[vi] + A[vi, vr]
    for i in T.serial(8):
        with T.block("Y"):
            vi = T.axis.spatial(8, i)
            Y[vi] = Z[vi] * 2
    for i in T.serial(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = S[vi] + Y[vi]
"""


def test_an_epilogue_with_a_term_that_comes_later_is_not_fused() -> None:
    sch = Schedule(parse(LATE.replace("START", "0")))
    with refused(ScheduleError, "Y", "D"):
        sch.fuse_reduction_epilogue(sch.get_block("S"), sch.get_block("D"))


@pytest.mark.parametrize(
    ("inplace", "read", "message"),
    [
        ("", "S", "S must be read by block D alone"),
        ("    T.inplace(D)\n", "D", "D is updated in place; its first contents are part of"),
    ],
)
def test_an_epilogue_behind_another_reader_is_not_fused(
    inplace: str, read: str, message: str
) -> None:
    text = LATE.replace("START", "0").replace("    S = T.alloc", f"{inplace}    S = T.alloc")
    text = text.replace("Z[vi] * 2", f"{read}[vi] * 2").replace("+ Y[vi]", "+ Z[vi]")
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError, match=message):
        sch.fuse_reduction_epilogue(sch.get_block("S"), sch.get_block("D"))


@pytest.mark.parametrize("start", ["5", "Z[vi]", None])
def test_a_sum_that_starts_elsewhere_takes_no_epilogue(start: str | None) -> None:
    text = LATE.replace("S[vi] = START", "if vi < 4:\n                    S[vi] = 0")
    sch = Schedule(parse(text if start is None else LATE.replace("START", start)))
    with pytest.raises(ScheduleError) as refusal:
        sch.fuse_reduction_epilogue(sch.get_block("S"), sch.get_block("D"))
    assert refusal.value.place.name == "S"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("S[vi] + A[vi, vr]", "T.maximum(S[vi], A[vi, vr])"),
        ('D: T.Buffer((8,), "int32")', 'D: T.Buffer((8,), "int32"), S: T.Buffer((8,), "int32")'),
    ],
    ids=["maximum", "parameter"],
)
def test_what_is_no_sum_of_its_own_takes_no_epilogue(old: str, new: str) -> None:
    text = LATE.replace("START", "0").replace(old, new)
    if "S: " in new:
        text = text.replace('    S = T.alloc((8,), "int32")\n', "")
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError):
        sch.fuse_reduction_epilogue(sch.get_block("S"), sch.get_block("D"))


def test_a_copy_leaves_out_what_is_never_written() -> None:
    sch = Schedule(chain(8))
    block = sch.get_block("B")
    sch.transform_layout(block, ("write", 0), lambda i: (i // 5, i % 5))
    sch.cache_write(block, 0, "local")
    sch.cache_read(sch.get_block("C"), 0, "local")
    verify(sch.func)
    check_meaning(sch.original, sch.func)


def test_a_pack_of_what_is_partly_written_is_refused() -> None:
    sch = Schedule(chain(8))
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i: (i // 5, i % 5))
    with pytest.raises(ScheduleError) as refusal:
        sch.pack(sch.get_block("C"), 0, "BA", [])
    assert "before transform_layout" in str(refusal.value)


def test_a_partial_result_keeps_its_guard_when_it_moves() -> None:
    sch = Schedule(rowsum(4, 10))
    block = sch.get_block("S")
    i, r = sch.get_loops(block)
    outer, inner = sch.split(r, factors=[None, 4])
    partial = sch.rfactor(outer, factor_axis=0)
    assert "T.where" in str(sch.func)
    sch.compute_at(partial, sch.get_loops(block)[0])
    assert "T.where" in str(sch.func)
    check_meaning(sch.original, sch.func)
    assert (i.name, inner.name) == ("i", "r_1")
