"""The ablation on measurements that are made up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.ablation import (
    ALL,
    NO_BASE,
    NO_CHANCE,
    NO_DECISIONS,
    NO_FAILURES,
    NO_MODEL,
    NO_OTHERS,
    RANDOM,
    Recorded,
    Task,
    course,
    parts,
    worth,
)
from tilewright.autotune.model.cpu.estimate import FEATURES


def task(family: str = "matmul", seed: int = 0, target: str = "cpu") -> Task:
    """Times that the estimate does not know: a feature and a decision do, and one rule is best."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(200):
        features = rng.normal(size=len(FEATURES))
        tiled = bool(rng.random() < 0.5)
        row = (int(rng.integers(8)), int(rng.integers(8)))
        known = features[0] * 0.1 + 2.0 * features[1] + 2.0 * abs(row[1] - 5)
        rule = "tiled" if tiled else "plain"
        seconds = float(2.0 ** (known + (0.0 if tiled else 2.0)))
        made.append(Recorded(frozenset({"inline", rule}), rule, row, tuple(features), seconds))
    return Task(family, target, made)


def test_each_part_is_named_once() -> None:
    named = [f"without {rule}" for rule in ("inline", "plain", "tiled")]
    assert parts([task()]) == [
        *(ALL, NO_BASE, NO_OTHERS, NO_DECISIONS, NO_FAILURES, NO_CHANCE, NO_MODEL, RANDOM),
        *named,
    ]


def test_all_are_found_in_the_end_and_times_only_fall() -> None:
    made = task()
    least = min(r.seconds for r in made.tried)
    for part in (ALL, NO_MODEL, RANDOM):
        best = [seconds for seconds, _ in course(made, part, 0)]
        assert len(best) == 25
        assert best == sorted(best, reverse=True)
        assert best[-1] == least
        assert best == [seconds for seconds, _ in course(made, part, 0)]


def test_parts_that_help_are_worth_something_and_others_nothing() -> None:
    made = [task()]

    def at_64(part: str) -> float:
        return worth(made, part, 3).ratios[3]

    learnt = at_64(NO_BASE)  # no base model knows what is made up
    assert learnt < at_64(NO_MODEL)
    assert learnt < at_64(RANDOM)
    assert learnt < at_64("without tiled")
    assert at_64(ALL) < at_64(NO_DECISIONS)
    assert at_64("without plain") < 1.1
    assert worth(made, "without inline", 3).lost == 1


def test_failures_are_a_part_too() -> None:
    """The candidates that would be fast fail."""
    known = task()
    fast = [r.features[1] < -0.5 for r in known.tried]
    times = [math.inf if f else r.seconds for r, f in zip(known.tried, fast, strict=True)]
    tried = [r._replace(seconds=t) for r, t in zip(known.tried, times, strict=True)]
    made = [known._replace(tried=tried)]
    learnt, blind, by_chance = (worth(made, part, 3) for part in (ALL, NO_FAILURES, RANDOM))
    assert learnt.failed < blind.failed / 1.5
    assert by_chance.failed == pytest.approx(np.mean(fast), abs=0.1)
    assert math.isfinite(learnt.ratios[3])


def test_other_programs_say_how_candidates_compare_on_the_same_target() -> None:
    def first(part: str, others: Sequence[Task] = ()) -> float:
        made = task()
        return float(np.mean([next(course(made, part, s, [made, *others]))[0] for s in range(8)]))

    def eight(family: str, target: str) -> list[Task]:
        return [task(family, seed, target) for seed in range(1, 9)]

    alone = first(ALL)
    assert first(ALL, eight("conv2d", "cpu")) < alone
    assert first(ALL, eight("conv2d", "arm")) == alone
    assert first(ALL, eight("matmul", "cpu")) == alone, "other sizes tell more than is known here"
    assert first(NO_OTHERS, eight("conv2d", "cpu")) == first(NO_OTHERS)
