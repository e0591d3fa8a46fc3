"""The ablation on measurements that are made up."""

from __future__ import annotations

import numpy as np

from benchmarks.ablation import ALL, NO_BASE, NO_MODEL, RANDOM, Recorded, course, parts, ratios
from tilewright.autotune.analytic import FEATURES


def task() -> list[Recorded]:
    """Times that the estimate does not know: the second feature says them, and one rule is best."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(200):
        features = rng.normal(size=len(FEATURES))
        tiled = bool(rng.random() < 0.5)
        seconds = 2.0 ** (features[0] * 0.1 + 2.0 * features[1] + (0.0 if tiled else 2.0))
        rules = frozenset({"inline", "tiled" if tiled else "plain"})
        made.append(Recorded(rules, tuple(features), float(seconds)))
    return made


def test_each_part_is_named_once() -> None:
    named = [f"without {rule}" for rule in ("inline", "plain", "tiled")]
    assert parts([task()]) == [ALL, NO_BASE, NO_MODEL, RANDOM, *named]


def test_all_are_found_in_the_end_and_times_only_fall() -> None:
    made = task()
    least = min(r.seconds for r in made)
    for part in (ALL, NO_MODEL, RANDOM):
        best = list(course(made, part, 0))
        assert len(best) == 25
        assert best == sorted(best, reverse=True)
        assert best[-1] == least
        assert best == list(course(made, part, 0))


def test_parts_that_help_are_worth_something_and_others_nothing() -> None:
    made = [task()]
    learnt, _ = ratios(made, NO_BASE, 48, 3)  # no base model knows what is made up
    assert learnt < ratios(made, NO_MODEL, 48, 3)[0]
    assert learnt < ratios(made, RANDOM, 48, 3)[0]
    assert learnt < ratios(made, "without tiled", 48, 3)[0]
    assert ratios(made, "without plain", 200, 1) == (1.0, 0)
    assert ratios(made, "without inline", 48, 3)[1] == 1
