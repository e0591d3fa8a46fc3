"""A refusal as data: what was asked, what does not hold, where, and what would do."""

from __future__ import annotations

import json

import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule, require
from tilewright.tir.ir import Var
from tilewright.tir.parser import parse

from .programs import elementwise, loops, matmul


def refusal_of(sch: Schedule, name: str, *args: object, **kwargs: object) -> ScheduleError:
    with pytest.raises(ScheduleError) as refusal:
        getattr(sch, name)(*args, **kwargs)
    return refusal.value


def test_a_factor_and_those_that_would_do() -> None:
    sch = Schedule(elementwise())
    _, j = loops(sch, "B")
    error = refusal_of(sch, "split", j, factors=[None, 5], perfect=True)
    assert error.condition == "factor 5 does not divide extent 12: 2 iterations are left over"
    assert (error.found, error.expected) == (5, "a divisor of 12")
    assert error.alternatives == [2, 3, 4, 6]
    for factor in error.alternatives:
        sch.copy().split(j, factors=[None, factor], perfect=True)
    assert error.place is j
    assert error.func is sch.func
    assert (error.primitive, error.step) == ("split", 2)
    assert error.given.keys() == {"loop", "factors", "perfect"}


def test_loops_that_would_do() -> None:
    sch = Schedule(matmul())
    i, j, r = loops(sch, "C")
    error = refusal_of(sch, "parallel", r)
    assert (error.found, error.expected) == ("reduce", "spatial")
    assert set(error.alternatives) == {i, j}
    for loop in error.alternatives:
        sch.copy().parallel(loop)


def test_it_goes_through_json() -> None:
    sch = Schedule(matmul())
    *_, r = loops(sch, "C")
    data = json.loads(json.dumps(refusal_of(sch, "parallel", r).as_data()))
    assert data["alternatives"] == ["i", "j"]
    assert data["place"] == "r"
    assert data["given"] == {"loop": "l3"}
    assert data["hint"] == "loops that feed only spatial iterations: i, j"
    assert "# <-- here" in data["program"]
    assert data["ended"] is data["example"] is None


def test_an_example_is_data_too() -> None:
    text = """
@tw.script
def shifted(A: T.Buffer((8,), "int32"), B: T.Buffer((9,), "int32")):
    T.inplace(B)
    for i in T.serial(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            B[v + 1] = B[v] + A[v]
"""
    sch = Schedule(parse(text))
    data = refusal_of(sch, "parallel", *loops(sch, "B")).as_data()
    assert data["example"] == "iteration i=0 writes B[1], iteration i=1 reads it"


def test_where_a_handle_came_from_and_went() -> None:
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    outer, inner = sch.split(i, factors=[None, 4])
    sch.fuse(outer, inner)
    error = refusal_of(sch, "unroll", inner)
    ended = "loop i_1 was made by step 2 and ended with step 3, sch.fuse(l3, l4)"
    assert error.as_data()["ended"] == ended
    assert ended in str(error)
    assert "made by" not in str(refusal_of(sch, "unroll", i))
    assert "loop i ended with step 2" in str(refusal_of(sch, "unroll", i))


def test_without_a_schedule_there_is_less_to_say() -> None:
    loop = Var("i")
    with pytest.raises(ScheduleError) as refusal:
        require(False, "{0} is not {1}", 1, 2, at=loop, found=1, expected=lambda: 2)
    data = refusal.value.as_data()
    assert data.pop("condition") == "1 is not 2"
    assert (data.pop("found"), data.pop("expected"), data.pop("place")) == (1, 2, "i")
    assert not any(data.values())
    assert refusal.value.func is None


def test_nothing_is_made_before_it_is_read() -> None:
    def fail() -> str:
        raise AssertionError("read")

    with pytest.raises(ScheduleError) as refusal:
        require(False, "no", hint=fail, example=fail, found=fail, expected=fail, alternatives=fail)
    for name in ("found", "expected", "alternatives"):
        with pytest.raises(AssertionError, match="read"):
            getattr(refusal.value, name)
    with pytest.raises(AssertionError, match="read"):
        str(refusal.value)
