"""Index maps: from functions and from text that is never executed."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import IndexMap, parse_index_map
from tilewright.tir.ir import Const, const


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
    with pytest.raises(ScheduleError, match="takes 2 indices, found 1"):
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
    "function", [lambda *i: i, lambda i: "text", lambda i: (i, None), lambda i: i**2, lambda i: {}]
)
def test_functions_that_give_no_indices_are_refused(function: Any) -> None:
    with pytest.raises(ScheduleError):
        IndexMap.of(function).text()
