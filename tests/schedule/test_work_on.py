"""work_on: a schedule of several programs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule, Trace
from tilewright.tir.ir import Func

from ..refusals import refused
from .conftest import Golden
from .machinery import assert_same, check_meaning, check_replays
from .programs import chain, elementwise, loops, matmul
from .random_cases import Tally, apply_random_steps
from .random_programs import a_program


def two() -> dict[str, Func]:
    return {"producer": elementwise(), "consumer": chain()}


def test_steps_go_to_the_program_that_is_worked_on(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, j = loops(sch, "B")
        sch.work_on("consumer")
        (k,) = loops(sch, "C")
        t0, t1 = sch.sample_perfect_tile(k, n=2, decision=[4])
        sch.split(k, factors=[t0, t1])
        sch.work_on(0)
        sch.split(i, factors=[t0, t1])
        sch.vectorize(j)

    sch = golden("query/work_on", two(), script)
    assert sch.func is sch.funcs["producer"]
    assert list(sch.funcs) == ["producer", "consumer"]


def test_it_starts_with_the_first() -> None:
    funcs = two()
    sch = Schedule(funcs)
    assert sch.funcs == funcs
    assert sch.func is sch.original is funcs["producer"]
    sch.work_on("consumer")
    assert sch.func is sch.original is funcs["consumer"]
    sch.parallel(*loops(sch, "C"))
    assert sch.func is not sch.original is funcs["consumer"]
    assert sch.funcs["producer"] is funcs["producer"]


def test_a_program_alone_goes_by_its_own_name() -> None:
    func = chain()
    sch = Schedule(func)
    assert sch.funcs == {"chain": func}
    sch.work_on("chain")
    sch.work_on(0)
    assert sch.func is func
    with pytest.raises(ScheduleError):
        sch.work_on(1)


def test_a_handle_of_another_program_is_refused() -> None:
    sch = Schedule(two())
    i, _ = loops(sch, "B")
    label = sch.get_block("B")
    sch.work_on("consumer")
    before = sch.trace
    with pytest.raises(ScheduleError) as refusal:
        sch.parallel(i)
    assert refusal.value.condition.endswith("; work_on('producer') first")
    assert (refusal.value.found, refusal.value.expected) == ("producer", "consumer")
    assert refusal.value.func is sch.funcs["consumer"]
    assert "refused: step 4, sch.parallel(l1)" in str(refusal.value)
    with refused(ScheduleError, "block", "B", "producer"):
        sch.compute_inline(label)
    assert sch.trace == before
    sch.work_on("producer")
    sch.parallel(i)


def test_a_sampled_loop_is_of_its_program() -> None:
    sch = Schedule({"a": chain(), "b": chain()})
    loop = sch.sample_compute_location(sch.get_block("B"))
    sch.work_on("b")
    with pytest.raises(ScheduleError, match="is of function 'a'; work_on.'a'. first"):
        sch.compute_at(sch.get_block("B"), loop)


def test_one_program_twice_is_two() -> None:
    func = chain()
    sch = Schedule({"a": func, "b": func})
    (i,) = loops(sch, "B")
    sch.work_on("b")
    (same,) = loops(sch, "B")
    assert same is i
    sch.split(i, factors=[None, 4])
    assert sch.funcs["a"] is func
    sch.work_on("a")
    sch.parallel(i)
    check_replays({"a": func, "b": func}, sch)
    check_replays({"a": chain(), "b": chain()}, sch)


@pytest.mark.parametrize("name", [2, -1, "C", "", True, None, 1.0])
def test_programs_that_there_are_not(name: Any) -> None:
    sch = Schedule(two())
    with pytest.raises(ScheduleError):
        sch.work_on(name)
    assert len(sch.trace) == 0
    assert sch.func is sch.funcs["producer"]


@pytest.mark.parametrize(
    "programs", [{}, {"a": 1}, {1: chain()}, {"a\n": chain()}, [chain()], "chain", chain]
)
def test_what_is_no_program(programs: Any) -> None:
    with pytest.raises(ScheduleError):
        Schedule(programs)


def scheduled() -> Schedule:
    sch = Schedule(two())
    sch.work_on("consumer")
    sch.parallel(*loops(sch, "C"))
    return sch


def test_a_trace_has_positions_and_names_for_display() -> None:
    trace = scheduled().trace
    step = json.loads(trace.to_json())["steps"][0]
    assert step == {"op": "work_on", "args": {"function": 1}, "note": "consumer"}
    assert str(trace).splitlines()[0] == "sch.work_on(1)  # consumer"
    other = trace.apply({"x": elementwise(), "y": chain()})
    assert_same(other.funcs["y"], scheduled().func)
    assert other.trace == trace


def test_a_trace_of_several_does_not_apply_to_one() -> None:
    trace = scheduled().trace
    with pytest.raises(ScheduleError) as refusal:
        trace.apply(chain())
    assert "several" in str(refusal.value)


def test_a_trace_of_one_applies_to_the_first_of_several() -> None:
    sch = Schedule(elementwise())
    sch.parallel(loops(sch, "B")[0])
    other = sch.trace.apply(two())
    assert_same(other.funcs["producer"], sch.func)


def test_a_foreign_handle_in_a_trace_is_refused() -> None:
    sch = Schedule(two())
    i, _ = loops(sch, "B")
    sch.work_on("consumer")
    sch.work_on("producer")
    sch.parallel(i)
    data = json.loads(sch.trace.to_json())
    del data["steps"][3]
    with refused(ScheduleError, "loop", "i", "producer"):
        Trace.from_json(json.dumps(data)).apply(two())


def test_where_a_handle_ended_among_steps_on_others() -> None:
    sch = Schedule(two())
    i, _ = loops(sch, "B")
    sch.work_on("consumer")
    loops(sch, "C")
    sch.work_on("producer")
    _, inner = sch.split(i, factors=[None, 4])
    sch.work_on("consumer")
    sch.work_on("producer")
    sch.unroll(inner)
    with pytest.raises(ScheduleError) as refusal:
        sch.parallel(i)
    assert "loop i ended with step 6, sch.split(l1, factors=[None, 4])" in str(refusal.value)


def test_blocks_are_looked_for_in_the_program_that_is_worked_on() -> None:
    sch = Schedule(two())
    sch.work_on("consumer")
    assert sch.get_block("C") is sch.get_block(1)
    with refused(ScheduleError, "C", "B"):
        sch.work_on("producer")
        sch.get_block("C")


def test_a_copy_works_where_the_original_does() -> None:
    sch = scheduled()
    fork = sch.copy()
    sch.work_on("producer")
    fork.unroll(*loops(fork, "B"))
    assert fork.func is fork.funcs["consumer"]
    assert "unrolled" not in str(sch.funcs["consumer"])
    loop = loops(fork, "C")[0]
    with pytest.raises(ScheduleError, match="not of this schedule|of function"):
        sch.vectorize(loop)


def test_all_programs_are_shown() -> None:
    text = str(scheduled())
    assert "def elementwise(" in text
    assert "def chain(" in text
    assert "# 4 steps, working on 'consumer'\nsch.work_on(1)" in text
    assert "working on" not in str(Schedule(chain()))


def test_decisions_are_common_to_all() -> None:
    sch = Schedule({"a": matmul(), "b": matmul()}, symbolic=True)
    i, _, _ = loops(sch, "C")
    t0, t1 = sch.sample_perfect_tile(i, n=2)
    sch.work_on("b")
    j, _, _ = loops(sch, "C")
    sch.split(j, factors=[t0, t1])
    assert sch.space is not None
    assert len(sch.space.bounds) == 1
    concrete = sch.trace.with_row([4]).apply({"a": matmul(), "b": matmul()})
    assert [s.op for s in concrete.trace] == [s.op for s in sch.trace]
    check_meaning(matmul(), concrete.func)


@pytest.mark.parametrize("seed", range(12))
def test_random_steps_on_several(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def pick(n: int) -> int:
        return int(rng.integers(n))

    funcs = {"a": a_program(pick), "b": a_program(pick)}
    sch = Schedule(funcs, seed=seed)
    for _ in range(6):
        sch.work_on(pick(2))
        sch, _ = apply_random_steps(sch, pick, 3, Tally())
    check_replays(funcs, sch)
    for name, func in funcs.items():
        check_meaning(func, sch.funcs[name])
