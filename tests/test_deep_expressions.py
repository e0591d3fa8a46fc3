"""Long and deeply nested expressions: each step works, or its error says what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import tilewright as tw
from tilewright import te
from tilewright.tir.equality import family_hash, structural_equal, structural_hash
from tilewright.tir.parser import parse

HERE = "cpu -threads=1"


def terms(x: Any, count: int) -> Any:
    return sum((x * float(n) for n in range(1, count)), x)


def sines(x: Any, count: int) -> Any:
    for _ in range(count):
        x = te.sin(x)
    return x


EXPRESSIONS = {
    **{f"sum of {n}": (terms, n) for n in (150, 300, 400, 1000)},
    **{f"{n} sines": (sines, n) for n in (80, 150, 300)},
}


def program(expression: str) -> tw.Func:
    make, count = EXPRESSIONS[expression]
    x = te.placeholder((4,), name="X")
    y = te.compute((4,), lambda i: make(x[i], count), name="Y")
    return te.func([x, y], name="deep")


def scheduled(func: tw.Func) -> str:
    sch = tw.Schedule(func)
    (loop,) = sch.get_loops(sch.get_block("Y"))
    sch.split(loop, factors=[None, 2])
    return str(sch)


def inlined(sch: tw.Schedule, name: str) -> bool:
    sch.compute_inline(sch.get_block(name))
    return True


def tuned(func: tw.Func) -> str:
    with tw.TuningDatabase("sqlite://") as db:
        return str(tw.tune(func, HERE, database=db, trials=1, progress=False))


STEPS: dict[str, Callable[[tw.Func], object]] = {
    "text": str,
    "repr": repr,
    "html": lambda func: func._repr_html_(),
    "parsed": lambda func: structural_equal(parse(str(func)), func),
    "hash": structural_hash,
    "family": family_hash,
    "scheduled": scheduled,
}


def outcome(step: Callable[[], object]) -> str | None:
    """The text of the error, which says what to do; `None` if a step works."""
    try:
        result = step()
    except tw.TilewrightError as error:
        said = str(error)
    else:
        assert result
        return None
    assert "too deeply" in said
    assert "recursion" not in said
    assert "hint: " in said
    return said


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_each_step_works_or_says_what_to_do(expression: str) -> None:
    if outcome(partial(program, expression)) is None:
        func = program(expression)
        said = {name: outcome(partial(step, func)) for name, step in STEPS.items()}
        assert said["text"] is said["repr"] is None
        if expression in ("sum of 150", "80 sines"):
            assert set(said.values()) == {None}


@pytest.mark.parametrize("expression", ["sum of 300", "150 sines"])
def test_what_is_too_deep_is_not_tuned(expression: str) -> None:
    assert "stages of their own" in str(outcome(lambda: tuned(program(expression))))


def test_inlining_that_joins_stages_to_a_deep_expression() -> None:
    """The schedule is as before the step that is refused."""
    x = te.placeholder((4,), name="X")
    stages = [x]
    for n in range(10):
        last = stages[-1]
        stages.append(te.compute((4,), lambda i, t=last: sines(t[i], 40), name=f"Y{n}"))
    sch = tw.Schedule(te.func([x, stages[-1]], name="deep"))
    refused = 0
    for n in range(9):
        before = sch.func
        said = outcome(partial(inlined, sch, f"Y{n}"))
        refused += said is not None
        assert said is None or (sch.func is before and "stages of their own" in said)
    assert refused
    assert "stages of their own" in str(outcome(lambda: tw.build(sch, HERE)))


def test_rules_inline_no_stages_to_a_deep_expression() -> None:
    """What is computed in stages, as errors advise, is built."""
    x = te.placeholder((4,), name="X")
    stages = [x]
    for n in range(10):
        last = stages[-1]
        stages.append(te.compute((4,), lambda i, t=last: sines(t[i], 40), name=f"Y{n}"))
    func = te.func([x, stages[-1]], name="deep")
    assert outcome(lambda: tw.build(func, HERE)) is None
