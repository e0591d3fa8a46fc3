"""Schedule: handles, refusals that say what and where, copies."""

from __future__ import annotations

import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule

from .programs import elementwise, loops, matmul


def test_a_dead_handle_names_the_step_that_ended_it() -> None:
    sch = Schedule(elementwise())
    i, j = loops(sch, "B")
    sch.split(j, factors=[None, 4])
    sch.split(i, factors=[None, 4])
    with pytest.raises(ScheduleError, match="no loop i in the program") as refusal:
        sch.vectorize(i)
    text = str(refusal.value)
    assert "loop i ended with step 3, sch.split(l1, factors=[None, 4])" in text
    assert "refused: step 4, sch.vectorize(l1)" in text


def test_a_foreign_handle_is_refused() -> None:
    one, two = Schedule(elementwise()), Schedule(elementwise())
    i, _ = loops(one, "B")
    with pytest.raises(ScheduleError, match="handle i is not of this schedule") as refusal:
        two.split(i, factors=[None, 4])
    assert "get_block and get_loops" in str(refusal.value)
    with pytest.raises(ScheduleError, match="handle B is not of this schedule"):
        two.get_loops(one.get_block("B"))


def test_a_loop_is_no_block() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError, match="get_loops: block must be a block, found l1"):
        sch.get_loops(i)  # type: ignore[arg-type]


def test_a_refusal_shows_the_program_with_the_place_marked() -> None:
    sch = Schedule(matmul())
    _, _, r = loops(sch, "C")
    with pytest.raises(ScheduleError) as refusal:
        sch.parallel(r)
    lines = str(refusal.value).splitlines()
    assert lines[0].startswith("loop r cannot run in parallel")
    assert lines[1].startswith("  hint: loops that feed only spatial iterations: i, j")
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
        (lambda sch, i: sch.split(), "split takes .loop: Var, factors: Sequence.Dim . None."),
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
    with pytest.raises(AttributeError, match="no primitive 'frobnicate'"):
        Schedule(elementwise()).frobnicate()
