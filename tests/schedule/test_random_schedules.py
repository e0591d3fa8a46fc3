"""Random programs under random steps: whatever is accepted computes the same.

`python -m tests.fuzz` goes on with this for as long as one likes.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.autotune.rules.fusion_groups import Fusion
from tilewright.base.errors import ScheduleError
from tilewright.schedule import PRIMITIVES, Schedule
from tilewright.schedule.find import blocks_in, loops_in
from tilewright.tir.ir import ForKind

from ..fuzz import rules
from ..fuzz.campaign import Outcome, Plan, run
from ..fuzz.case import Failure, run_case
from ..fuzz.shrink import shrunk, without
from ..long import examples
from .machinery import check_compiled, check_meaning, check_random, check_replays, verify_steps
from .programs import chain, loops
from .random_cases import Tally, a_case, apply_random_steps
from .random_steps import STEPS


@settings(max_examples=examples(100))
@given(st.data())
def test_random_schedules_keep_the_meaning(data: st.DataObject) -> None:
    def pick(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    func, steps = a_case(pick)
    sch = Schedule(func, seed=pick(3))
    sch, refusals = apply_random_steps(sch, pick, 1 + pick(10), Tally(), steps)
    assert all(str(r) for r in refusals)
    verify_steps(sch)
    check_random(check_meaning, sch.original, sch.func)
    check_replays(sch.original, sch)


@pytest.mark.parametrize("seed", range(16))
def test_random_schedules_compute_the_same_in_machine_code(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def pick(n: int) -> int:
        return int(rng.integers(n))

    func, steps = a_case(pick)
    sch = Schedule(func, seed=seed)
    sch, _ = apply_random_steps(sch, pick, 12, Tally(), steps)
    check_random(check_compiled, sch.original, sch.func)


@pytest.mark.long
def test_random_schedules_reach_every_primitive() -> None:
    tally = Tally()

    def missing() -> set[str]:
        return {*PRIMITIVES} - {*tally.changes} - {*tally.queries}

    for seed in range(200):
        assert run_case(seed, tally, compiled=False) is None
    for step in STEPS:  # those that few programs are made for
        for seed in range(100):
            if step.__name__ in missing():
                assert run_case(seed, tally, compiled=False, about=step) is None
    assert not missing()


def test_a_rule_that_raises_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def defective(*_: object, **__: object) -> None:
        raise ScheduleError("no rule for it")

    monkeypatch.setattr(rules, "sketches", defective)
    failure = run_case(0, Tally(), compiled=False)
    assert failure is not None
    assert "no rule for it" in failure.what


def test_a_block_without_a_place_is_a_failure() -> None:
    func = chain()
    blocks = tuple(block.label for block in blocks_in(func.body))
    rules.check_places(Fusion(func, (), blocks))
    with pytest.raises(AssertionError, match="a block is nowhere"):
        rules.check_places(Fusion(func, (), blocks[1:]))


@pytest.mark.long
def test_processes_do_together_what_one_does() -> None:
    alone, together = Outcome(), Outcome()
    for done, jobs in ((alone, 1), (together, 2)):
        for outcome in run(range(24), Plan(compile_every=8), seconds=1e6, jobs=jobs):
            done.add(outcome)
    assert (together.programs, together.compiled) == (24, 3)
    assert together.summary().splitlines()[0] == alone.summary().splitlines()[0]
    assert together.tally == alone.tally


def test_a_failure_is_shrunk_to_the_steps_that_matter() -> None:
    def parallel_loops(sch: Schedule) -> Failure | None:
        kinds = [s.kind for s in loops_in(sch.func.body)]
        if ForKind.PARALLEL not in kinds:
            return None
        return Failure("parallel", "", sch.original, sch.trace, sch.func, compiled=False)

    sch = Schedule(chain())
    (i,) = loops(sch, "B")
    sch.split(i, factors=[None, 4])
    (j,) = loops(sch, "C")
    sch.parallel(j)
    failure = parallel_loops(sch)
    assert failure is not None
    short = shrunk(failure, parallel_loops).trace
    assert [s.op for s in short] == ["get_block", "get_loops", "parallel"]


def test_leaving_out_a_step_leaves_out_what_needs_it() -> None:
    sch = Schedule(chain())
    (i,) = loops(sch, "B")
    outer, _ = sch.split(i, factors=[None, 4])
    sch.parallel(outer)
    sch.unroll(*loops(sch, "C"))
    kept = without(sch.trace.steps, 2)
    assert kept is not None
    assert [s.op for s in kept] == ["get_block", "get_loops", "get_block", "get_loops", "unroll"]
    assert len(without(sch.trace.steps, 1) or ()) == 4
