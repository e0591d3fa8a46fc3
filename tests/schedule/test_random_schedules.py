"""Random programs under random steps: whatever is accepted computes the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.schedule import PRIMITIVES, Schedule

from .machinery import check_meaning, check_replays
from .random_programs import a_program
from .random_steps import apply_random_steps


@settings(max_examples=150)
@given(st.data())
def test_random_schedules_keep_the_meaning(data: st.DataObject) -> None:
    def pick(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    sch = Schedule(a_program(pick), seed=pick(3))
    apply_random_steps(sch, pick, 1 + pick(10), Counter())
    check_meaning(sch.original, sch.func)
    check_replays(sch.original, sch)


def test_random_schedules_reach_every_primitive() -> None:
    rng = np.random.default_rng(0)
    counts: Counter[str] = Counter()

    def pick(n: int) -> int:
        return int(rng.integers(n))

    for seed in range(300):
        sch = Schedule(a_program(pick), seed=seed)
        apply_random_steps(sch, pick, 12, counts)
        check_meaning(sch.original, sch.func)
    never = set(PRIMITIVES) - set(counts) - {"annotate", "set_scope", "sample_categorical"}
    assert not never
