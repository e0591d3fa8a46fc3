"""Choosing without a measurement: which sketches are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tilewright import ops
from tilewright.autotune.model.profile import profile as profiled
from tilewright.autotune.rules.draft import RuleChoice
from tilewright.autotune.rules.user_rules import SKETCH_RULES, sketch_rule
from tilewright.autotune.search import unmeasured
from tilewright.autotune.search.sketch import sketches, sketches_in_turn
from tilewright.autotune.search.unmeasured import default_trace, model_trace

from ..hosts import processor

TARGET = processor("cpu -mcpu=haswell -threads=1")
SMALL = ops.matmul_func(6, 16, 8)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The scheduled programs of the sketches whose rows are estimated."""
    programs: list[Any] = []

    def watched(func: Any, *arguments: Any) -> Any:
        if arguments:  # without, it is of a concrete program
            programs.append(func)
        return profiled(func, *arguments)

    monkeypatch.setattr(unmeasured, "profile", watched)
    rules = dict(SKETCH_RULES)
    yield programs
    SKETCH_RULES.clear()
    SKETCH_RULES.update(rules)


def test_a_small_program_is_chosen_from_few_of_its_sketches(looked_at: list[Any]) -> None:
    among = sketches(SMALL, TARGET)
    chosen = model_trace(SMALL, TARGET)
    count = len(looked_at)
    assert 0 < count <= unmeasured.ALWAYS + 1 < len(among)
    assert model_trace(SMALL, TARGET, sketches=among) == chosen
    assert len(looked_at) == 2 * count


def test_a_large_program_is_chosen_from_more(looked_at: list[Any]) -> None:
    default_trace(ops.matmul_func(512, 512, 512), TARGET)
    assert len(looked_at) > unmeasured.ALWAYS + 1


def test_with_a_rule_of_the_users_every_sketch_is_looked_at(looked_at: list[Any]) -> None:
    """It may win, and its sketches come last."""

    @sketch_rule
    def halves(draft: Any) -> None:
        loop, *_ = draft.schedule.get_loops(draft.schedule.get_block(0))
        draft.schedule.split(loop, factors=[None, 2])

    among = sketches(SMALL, TARGET)
    assert among[-1].name == "halves"
    default_trace(SMALL, TARGET)
    assert len(looked_at) == len(among)


def test_a_sketch_that_is_not_wanted_is_not_made_and_no_other_takes_its_place() -> None:
    every = sketches(SMALL, TARGET)
    left_out = every[1].choices

    def wanted(choices: tuple[RuleChoice, ...]) -> bool:
        return choices != left_out

    names = [sketch.name for sketch in sketches_in_turn(SMALL, TARGET, wanted=wanted)]
    assert names == [sketch.name for n, sketch in enumerate(every) if n != 1]


def test_parts_that_were_slow_do_not_win_with_others() -> None:
    """Of two groups, the second choice of the first was slower than its first choice."""

    class Stub:
        def __init__(self, *choices: RuleChoice) -> None:
            self.choices = choices

    first, second = RuleChoice.of("tile", blocked=False), RuleChoice.of("tile", blocked=True)
    other, along = RuleChoice.of("rows"), RuleChoice.of("tile", vector=1, blocked=False)
    standing = unmeasured._Standing(0.0, patient=False)
    standing.take(Stub(first, other), (), -10.0)  # type: ignore[arg-type]
    standing.take(Stub(second, other), (), -9.5)  # type: ignore[arg-type]
    standing.take(Stub(along), (), -9.0)  # type: ignore[arg-type]
    assert standing.may_win((first, RuleChoice.of("columns")))
    assert not standing.may_win((second, RuleChoice.of("columns")))
    assert not standing.may_win((RuleChoice.of("tile", vector=1, blocked=True),))
    assert standing.may_win((RuleChoice.of("tile", vector=0, blocked=True),))
