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
    assert 0 < count < len(among)
    assert model_trace(SMALL, TARGET, sketches=among) == chosen
    assert len(looked_at) == 2 * count


def test_a_large_program_is_chosen_from_more(looked_at: list[Any]) -> None:
    default_trace(SMALL, TARGET)
    few = len(looked_at)
    default_trace(ops.matmul_func(512, 512, 512), TARGET)
    assert len(looked_at) - few > few


def test_with_a_rule_of_the_users_its_sketch_is_looked_at_too(looked_at: list[Any]) -> None:
    """It may win, and comes last; of the others as many are looked at as without it."""
    default_trace(SMALL, TARGET)
    without = len(looked_at)

    @sketch_rule
    def halves(draft: Any) -> None:
        loop, *_ = draft.schedule.get_loops(draft.schedule.get_block(0))
        draft.schedule.split(loop, factors=[None, 2])

    assert sketches(SMALL, TARGET)[-1].name == "halves"
    default_trace(SMALL, TARGET)
    assert len(looked_at) == 2 * without + 1


def test_a_sketch_that_is_not_wanted_is_not_made_and_no_other_takes_its_place() -> None:
    every = sketches(SMALL, TARGET)
    left_out = every[1].choices

    def wanted(choices: tuple[RuleChoice, ...]) -> bool:
        return choices != left_out

    names = [sketch.name for sketch in sketches_in_turn(SMALL, TARGET, wanted=wanted)]
    assert names == [sketch.name for n, sketch in enumerate(every) if n != 1]


class Stub:
    """A sketch of which only its choices are known."""

    def __init__(self, *choices: RuleChoice) -> None:
        self.choices = choices


def test_parts_that_were_slow_do_not_win_with_others() -> None:
    """Of two groups, the second choice of the first was slower than its first choice."""
    first, second = RuleChoice.of("tile", blocked=False), RuleChoice.of("tile", blocked=True)
    other, along = RuleChoice.of("rows"), RuleChoice.of("tile", vector=1, blocked=False)
    standing = unmeasured._Standing(0.0)
    standing.take(Stub(first, other), (), -10.0)  # type: ignore[arg-type]
    standing.take(Stub(second, other), (), -9.5)  # type: ignore[arg-type]
    standing.take(Stub(along), (), -9.0)  # type: ignore[arg-type]
    assert standing.may_win((first, RuleChoice.of("columns")))
    assert not standing.may_win((second, RuleChoice.of("columns")))
    assert not standing.may_win((RuleChoice.of("tile", vector=1, blocked=True),))
    assert standing.may_win((RuleChoice.of("tile", vector=0, blocked=True),))


def test_options_change_other_sketches_alike() -> None:
    """Blocks made one sketch slower, so they do not make a slower one the fastest."""
    standing = unmeasured._Standing(0.0)
    for blocked, pack, predicted in ((False, 0, -10.0), (True, 0, -9.9), (False, 1, -9.95)):
        choice = RuleChoice.of("tile", blocked=blocked, pack=pack)
        standing.take(Stub(choice), (), predicted)  # type: ignore[arg-type]
    assert not standing.may_win((RuleChoice.of("tile", blocked=True, pack=1),))
    assert standing.may_win((RuleChoice.of("tile", blocked=True, pack=2),))
    own = unmeasured._Standing(0.0, frozenset(["tile"]))
    for pack in range(3):
        choice = RuleChoice.of("tile", pack=pack)
        own.take(Stub(choice), (), -20.0)  # type: ignore[arg-type]
    assert own.may_win((RuleChoice.of("tile"),))
    assert not own.may_win((RuleChoice.of("rows"),))
