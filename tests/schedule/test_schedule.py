"""Schedule: handles, refusals that say what and where, copies."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.base.errors import IRError, ScheduleError
from tilewright.schedule import Schedule, Trace
from tilewright.schedule.find import loops_in
from tilewright.tir import te
from tilewright.tir.equality import structural_equal
from tilewright.tir.parser import parse

from .programs import chain, elementwise, loops, matmul


def test_a_dead_handle_names_the_step_that_ended_it() -> None:
    sch = Schedule(elementwise())
    i, j = loops(sch, "B")
    sch.split(j, factors=[None, 4])
    sch.split(i, factors=[None, 4])
    with pytest.raises(ScheduleError) as refusal:
        sch.vectorize(i)
    text = str(refusal.value)
    assert "loop i ended with step 3, sch.split(l1, factors=[None, 4])" in text
    assert "refused: step 4, sch.vectorize(l1)" in text


def test_a_foreign_handle_is_refused() -> None:
    one, two = Schedule(elementwise()), Schedule(elementwise())
    i, _ = loops(one, "B")
    with pytest.raises(ScheduleError) as refusal:
        two.split(i, factors=[None, 4])
    assert "get_block and get_loops" in str(refusal.value)
    with pytest.raises(ScheduleError, match="handle B is not of this schedule"):
        two.get_loops(one.get_block("B"))


def test_handles_are_compared_by_identity() -> None:
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 8), lambda i, j: b[i, j] * 2.0, name="C")
    sch = Schedule(te.func([a, c]))
    blocks = [sch.get_block(name) for name in ("B", "C")]
    first, second = (list(sch.get_loops(b)) for b in blocks)
    i, j = first
    assert j in first
    assert j not in second
    assert first.index(j) == 1
    again = sch.get_loops(blocks[0])[0]
    assert [bool(i == again), bool(i != again)] == [True, False]
    assert [bool(i == j), bool(i != j)] == [False, True]
    assert first == [i, j]
    assert [loop for loop in first if loop != j] == [i]
    assert blocks[1] not in first
    assert i not in blocks
    assert blocks.index(blocks[1]) == 1
    assert i != blocks[0]
    assert i != None  # noqa: E711
    assert i != "i"
    assert {i: 0, j: 1}[j] == 1
    outer, inner = sch.split(i, factors=[None, 2])
    assert i not in sch.get_loops(blocks[0])
    assert list(sch.get_loops(blocks[0])).index(inner) == 1
    sampled = sch.sample_compute_location(blocks[0])
    assert sampled in second
    assert sampled in set(second)
    assert outer != sampled


def test_comparisons_that_are_symbolic_have_no_truth() -> None:
    sch = Schedule(matmul(), symbolic=True)
    i, j, _ = loops(sch, "C")
    factors = sch.sample_perfect_tile(i, 2)
    n, m = te.scalar("int64", name="n"), te.scalar("int64", name="m")
    symbolic: list[Any] = [
        lambda: i == 0,
        lambda: i < j,
        lambda: n == m,
        lambda: factors[0] == factors[1],
        lambda: te.compute((4, 4), lambda x, y: 1.0 if x == y else 0.0),
    ]
    for condition in symbolic:
        with pytest.raises(IRError):
            bool(condition())
    with pytest.raises(ScheduleError):
        sch.transform_layout(
            sch.get_block("C"), ("write", 0), lambda x, y: (y, x) if x == y else (x, y)
        )


def test_a_loop_is_no_block() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError):
        sch.get_loops(i)  # type: ignore[arg-type]


def test_a_refusal_shows_the_program_with_the_place_marked() -> None:
    sch = Schedule(matmul())
    _, _, r = loops(sch, "C")
    with pytest.raises(ScheduleError) as refusal:
        sch.parallel(r)
    lines = str(refusal.value).splitlines()
    assert lines[0].startswith("loop r cannot run in parallel")
    assert any("# <-- here" in line for line in lines)
    assert refusal.value.data["primitive"] == "parallel"
    assert refusal.value.data["func"] is sch.func
    assert refusal.value.data["at"] is r


def test_nothing_is_formatted_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.schedule import render

    def fail(*args: object) -> str:
        raise AssertionError("formatted")

    monkeypatch.setattr(render, "func_text", fail)
    sch = Schedule(matmul())
    _, _, r = loops(sch, "C")
    with pytest.raises(ScheduleError) as refusal:
        sch.parallel(r)
    with pytest.raises(AssertionError, match="formatted"):
        str(refusal.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda sch, i: sch.split(), r"split takes \(loop, factors, perfect\)"),
        (lambda sch, i: sch.split(i, [2, 8], True), "found 3 arguments"),
        (lambda sch, i: sch.split(i, [2, 8], by=3), "found by=3"),
        (lambda sch, i: sch.split(i, [2, 8], factors=[2, 8]), "found factors="),
        (lambda sch, i: sch.split(i, factors=[2, object()]), "cannot be recorded"),
        (lambda sch, i: sch.split(i, factors=[2, i]), "factors must be a sequence"),
    ],
)
def test_calls_that_do_not_fit_the_signature(call, message: str) -> None:  # type: ignore[no-untyped-def]
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError, match=message):
        call(sch, i)
    assert len(sch.trace) == 2


def test_a_copy_goes_its_own_way() -> None:
    sch = Schedule(elementwise(), seed=3)
    i, j = loops(sch, "B")
    sch.sample_perfect_tile(i, n=2)
    fork = sch.copy()
    fork.split(i, factors=[None, 4])
    sch.parallel(i)
    assert len(fork.trace) == len(sch.trace) == 4
    assert "T.parallel" not in str(fork.func)
    assert fork.sample_perfect_tile(j, n=2) == sch.sample_perfect_tile(j, n=2)


def test_the_original_program_is_kept() -> None:
    func = elementwise()
    sch = Schedule(func)
    text = str(func)
    sch.parallel(loops(sch, "B")[0])
    assert sch.original is func
    assert str(func) == text


def test_an_unknown_primitive_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        Schedule(elementwise()).frobnicate()


def test_a_loop_by_its_name() -> None:
    sch = Schedule(matmul())
    i, j, r = loops(sch, "C")
    before = len(sch.trace)
    assert sch.get_loop("j") is j
    assert sch.get_loop("r", block="C") is r
    assert len(sch.trace) == before + 1  # get_block, of the name
    outer, inner = sch.split(i, factors=[None, 4])
    assert sch.get_loop("i_1") is inner
    assert sch.get_loop("i_0", block=sch.get_block("C")) is outer


def test_a_loop_by_its_name_is_replayed() -> None:
    sch = Schedule(chain())
    names = [s.var.name for s in loops_in(sch.func.body)]
    assert len(set(names)) < len(names)
    sch.parallel(sch.get_loop(names[0], block="C"))
    assert [step.op for step in sch.trace] == ["get_block", "get_loops", "parallel"]
    again = Trace.from_json(sch.trace.to_json()).apply(chain())
    assert structural_equal(again.func, sch.func)


def test_loops_that_are_called_the_same_are_told_apart() -> None:
    sch = Schedule(chain())
    (name,) = {s.var.name for s in loops_in(sch.func.body)}
    with pytest.raises(ScheduleError) as error:
        sch.get_loop(name)
    assert error.value.condition == (
        f"2 loops are called {name!r}: {name} of block B, {name} of block C"
    )
    assert len(sch.trace) == 0
    with pytest.raises(ScheduleError):
        sch.get_loop("x", block="B")


def test_loops_of_no_blocks_that_are_called_the_same() -> None:
    text = """
@tw.script
def twice(A: T.Buffer((8,), "int32")):
    for i in range(8):
        A[i] = 1
    for i in range(8):
        A[i] = A[i] * 2
"""
    sch = Schedule(parse(text))
    make = "hint: begin with make_blocks(), which makes a block of each statement"
    with pytest.raises(ScheduleError) as refusal:
        sch.get_loop("i")
    assert refusal.value.found == "i"
    for block in (0, "A"):
        with pytest.raises(ScheduleError) as refusal:
            sch.get_block(block)
        assert make in str(refusal.value)
    first, second = sch.make_blocks()
    assert sch.get_loop("i", block=second.name) is sch.get_loops(second)[0]
    assert sch.get_loop("i", block=first.name) is sch.get_loops(first)[0]


def test_a_loop_of_no_block() -> None:
    text = """
@tw.script
def plain(A: T.Buffer((8,), "int32")):
    for i in range(8):
        A[i] = 1
"""
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError):
        sch.get_loop("i")
    sch.make_blocks()
    sch.parallel(sch.get_loop("i"))
