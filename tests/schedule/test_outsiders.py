"""Primitives that are registered from outside of the package, as this module does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

import tilewright as tw
from tilewright.base.errors import ScheduleError
from tilewright.schedule import PRIMITIVES, Schedule, Trace
from tilewright.schedule import primitives as p
from tilewright.schedule.choose import Choose
from tilewright.schedule.find import path_to, rebuild
from tilewright.tir.ir import Dim, For, Func, Label, Var
from tilewright.tir.visit import substitute

from ..refusals import refused
from .machinery import check_meaning, check_replays
from .programs import chain, elementwise, loops, matmul

if TYPE_CHECKING:
    from tilewright.tir.ir import Buffer


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """Leave the registry as it was."""
    before = dict(PRIMITIVES)
    yield
    PRIMITIVES.clear()
    PRIMITIVES.update(before)


def register() -> None:
    @tw.primitive
    def rename(fn: Func, loop: Var, name: str) -> tuple[Func, Var]:
        """Give a loop another name."""
        path = path_to(fn, loop)
        old = path[-1]
        assert isinstance(old, For)
        new = Var(name)
        body = substitute(old.body, {loop: new})
        return rebuild(fn, path, For(new, old.extent, body, old.kind)), new

    @tw.primitive
    def strip(fn: Func, loop: Var, lanes: Dim) -> tuple[Func, tuple[Var, Var]]:
        """Run `lanes` iterations of a loop as a vector."""
        tw.require(lanes >= 2, "{0} lanes; expected at least 2", lanes, at=loop)
        fn, (outer, inner) = p.split(fn, loop, (None, lanes), perfect=True)
        fn, _ = p.vectorize(fn, inner)
        return fn, (outer, inner)


def test_it_is_a_method_and_replays() -> None:
    register()
    sch = Schedule(chain())
    (i,) = loops(sch, "B")
    new = sch.rename(i, "here")
    assert new.name == "here"
    assert str(sch.trace).splitlines()[-1] == "l2 = sch.rename(l1, name='here')"
    outer, _ = sch.strip(new, lanes=4)
    sch.parallel(outer)
    check_replays(sch.original, sch)
    check_meaning(sch.original, sch.func)


def test_it_is_found_by_completion_and_help() -> None:
    register()
    sch = Schedule(chain())
    assert {"rename", "strip", "split", "trace"} <= set(dir(sch))
    assert sch.rename.__name__ == "rename"
    assert sch.rename.__doc__ == "Give a loop another name."


def test_its_refusals_are_those_of_any_step() -> None:
    register()
    sch = Schedule(elementwise())
    i, _ = loops(sch, "B")
    with pytest.raises(ScheduleError) as refusal:
        sch.strip(i, lanes=1)
    assert refusal.value.primitive == "strip"
    assert "refused: step 2, sch.strip(l1, lanes=1)" in str(refusal.value)
    assert "for i, j in T.grid(16, 12):  # <-- here" in str(refusal.value)
    with pytest.raises(ScheduleError):
        sch.strip(i, lanes="x")
    assert len(sch.trace) == 2


def test_it_is_searched_like_any_other() -> None:
    """Its conditions on symbolic programs become constraints, and rows are decisions."""
    register()
    sch = Schedule(matmul(8, 12, 10), symbolic=True)
    _, j, _ = loops(sch, "C")
    (lanes,) = sch.sample_tile(j, 2, 8)[1:]
    sch.reorder(sch.get_loops(sch.get_block("C"))[2], j)
    sch.strip(j, lanes)
    assert sch.space is not None
    (variable,) = sch.space.bounds
    assert any("lanes" in c.message for c in sch.space.constraints)
    assert variable is lanes
    concrete = sch.trace.with_row([4]).apply(sch.original)
    assert "T.vectorized(4)" in str(concrete.func)
    check_meaning(sch.original, concrete.func)
    with refused(ScheduleError, "1"):
        sch.trace.with_row([1]).apply(sch.original)


def test_a_decision_needs_a_value_to_take() -> None:
    @tw.primitive
    def pick(
        fn: Func,
        choose: Choose,
        values: Sequence[int],
        least: int,
        weights: Sequence[float] | None = None,
    ) -> tuple[Func, Dim]:
        """One of the values from `least` on."""
        return fn, choose("picked", values, lambda v: v >= least, weights)

    sch = Schedule(chain())
    assert sch.pick([2, 3], 3) == 3
    with pytest.raises(ScheduleError):
        sch.pick([2, 3], 4)
    left_open = Schedule(chain(), symbolic=True)
    with pytest.raises(ScheduleError):
        left_open.pick([], 0)
    with pytest.raises(ScheduleError):
        left_open.pick([2, 3], 0, [0.0, 0.0])


def test_blocks_that_it_keeps_to_itself_have_no_handle() -> None:
    @tw.primitive
    def stage(fn: Func, block: Label) -> tuple[Func, None]:
        """Copy the first input."""
        return p.cache_read(fn, block, 0, "local")[0], None

    sch = Schedule(chain())
    sch.stage(sch.get_block("B"))
    with pytest.raises(ScheduleError):
        sch.get_block("A_local")


def test_a_trace_says_where_it_came_from() -> None:
    register()
    sch = Schedule(chain())
    sch.rename(loops(sch, "B")[0], "here")
    text = sch.trace.to_json()
    steps = json.loads(text)["steps"]
    assert ["from" in step for step in steps] == [False, False, True]
    assert steps[2]["from"] == __name__
    del PRIMITIVES["rename"]
    with pytest.raises(ScheduleError) as refusal:
        Trace.from_json(text)
    assert f"'rename' is not registered; module {__name__!r}" in str(refusal.value)
    assert f"hint: import {__name__} before the trace is read" in str(refusal.value)
    with pytest.raises(ScheduleError):
        Trace.from_json(text.replace(__name__, "__main__"))
    with pytest.raises(ScheduleError):
        sch.trace.to_json()


@pytest.mark.parametrize("home", ["", "os; x", "a..b", 3, "x" * 300])
def test_a_trace_names_modules_by_their_names(home: object) -> None:
    step = {"op": "rename", "from": home, "args": {}}
    with pytest.raises(ScheduleError):
        Trace.from_json(json.dumps({"version": 1, "steps": [step]}))


def test_a_misspelt_one_is_pointed_out() -> None:
    document = {"version": 1, "steps": [{"op": "paralel", "args": {}}]}
    with pytest.raises(ScheduleError):
        Trace.from_json(json.dumps(document))
    document["steps"] = [{"op": "frobnicate", "args": {}}]
    with pytest.raises(ScheduleError):
        Trace.from_json(json.dumps(document))


def test_defining_it_again_takes_its_place() -> None:
    register()
    first = PRIMITIVES["rename"]
    register()
    assert PRIMITIVES["rename"] is not first


def test_a_name_is_registered_once() -> None:
    register()

    def rename(fn: Func) -> tuple[Func, None]:
        return fn, None

    with pytest.raises(ScheduleError):
        tw.primitive(rename)


@pytest.mark.parametrize("name", ["split", "get_loops"])
def test_names_of_the_package_are_taken(name: str) -> None:
    def other(fn: Func) -> tuple[Func, None]:
        return fn, None

    other.__name__ = name
    with refused(ScheduleError, name):
        tw.primitive(other)


@pytest.mark.parametrize("name", ["func", "trace", "space", "copy", "_call", "__repr__", "_own"])
def test_what_a_schedule_has_is_taken(name: str) -> None:
    def other(fn: Func) -> tuple[Func, None]:
        return fn, None

    other.__name__ = name
    with refused(ScheduleError, name):
        tw.primitive(other)


def wrong_result(fn: Func, loop: Var) -> Func:
    return fn


def pair_of_other_kind(fn: Func, loop: Var) -> dict[Func, int]:
    return {fn: 0}


def three_results(fn: Func, loop: Var) -> tuple[Func, Var, Var]:
    return fn, loop, loop


def no_program(fn: Func, loop: Var) -> tuple[Var, Func]:
    return loop, fn


def no_types(fn, loop):  # type: ignore[no-untyped-def]
    return fn, None


def no_result(fn: Func, loop: Var):  # type: ignore[no-untyped-def]
    return fn, None


def not_for_traces(fn: Func, block: Label, what: bytes) -> tuple[Func, None]:
    return fn, None


def unknown_type(fn: Func, buffer: Buffer) -> tuple[Func, None]:
    return fn, None


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (wrong_result, "primitive wrong_result returns .*Func.*expected tuple"),
        (pair_of_other_kind, "primitive pair_of_other_kind returns dict.*expected tuple"),
        (three_results, "primitive three_results returns tuple.*expected tuple"),
        (no_program, "primitive no_program returns tuple.*expected tuple"),
        (no_result, "primitive no_result returns nothing that is declared"),
        (
            no_types,
            r"parameter loop of primitive no_types has no type(.|\n)*Var.*Label.*loop: Var\)",
        ),
        (not_for_traces, "a parameter of type .*bytes.*, which no trace can hold"),
        (unknown_type, "the types of primitive unknown_type cannot be looked up.*'Buffer'"),
    ],
)
def test_types_are_read_when_it_is_registered(function, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ScheduleError, match=says):
        tw.primitive(function)
    assert function.__name__ not in PRIMITIVES


def test_only_functions_are_registered() -> None:
    with pytest.raises(ScheduleError):
        tw.primitive("x")  # type: ignore[call-overload]


def register_inexact() -> None:
    @tw.primitive(inexact=8.0)
    def approximate(fn: Func, block: Label) -> tuple[Func, None]:
        """Says that it rounds otherwise, and changes nothing."""
        del block
        return fn, None

    @tw.primitive(inexact=lambda arguments: arguments["growth"])
    def spoil(fn: Func, block: Label, growth: float) -> tuple[Func, None]:
        """Says how much it rounds otherwise."""
        del block, growth
        return fn, None


def test_inexact_steps_are_those_that_say_so() -> None:
    register_inexact()
    sch = Schedule(chain())
    assert (sch.trace.inexact, sch.trace.error_factor) == ((), 1.0)
    block = sch.get_block("B")
    for growth in (2.0, 3.0):
        sch.spoil(block, growth=growth)
    assert (sch.trace.inexact, sch.trace.error_factor) == (("spoil",), 3.0)
    sch.approximate(block)
    read = Trace.from_json(sch.trace.to_json())
    assert (read.inexact, read.error_factor) == (("spoil", "approximate"), 8.0)


@pytest.mark.parametrize("factor", [1, 0.5, True, "8", float("inf"), float("nan")])
def test_an_error_factor_is_a_number_above_one(factor: Any) -> None:
    def wrong(fn: Func, loop: Var) -> tuple[Func, None]:
        del loop
        return fn, None

    with pytest.raises(ScheduleError):
        tw.primitive(inexact=factor)(wrong)
    assert "wrong" not in PRIMITIVES
    register_inexact()
    step = PRIMITIVES["spoil"]
    with pytest.raises(ScheduleError):
        step.error_factor({"growth": factor})
