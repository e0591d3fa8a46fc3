"""Random programs under random steps: whatever is accepted computes the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.schedule import Schedule

from .machinery import check_meaning, check_replays
from .random_steps import a_program, apply_random_steps


@settings(max_examples=60)
@given(st.data())
def test_random_schedules_keep_the_meaning(data: st.DataObject) -> None:
    def pick(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    sch = Schedule(a_program(pick), seed=pick(3))
    apply_random_steps(sch, pick, 1 + pick(10), Counter())
    check_meaning(sch.original, sch.func)
    check_replays(sch.original, sch)


@pytest.mark.parametrize("seed", range(12))
def test_random_schedules_use_every_primitive(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts: Counter[str] = Counter()

    def pick(n: int) -> int:
        return int(rng.integers(n))

    for _ in range(8):
        sch = Schedule(a_program(pick), seed=seed)
        apply_random_steps(sch, pick, 12, counts)
        check_meaning(sch.original, sch.func)
    assert len(counts) > 8
