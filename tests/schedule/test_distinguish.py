"""distinguish_reads, distinguish_updates."""

from __future__ import annotations

import re

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import matmul


def gram(n: int = 6, m: int = 5) -> Func:
    """C = A.T @ A."""
    a = te.placeholder((n, m), "int32", name="A")
    k = te.reduce_axis(n, name="k")
    c = te.compute((m, m), lambda i, j: te.sum(a[k, i] * a[k, j], axis=k), name="C")
    return te.func([a, c], name="gram")


def test_two_places(golden: Golden) -> None:
    sch = golden("distinguish_reads/gram", gram(), lambda s: s.distinguish_reads(s.get_block(0), 0))
    check_compiled(gram(), sch.func)


def test_each_place_gets_one_copy() -> None:
    a = te.placeholder((8,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] * a[i + 1] + a[i + 2] * a[i + 1], name="B")
    func = te.func([a, b])
    sch = Schedule(func)
    copies = sch.distinguish_reads(sch.get_block("B"), 0)
    assert [c.name for c in copies] == ["A_copy", "A_copy_1"]
    check_meaning(func, sch.func)


def test_copies_have_variables_of_their_own() -> None:
    a = te.placeholder((4, 5), "int32", name="A")
    b = te.compute((4, 5), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((2, 5), lambda i, j: b[i, j] * b[i + 1, j] + b[i + 2, j], name="C")
    func = te.func([a, c])
    sch = Schedule(func)
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i, j: (i * 5 + j,))
    sch.distinguish_reads(sch.get_block("C"), 0)
    verify(sch.func)
    check_meaning(func, sch.func)


def test_inlining_undoes_it() -> None:
    sch = Schedule(gram())
    for copy in sch.distinguish_reads(sch.get_block("C"), 0):
        sch.compute_inline(copy)
    assert structural_equal(sch.func, gram())


def test_what_is_computed_before_is_copied() -> None:
    a = te.placeholder((6, 5), "int32", name="A")
    e = te.compute((6, 5), lambda i, j: a[i, j] * 2, name="E")
    k = te.reduce_axis(6, name="k")
    c = te.compute((5, 5), lambda i, j: te.sum(e[k, i] * e[k, j], axis=k), name="C")
    func = te.func([a, c])
    sch = Schedule(func)
    sch.distinguish_reads(sch.get_block("C"), 0)
    check_meaning(func, sch.func)


def test_refusals() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.distinguish_reads(sch.get_block("C"), 0)
    with pytest.raises(ScheduleError):
        sch.distinguish_reads(sch.get_block("C"), 2)


def test_what_is_written_in_the_same_nest() -> None:
    a = te.placeholder((8,), "int32", name="A")
    b = te.compute((8,), lambda i: a[i] * 2, name="B")
    func = te.func([a, te.compute((7,), lambda i: b[i] + b[i + 1], name="C")])
    sch = Schedule(func)
    sch.compute_at(sch.get_block("B"), sch.get_loops(sch.get_block("C"))[0])
    with pytest.raises(ScheduleError):
        sch.distinguish_reads(sch.get_block("C"), 0)


UPDATED = """
@tw.script
def updated(A: T.Buffer((6,), "int32"), Z: T.Buffer((6,), "int32"), Y: T.Buffer((6,), "int32")):
    {inplace}
    for i in range(6):
        with T.block("A"):
            v = T.axis.spatial(6, i)
            Z[v] = A[v] + 1
    for i in range({extent}):
        with T.block("Z"):
            v = T.axis.spatial({extent}, i)
            Z[v] = {value}
    for i in range(6):
        with T.block("Y"):
            v = T.axis.spatial(6, i)
            Y[v] = Z[v] * Z[5 - v]
"""


def updated(value: str = "Z[v] * Z[v] - 1", *, extent: int = 6, inplace: str = "") -> Func:
    return parse(UPDATED.format(value=value, extent=extent, inplace=inplace))


def test_updates(golden: Golden) -> None:
    func = updated()
    sch = golden(
        "distinguish_updates/squares", func, lambda s: s.distinguish_updates(s.get_block("Z"), 0)
    )
    check_compiled(func, sch.func)
    sch.compute_inline(sch.get_block("A"))
    check_meaning(func, sch.func)


def test_updates_again_and_again() -> None:
    func = parse(str(updated("Z[v] * 2")).replace("Y[v] = Z[v] * Z[5 - v]", "Z[v] = Z[v] + Z[v]"))
    sch = Schedule(func)
    for name in ("Z", "Y"):
        sch.distinguish_updates(sch.get_block(name), 0)
    assert [b.name for b in sch.func.allocs] == ["Z_before", "Z_before"]
    check_compiled(func, sch.func)


