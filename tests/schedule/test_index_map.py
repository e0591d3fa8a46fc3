"""Index maps: from functions and from text that is never executed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import IndexMap, Schedule, parse_index_map
from tilewright.tir.ir import Const, Label, const

from .machinery import check_meaning
from .programs import chain


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda i, j: (j, i), "lambda i, j: (j, i)"),
        (lambda i: (i // 8, i % 8), "lambda i: (i // 8, i % 8)"),
        (lambda i, j: i * 4 + j, "lambda i, j: (i * 4 + j,)"),
        (lambda i, j: [(i + j) * 2, i - (j - 1)], "lambda i, j: ((i + j) * 2, i - (j - 1))"),
        (lambda i: (i // (i % 3 + 1), 0), "lambda i: (i // (i % 3 + 1), 0)"),
        (lambda: (0,), "lambda : (0,)"),
    ],
)
def test_text_reads_back(function: Any, text: str) -> None:
    index_map = IndexMap.of(function)
    assert index_map.text() == text
    assert parse_index_map(text).text() == text


def test_application() -> None:
    index_map = parse_index_map("lambda i, j: (j // 4, i, j % 4, -i)")
    values = index_map.apply((const(5), const(11)))
    assert [v.value for v in values if isinstance(v, Const)] == [2, 5, 3, -5]
    with pytest.raises(ScheduleError):
        index_map.apply((const(1),))


def test_named_sizes() -> None:
    index_map = parse_index_map("lambda i: (i // t3, i % t3)", {"t3": 8})
    assert index_map.text() == "lambda i: (i // 8, i % 8)"


@pytest.mark.parametrize(
    "text",
    [
        "", "i", "lambda i: (j,)", "lambda *i: i", "lambda i, *, j: i", "lambda i=3: i",
        "lambda i: i ** 9", "lambda i: i.real", "lambda i: f(i)", "lambda i: [i for _ in i]",
        "lambda i: (i, 'text')", "lambda i: i if i else 0", "lambda i: i < 3", "lambda i: 1.5 * i",
        "lambda i: True", "lambda i: (" * 1000, "lambda i: " + "-" * 3000 + "i",
        "lambda i: i + " + "9" * 4097, "lambda i: 1 // 0", "import os", "lambda i: (i, (i, i))",
        "lambda i: " + "9" * 30, "\0",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse_index_map(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lambda i: (" + "i, " * 2000 + ")", "an index map of 6012 characters; at most 4096"),
        ("lambda i: (i, i ** 2)", r"'i \*\* 2' is not allowed in an index map: 'lambda i: "),
        ("lambda *i: i", r"one named parameter per dimension: 'lambda \*i: i'"),
        ("lambda **i: i", "one named parameter per dimension"),
        ("lambda i, /: i", "one named parameter per dimension"),
        ("lambda i, *, j: i", "one named parameter per dimension"),
        ("lambda i=3: i", "one named parameter per dimension"),
        ("lambda i: abs(i)", r"'abs\(i\)' is not allowed in an index map"),
    ],
)
def test_what_is_wrong_in_a_text_is_named(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        parse_index_map(text)


def test_a_condition_is_no_index() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i: (i, i < 3))


@pytest.mark.parametrize(
    "function",
    [lambda *i: i, lambda i: "text", lambda i: (i, None), lambda i: i**0.5, lambda i: {}],
)
def test_functions_that_give_no_indices_are_refused(function: Any) -> None:
    with pytest.raises(ScheduleError):
        IndexMap.of(function).text()


def sampled() -> tuple[Schedule, Any, Label]:
    """A schedule of a chain, with a sampled integer (4) and a block to be laid out by it."""
    sch = Schedule(chain())
    return sch, sch.sample_categorical([2, 4, 8], decision=[4]), sch.get_block("B")


def test_a_map_follows_the_sampled_integers_that_it_captures() -> None:
    sch, t, block = sampled()
    sizes = [t * 2]
    sch.transform_layout(block, ("write", 0), lambda i: (i // sizes[0], i // t % 2, i % t))
    assert "lambda i: (i // (t0 * 2), i // t0 % 2, i % t0)" in str(sch.trace)
    for decision, shape in ((2, (4, 2, 2)), (4, (2, 2, 4)), (8, (1, 2, 8))):
        replayed = sch.trace.with_decisions({0: [decision]}).apply(chain())
        assert replayed.func.allocs[0].shape == shape
        check_meaning(chain(), replayed.func)


def test_a_map_that_hides_a_sampled_integer_is_refused() -> None:
    sch, t, block = sampled()
    hidden = SimpleNamespace(t=t)
    before = sch.func
    with pytest.raises(ScheduleError):
        sch.transform_layout(block, ("write", 0), lambda i: (i // hidden.t, i % hidden.t))
    assert sch.func is before


def test_a_map_that_loops_over_a_sampled_integer_is_refused() -> None:
    sch, t, block = sampled()
    with pytest.raises(ScheduleError):
        sch.transform_layout(block, ("write", 0), lambda i: [i // (k + 1) for k in range(t)])


def test_a_map_of_plain_integers_stays() -> None:
    sch, _, block = sampled()
    size = 8
    sch.transform_layout(block, ("write", 0), lambda i: (i // size, i % size))
    assert "lambda i: (i // 8, i % 8)" in str(sch.trace)
