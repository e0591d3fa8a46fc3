"""No primitive is forgotten: each has its method, its documentation, its types, its golden test."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tilewright.schedule import PRIMITIVES, Schedule, primitives

GOLDENS = Path(__file__).parent / "goldens"
BUILTIN = sorted(
    name for name, p in PRIMITIVES.items() if p.function.__module__.startswith(primitives.__name__)
)
QUERIES = {"work_on", "get_block", "get_loops", "get_producers", "get_consumers"}


def test_the_issue_of_this_package_is_complete() -> None:
    assert len(BUILTIN) >= 29
    exported = {name for name, v in vars(primitives).items() if inspect.isfunction(v)}
    assert set(BUILTIN) == exported


@pytest.mark.parametrize("name", BUILTIN)
def test_each_has_its_method(name: str) -> None:
    method = Schedule.__dict__[name]
    assert method.__doc__
    parameters = list(inspect.signature(method).parameters)
    decision = ["decision"] * PRIMITIVES[name].samples
    assert parameters == ["self", *PRIMITIVES[name].names, *decision]


@pytest.mark.parametrize("name", BUILTIN)
def test_each_says_what_it_does(name: str) -> None:
    text = inspect.getdoc(PRIMITIVES[name].function)
    assert text
    assert text.splitlines()[0].endswith((".", ":"))


@pytest.mark.parametrize("name", BUILTIN)
def test_each_parameter_fits_into_a_trace(name: str) -> None:
    assert PRIMITIVES[name].checks.keys() == set(PRIMITIVES[name].names)


@pytest.mark.parametrize("name", BUILTIN)
def test_each_has_a_golden_test(name: str) -> None:
    folder = GOLDENS / ("query" if name in QUERIES else name)
    scripts = [p.read_text(encoding="utf-8") for p in folder.glob("*.txt")]
    assert any(f"sch.{name}(" in text for text in scripts)
