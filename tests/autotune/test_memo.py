"""Estimates of programs with blocks in common: as of each alone, but from less work."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import te
from tilewright.autotune.model.cpu import estimate
from tilewright.autotune.model.memo import Memo
from tilewright.autotune.model.profile import profile
from tilewright.autotune.model.target_model import model_for
from tilewright.lab.workbench.workbench import Workbench
from tilewright.schedule import Schedule
from tilewright.target import CpuTarget
from tilewright.tir.ir import Func

from ..lab.commands import done
from ..long import examples
from ..schedule.random_cases import Tally, a_case, apply_random_steps

TARGET = CpuTarget.named("cascadelake", threads=2)
SMALL = replace(TARGET, l1_bytes=128, l2_bytes=512, l3_bytes=2048, ways=(2, 2, 2))
"""Small programs do not stay in its caches as a whole, but parts of them do."""


@settings(max_examples=examples(30))
@given(st.data())
def test_no_bit_of_an_estimate_depends_on_what_was_estimated_before(data: st.DataObject) -> None:
    def pick(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    memo = Memo((3, 1 << 13)[pick(2)])
    model = model_for(TARGET)
    func, steps = a_case(pick)
    sch = Schedule(func, seed=0)
    for _ in range(1 + pick(6)):
        for target in (TARGET, SMALL):
            alone, shared = model.estimate(sch.func, target), model.estimate(sch.func, target, memo)
            np.testing.assert_array_equal(shared.features, alone.features)
            assert shared.seconds == alone.seconds
        sch, _ = apply_random_steps(sch, pick, 1, Tally(), steps)


def chain(stages: int) -> Func:
    """Sums and products with one matrix, one after the other."""
    a, w = (te.placeholder((64, 64), "float32", name=name) for name in "AW")
    value = a
    for n in range(stages):
        if n % 4 == 3:
            k = te.reduce_axis(64, name="k")
            value = te.compute((64, 64), lambda i, j, x=value, k=k: te.sum(x[i, k] * w[k, j], k))
        else:
            value = te.compute((64, 64), lambda i, j, x=value: x[i, j] + 1.0)
    return te.func([a, w, value])


def test_a_step_in_a_long_program_is_estimated_from_the_blocks_that_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = []

    class Counted(estimate._Block):
        def __init__(self, *arguments: Any) -> None:
            blocks.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(estimate, "_Block", Counted)
    stages = 40
    bench = Workbench(chain(stages), TARGET)
    assert len(blocks) == stages
    place = [node["id"] for node in bench.state()["tree"]["nodes"] if node["kind"] == "block"][19]
    moves = done(bench, do="moves", place=place)["moves"]
    legal = sum(move["legal"] is True for move in moves)
    assert legal > 20
    assert stages < len(blocks) < stages + 4 * legal


def test_programs_are_forgotten_when_the_memo_is_full() -> None:
    memo = Memo(8)
    sizes = []
    first = weakref.ref(profile(chain(4), memo=memo).visits[0])
    gc.collect()
    assert first() is not None
    for _ in range(8):
        profile(chain(4), memo=memo)
        sizes.append(len(memo))
    gc.collect()
    assert first() is None
    assert max(sizes) <= 8
