"""Candidates in processes of their own: each way to fail, injected for real."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import psutil
import pytest

from tilewright import Schedule, TuningError
from tilewright.autotune.measure import measurer as measuring
from tilewright.autotune.measure.measure_result import BuildRequest, MeasureConfig
from tilewright.autotune.measure.measurer import Measurer
from tilewright.autotune.measure.numeric_check import tolerance_of
from tilewright.autotune.measure.protocol import Message
from tilewright.autotune.measure.worker_pool import Built, SupervisedWorker
from tilewright.autotune.measure.worker_process import Died, Worker, turn
from tilewright.base.errors import ScheduleError
from tilewright.codegen.detect import resolve
from tilewright.tir.ir import Func
from tilewright.tuning_db import Outcome

from ..refusals import refused
from .kernels import affine, centred_sums, compiled, kernel, matmul

MIB = 1 << 20
QUICK = MeasureConfig(
    builders=1,
    run_grace=0.5,
    run_timeout=0.5,
    build_timeout=30.0,
    run_memory=64 * MIB,
    max_samples=3,
    sample_seconds=1e-5,
)


@pytest.fixture(scope="module")
def measurer() -> Iterator[Measurer]:
    with Measurer(affine(), resolve("cpu -threads=1"), QUICK) as opened:
        yield opened


def runner(measurer: Measurer) -> int:
    return measurer.processes[0]


def gone(pid: int) -> bool:
    """Whether a process ends, or is ended, within ten seconds."""
    for _ in range(1000):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.01)
    return False


def test_what_is_right_is_timed_and_checked(measurer: Measurer) -> None:
    found = measurer.run(kernel("right"))
    assert found.outcome is Outcome.OK
    assert found.seconds is not None
    assert min(found.samples) <= found.seconds <= max(found.samples)
    assert found.check is not None
    assert found.check.passed
    assert found.check.max_error <= found.check.tolerance < 1e-3
    assert found.error is None


FAULTS = {
    "null": (Outcome.CRASH, ["signal 11 (SIGSEGV)"]),
    "abort": (Outcome.CRASH, ["signal 6 (SIGABRT)", "I give up, goodbye"]),
    "exit": (Outcome.CRASH, ["exit status 3"]),
    "strange": (Outcome.CRASH, ["status 7"]),
    "hang": (Outcome.RUN_TIMEOUT, ["not done within 0.5 s"]),
    "sleep": (Outcome.RUN_TIMEOUT, ["not done within 2 s though it hardly computed"]),
    "hog": (Outcome.OUT_OF_MEMORY, ["no memory"]),
    "stray": (Outcome.WRONG_RESULT, ["beside argument B"]),
    "wrong": (Outcome.WRONG_RESULT, ["B[5] is 10000.0, expected"]),
    "unresolved": (Outcome.BUILD_ERROR, ["does not load"]),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_costs_the_candidate_only(measurer: Measurer, kind: str) -> None:
    outcome, words = FAULTS[kind]
    found = measurer.run(kernel(kind))
    assert found.outcome is outcome
    assert found.seconds is None
    assert found.error is not None
    assert all(word in found.error for word in words), found.error
    assert measurer.run(kernel("right")).outcome is Outcome.OK


def test_one_that_cannot_win_is_dropped_unchecked(measurer: Measurer) -> None:
    found = measurer.run(kernel("slow"), best_seconds=1e-3)
    assert found.outcome is Outcome.OK
    assert found.stopped
    assert len(found.samples) <= 2, "as many as 50 ms allow"
    assert found.check is None


def test_a_runner_that_is_killed_between_candidates_is_replaced(measurer: Measurer) -> None:
    before = runner(measurer)
    os.kill(before, signal.SIGKILL)
    assert gone(before)
    assert measurer.run(kernel("right")).outcome is Outcome.OK
    assert runner(measurer) != before


def killer(supervised: SupervisedWorker, times: int) -> tuple[Callable[[], None], list[int]]:
    """A `tick` that kills a worker at work, so many times; and those that it killed."""
    killed: list[int] = []

    def kill() -> None:
        worker = supervised._worker
        if worker is None or worker.idle or supervised._owed or len(killed) == times:
            return
        if worker.process.pid not in killed:
            os.kill(worker.process.pid, signal.SIGKILL)
            killed.append(worker.process.pid)

    return kill, killed


@pytest.mark.parametrize(
    ("kind", "times", "outcome"), [("slow", 1, Outcome.OK), ("hang", 2, Outcome.CRASH)]
)
def test_a_runner_that_is_killed_at_work_costs_the_candidate_the_second_time(
    measurer: Measurer, kind: str, times: int, outcome: Outcome
) -> None:
    measurer.await_reference()
    measurer.tick, killed = killer(measurer._runner, times)
    try:
        found = measurer.run(kernel(kind))
    finally:
        measurer.tick = lambda: None
    assert len(killed) == times
    assert found.outcome is outcome
    assert times == 1 or "running it, twice: the process ended with signal 9" in str(found.error)
    assert measurer.run(kernel("right")).outcome is Outcome.OK


def test_a_runner_that_gets_no_processor_is_waited_for(measurer: Measurer) -> None:
    measurer.await_reference()
    worker = measurer._runner.worker
    os.kill(worker.process.pid, signal.SIGSTOP)

    def go() -> None:
        if worker._waited > QUICK.run_timeout:
            os.kill(worker.process.pid, signal.SIGCONT)
            measurer.tick = lambda: None

    measurer.tick = go
    try:
        found = measurer.run(kernel("right"))
        assert measurer.tick is not go
    finally:
        measurer.tick = lambda: None
    assert found.outcome is Outcome.OK, found.error


def test_kernels_are_timed_in_turns(measurer: Measurer) -> None:
    rows = measurer.interleave([kernel("right").kernel, kernel("slow").kernel], 3)
    assert rows is not None
    assert [len(samples) for samples in rows] == [3, 3]
    assert min(rows[1]) >= 0.02  # it sleeps so long
    assert measurer.interleave([kernel("right").kernel, kernel("null").kernel], 3) is None


def test_verify_says_what_is_wrong(measurer: Measurer) -> None:
    assert measurer.check(kernel("right").kernel).passed
    found = measurer.check(kernel("null").kernel)
    assert not found.passed
    assert "SIGSEGV" in str(found.error)


def test_verify_is_about_the_kernel_it_is_given_whatever_ran_last(measurer: Measurer) -> None:
    assert measurer.run(kernel("right")).outcome is Outcome.OK
    assert not measurer.check(kernel("wrong").kernel).passed
    assert measurer.run(kernel("right")).outcome is Outcome.OK
    assert "SIGSEGV" in str(measurer.check(kernel("null").kernel).error)
    assert measurer.check(kernel("right").kernel).passed


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_program_that_cancels_is_the_measure_of_its_own_rounding(dtype: str) -> None:
    with Measurer(centred_sums(dtype), resolve("cpu -threads=1"), QUICK) as opened:
        wrong = opened.run(compiled(centred_sums(dtype, terms=767)))
        assert wrong.outcome is Outcome.WRONG_RESULT
        assert "that of the program as written" in str(wrong.error)
        right = opened.run(compiled(centred_sums(dtype, pieces=24)))
        assert right.outcome is Outcome.OK, right.error
        assert right.check is not None
        usual = tolerance_of(centred_sums(dtype))
        assert usual < right.check.max_error <= right.check.tolerance


def test_a_program_that_has_no_wider_form_is_checked_as_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Measurer(affine(), resolve("cpu -threads=1"), QUICK) as opened:
        asked = opened._ask_runner

        def refused(message: Message, timeout: float) -> Any:
            if message.fields["do"] == "rounding":
                return Message({"error": "no such code"})
            return asked(message, timeout)

        monkeypatch.setattr(opened, "_ask_runner", refused)
        found = opened.run(kernel("wrong"))
        assert found.outcome is Outcome.WRONG_RESULT
        assert "does not run in wider arithmetic: no such code" in str(found.error)
        assert opened.run(kernel("right")).outcome is Outcome.OK


def requests() -> list[BuildRequest]:
    """A legal schedule, one of another program, and another legal one."""
    split = Schedule(matmul())
    i, _, _ = split.get_loops(split.get_block("C"))
    split.split(i, factors=[None, 4])
    foreign = Schedule(affine())
    (x,) = foreign.get_loops(foreign.get_block("B"))
    foreign.vectorize(x)
    traces = (Schedule(matmul()).trace, foreign.trace, split.trace)
    return [BuildRequest.of(trace) for trace in traces]


def test_schedules_are_built_replayed_and_measured_in_order() -> None:
    with Measurer(matmul(), resolve("cpu -threads=1"), replace(QUICK, builders=2)) as opened:
        found = [result for _, result in opened.measure(requests(), None)]
        assert [m.outcome for m in found] == [Outcome.OK, Outcome.ILLEGAL, Outcome.OK]
        assert found[0].check is not None
        assert "get_loops gives 3 outputs, the trace says 1" in str(found[1].error)
        assert opened.reference_seconds is not None
        workers = opened.processes
        os.kill(workers[1], signal.SIGKILL)
        assert gone(workers[1])
        (again,) = opened.build(requests()[:1])
        assert isinstance(again, Built)
    assert all(gone(pid) for pid in workers)


def test_a_build_that_takes_too_long_or_too_much_costs_the_candidate() -> None:
    plain = [BuildRequest.of(Schedule(matmul()).trace)]
    slow = replace(QUICK, build_timeout=1e-4)
    long = Schedule(matmul())  # for processors whose time is told in hundredths of a second
    for loop in long.get_loops(long.get_block("C")):
        long.unroll(loop)
    with Measurer(matmul(), resolve("cpu -threads=1"), slow) as opened:
        (found,) = opened.build([BuildRequest.of(long.trace)])
        assert not isinstance(found, Built)
        assert found.outcome is Outcome.BUILD_TIMEOUT
        assert "not done within 0.00" in str(found.error)
    tight = replace(QUICK, build_memory=4096)
    with Measurer(matmul(), resolve("cpu -threads=1"), tight) as opened:
        (found,) = opened.build(plain)
        assert not isinstance(found, Built)
        assert found.outcome is Outcome.OUT_OF_MEMORY


def test_workers_that_cannot_start_end_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with (
        refused(TuningError, "starting a builder"),
        Measurer(matmul(), resolve("cpu -threads=1"), QUICK) as opened,
    ):
        opened.build([BuildRequest.of(Schedule(matmul()).trace)])


def test_an_unscheduled_program_that_takes_too_long_ends_the_session() -> None:
    impatient = replace(QUICK, reference_timeout=1e-4)
    with (
        pytest.raises(TuningError, match="not done within"),
        Measurer(affine(), resolve("cpu -threads=1"), impatient) as opened,
    ):
        opened.run(kernel("right"))


def test_an_unscheduled_program_that_cannot_be_made_ends_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> Func:
        raise ScheduleError("no axis is free")

    monkeypatch.setattr(measuring, "reference_program", refused)
    with (
        pytest.raises(TuningError, match="no axis"),
        Measurer(affine(), resolve("cpu -threads=1"), QUICK) as opened,
    ):
        opened.run(kernel("right"))


def test_limits_that_are_none_are_refused() -> None:
    with refused(TuningError, "run_timeout", "-1"):
        MeasureConfig(run_timeout=-1)


@pytest.mark.parametrize(("times", "outcome"), [(1, Outcome.OK), (2, Outcome.CRASH)])
def test_a_builder_that_is_killed_at_work_costs_the_candidate_the_second_time(
    times: int, outcome: Outcome
) -> None:
    slow = Schedule(matmul())  # so that a kill comes before its end
    for loop in slow.get_loops(slow.get_block("C"))[:2]:
        slow.unroll(loop)
    with Measurer(matmul(), resolve("cpu -threads=1"), QUICK) as opened:
        (before,) = opened.build(requests()[:1])
        opened.tick, killed = killer(opened._workers.builders[0], times)
        found, *rest = opened.build([BuildRequest.of(slow.trace), *requests()[:1]])
        assert len(killed) == times
        assert isinstance(before, Built)
        if isinstance(found, Built):
            found = opened.run(found)
        assert found.outcome is outcome
        assert times == 1 or "building it, twice: the process ended with" in str(found.error)
        assert all(isinstance(other, Built) for other in rest)


def test_a_death_after_the_answer_costs_nothing(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turn_and_death(workers: Sequence[Worker], tick: Callable[[], None]) -> list[Any]:
        return [*turn(workers, tick), (workers[0], Died(-11, 11, False, ""))]

    assert measurer.run(kernel("right")).outcome is Outcome.OK  # the runner has started by then
    monkeypatch.setattr(measuring, "turn", turn_and_death)
    assert measurer.run(kernel("right")).outcome is Outcome.OK