@pytest.mark.parametrize(
    "body",
    [
        "Z[v] = A[v] - 5\n            W[v] = Z[v] * 3",
        "Z[v] = Z[v] * 2\n            W[v] = Z[v] * 3",
        "W[v] = Z[v] * 3\n            Z[v] = Z[v] * 2",
        "W[v] = Z[v] * 3\n            Z[v] = Z[v] * 2\n            W[v] = W[v] + Z[v]",
        "Z[v] = Z[v] * 2\n            if Z[v] > 3:\n                W[v] = Z[v]",
    ],
)
def test_loads_after_the_update_read_what_it_stored(body: str) -> None:
    text = str(updated("A[v]")).replace("Z[v] = A[v]\n", body + "\n")
    func = parse(text.replace("updated(", 'updated(W: T.Buffer((6,), "int32"), '))
    sch = Schedule(func)
    sch.distinguish_updates(sch.get_block("Z"), 0)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (updated("Z[5 - v] + 1"), "block Z does not update each element of Z by itself"),
        (updated("Z[v] * 2\n            Z[v] = Z[v] + 1"), "does not update each element of Z"),
        (updated("Z[v] + Z[0]"), "block Z does not update each element of Z by itself"),
        (updated(extent=4), "block Z does not update all of Z"),
        (updated("A[v]"), "block Z updates no buffer; there is no index 0"),
    ],
)
def test_what_is_no_update(func: Func, message: str) -> None:
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=message):
        sch.distinguish_updates(sch.get_block("Z"), 0)


def test_an_update_in_the_nest_of_what_it_updates() -> None:
    text = """
@tw.script
def together(A: T.Buffer((6,), "int32"), Z: T.Buffer((6,), "int32")):
    for i in range(6):
        with T.block("A"):
            v = T.axis.spatial(6, i)
            Z[v] = A[v] + 1
        with T.block("Z"):
            v = T.axis.spatial(6, i)
            Z[v] = Z[v] * 2
"""
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError) as refusal:
        sch.distinguish_updates(sch.get_block("Z"), 0)
    assert refusal.value.place.name == "A"


def test_an_update_by_a_reduction() -> None:
    sch = Schedule(matmul())
    with refused(ScheduleError, "C"):
        sch.distinguish_updates(sch.get_block("C"), 0)


@pytest.mark.parametrize(
    ("init", "guard", "reason"),
    [
        ("with T.init():\n                Z[0] = 0.0", "i < 2", "starts from its init"),
        ("", "i < 0", "which elements of Z have values: block Z does not run in all of"),
        ("", "i < 1", None),
    ],
)
def test_an_update_at_one_place(init: str, guard: str, reason: str | None) -> None:
    """With an init nothing earlier is updated; a block whose guard never holds updates nothing."""
    sch = Schedule(
        parse(
            f"""
@tw.script
def one(A: T.Buffer((1,), "float32"), Z: T.Buffer((1,), "float32")):
    for i in range(1):
        with T.block("S"):
            vi = T.axis.spatial(1, i)
            Z[vi] = A[vi]
    for i in range(2):
        with T.block("Z"):
            vi = T.axis.spatial(2, i)
            T.where({guard})
            {init or "pass"}
            Z[0] = Z[0] * 2.0
""".replace("            pass\n", "")
        )
    )
    if reason is None:
        sch.distinguish_updates(sch.get_block("Z"), 0)
        verify(sch.func)
        return
    with pytest.raises(ScheduleError, match=reason):
        sch.distinguish_updates(sch.get_block("Z"), 0)


def test_an_update_of_what_was_not_filled_before() -> None:
    text = str(updated()).replace("for i in range(6)", "for i in range(4)", 1)
    text = text.replace("v = T.axis.spatial(6, i)", "v = T.axis.spatial(4, i)", 1)
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError):
        sch.distinguish_updates(sch.get_block("Z"), 0)


@pytest.mark.parametrize("step", ["distinguish_updates", "cache_inplace"])
def test_an_update_of_what_nothing_fills_before(step: str) -> None:
    """The block that fills all of Z runs after the one that updates it."""
    before, fill, update, after = re.split(r"(?=    for i in range\(6\))", str(updated()))
    sch = Schedule(parse(before + update + fill + after))
    scope = ["global"] if step == "cache_inplace" else []
    with pytest.raises(ScheduleError):
        getattr(sch, step)(sch.get_block("Z"), 0, *scope)


def test_what_a_block_updates_in_a_loop_of_its_own_reads_its_own_results() -> None:
    func = parse("""
@tw.script
def loop(A: T.Buffer((3,), "float32"), Z: T.Buffer((2,), "float32")):
    for i in range(2):
        with T.block("S"):
            vi = T.axis.spatial(2, i)
            Z[vi] = 0.0
    for i in range(2):
        with T.block("Z"):
            vi = T.axis.spatial(2, i)
            T.reads(Z[vi], A[0:3])
            T.writes(Z[vi])
            for k in range(3):
                Z[vi] = Z[vi] + A[k]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.distinguish_updates(sch.get_block("Z"), 0)
