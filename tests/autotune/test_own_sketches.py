"""Sessions that search schedules which users left open, with primitives of their own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tilewright import BuildError, TuningDatabase, TuningError, build, ops, tune
from tilewright.autotune.measure.any_measurer import Numbered
from tilewright.autotune.measure.measure_result import BuildRequest, MeasureResult
from tilewright.autotune.result import TuneResult
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import Sketch
from tilewright.autotune.session import tuning_job as tuning
from tilewright.autotune.tasks import prepared_sketches, tasks
from tilewright.codegen.detect import resolve
from tilewright.schedule import PRIMITIVES, Schedule, Trace
from tilewright.tuning_db import Measurement, Outcome, ScheduleRecord, Session

from ..refusals import refused
from .children import QUICK
from .kernels import matmul
from .recorded import Recorded, ok


@pytest.fixture
def db() -> TuningDatabase:
    return TuningDatabase("sqlite://")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured."""
    monkeypatch.setattr(tuning, "Measurer", Recorded([ok(1.0)]))


def run(db: TuningDatabase, sketches: list[Schedule]) -> TuneResult:
    return tune(sketches, "cpu -threads=1", database=db, trials=2, config=QUICK)


def tiled(symbolic: bool = True) -> Schedule:
    sch = Schedule(matmul(), symbolic=symbolic)
    loop = sch.get_loops(sch.get_block(0))[1]
    sch.split(loop, factors=sch.sample_perfect_tile(loop, 2))
    return sch


def test_sketches_of_ones_own_take_the_place_of_others(db: TuningDatabase, recorded: None) -> None:
    result = run(db, [tiled()])
    assert result.trials == 2
    assert result.best is not None
    steps = [step.op for step in result.best.trace]
    assert steps == ["get_block", "get_loops", "sample_perfect_tile", "split"]
    assert {s.generator for s in db.records(ScheduleRecord)} == {"own0"}


def written() -> Schedule:
    sch = Schedule(matmul())
    i, j, k = sch.get_loops(sch.get_block(0))
    sch.reorder(i, k, j)
    sch.vectorize(j)
    return sch


def test_a_written_schedule_is_a_candidate_beside_the_sketches(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "Measurer", Recorded([ok(1.0)]))
    sch = written()
    result = tune(sch, "cpu -threads=1", database=db, trials=8, config=QUICK)
    assert result.trials == 8
    records = {s.generator: s for s in db.records(ScheduleRecord)}
    assert Trace.from_json(records["own0"].trace) == sch.trace
    assert len(records) > 1
    assert set(result.gains) <= {"written", "untuned"}


def test_what_a_schedule_sampled_is_open_again(db: TuningDatabase, recorded: None) -> None:
    sch = tiled(symbolic=False)
    sketch = Sketch.of_concrete(sch, "own0")
    assert sketch.trace == sch.trace.opened()
    assert len(sketch.variables) == 1
    tune([sch, written()], "cpu -threads=1", database=db, trials=4, config=QUICK)
    own = {s.generator: s.trace for s in db.records(ScheduleRecord)}
    assert Trace.from_json(own["own0"]) == sch.trace
    assert Trace.from_json(own["own1"]) == written().trace


class ByTrace(Recorded):
    """Candidates take the seconds of their traces; `None` is a crash."""

    def __init__(self, seconds: Callable[[Trace], float | None]) -> None:
        super().__init__([])
        self._seconds = seconds

    def measure(
        self, requests: Sequence[BuildRequest], best: float | None, meanwhile: Iterable[None] = ()
    ) -> Iterator[Numbered]:
        for number, request in enumerate(requests):
            seconds = self._seconds(Trace.from_json(request.trace))
            crash = MeasureResult(Outcome.CRASH, None, (), error="it fell\nhere")
            self._measured = [crash if seconds is None else ok(seconds)]
            for _, result in super().measure([request], best, meanwhile):
                yield number, result


def samples(trace: Trace) -> bool:
    return any(step.op == "sample_perfect_tile" for step in trace)


def test_half_of_the_trials_are_for_what_a_schedule_samples(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "Measurer", ByTrace(lambda t: 2.0 + (t != sch.trace)))
    sch = tiled(symbolic=False)
    result = tune(sch, "cpu -threads=1", database=db, trials=10, config=QUICK)
    own = [s for s in db.records(ScheduleRecord) if s.generator == "own0"]
    assert len(own) == 5
    assert len({s.trace for s in own}) == 5
    use = result.schedules["own0"]
    assert (use.is_open, use.trials, use.failed) == (True, 5, 0)
    assert (use.rank, use.seconds, use.ratio) == (1, 2.0, 1.0)
    assert use.ranked == 10
    assert use.schedule == result.best.schedule_id if result.best is not None else False


@pytest.mark.parametrize(("seconds", "rank"), [(0.5, 1), (2.0, 2), (9.0, 6)])
def test_a_result_says_how_a_written_schedule_ranked(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch, seconds: float, rank: int
) -> None:
    sch, others = written(), iter([1.0, *[4.0] * 20])
    times = ByTrace(lambda t: seconds if t == sch.trace else next(others))
    monkeypatch.setattr(tuning, "Measurer", times)
    result = tune(sch, "cpu -threads=1", database=db, trials=6, config=QUICK)
    use = result.schedules["own0"]
    assert (use.is_open, use.trials, use.seconds) == (False, 1, seconds)
    assert (use.rank, use.ranked) == (rank, 6)
    assert use.ratio == seconds / min(seconds, 1.0)
    assert f"own0: rank {rank} of 6 schedules" in str(result)
    assert f"own0: rank {rank} of 6 schedules" in repr(result)
    again = tune(sch, "cpu -threads=1", database=db, trials=2, config=QUICK).schedules["own0"]
    assert (again.trials, again.seconds, again.ranked) == (0, seconds, 8)


def test_a_result_says_why_a_schedule_has_no_rank(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "Measurer", ByTrace(lambda t: None if samples(t) else 1.0))
    given = [tiled(symbolic=False), written()]
    result = tune(given, "cpu -threads=1", database=db, trials=8, config=QUICK)
    use = result.schedules["own0"]
    assert (use.rank, use.error) == (None, "it fell\nhere")
    assert use.trials == use.failed > 1
    assert result.schedules["own1"].rank is not None
    assert f"own0: no time, {use.trials} of 8 trials of its open sizes" in str(result)
    assert f"{use.failed} failed: it fell;" in str(result)


def test_schedules_that_are_searched_alone_are_ranked(db: TuningDatabase, recorded: None) -> None:
    assert run(db, [tiled(), written()]).schedules["own1"].trials == 1
    assert not tune(matmul(), "cpu -threads=1", database=db, trials=1, config=QUICK).schedules


def test_what_cannot_be_built_is_excluded_from_own_sketches() -> None:
    sch = Schedule(ops.add_relu_func(4096), symbolic=True)
    (i,) = sch.get_loops(sch.get_block(0))
    blocks, threads = sch.split(i, factors=[None, sch.sample_categorical([64, 2048])])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")
    (task,), _ = tasks(sch)
    (sketch,) = prepared_sketches(task, resolve("cuda -arch=sm_90"), inexact=False).sketches or ()
    assert Rowspace(sketch).check(np.array([[64], [2048]])).tolist() == [True, False]


def test_long_straight_code_is_searched_in_own_sketches() -> None:
    sch = Schedule(ops.matmul_func(512, 512, 64), symbolic=True)
    i, j, k = sch.get_loops(sch.get_block(0))
    _, rows = sch.split(i, factors=[None, sch.sample_categorical([8, 512])])
    _, lanes = sch.split(j, factors=[None, 128])
    sch.reorder(k, rows, lanes)
    sch.unroll(rows)
    sch.vectorize(lanes)
    (task,), _ = tasks(sch)
    target = resolve("cpu -mcpu=znver4 -threads=1")
    (sketch,) = prepared_sketches(task, target, inexact=False).sketches or ()
    assert Rowspace(sketch).check(np.array([[8], [512]])).all()


def test_written_schedules_beside_open_ones_are_searched_alone(
    db: TuningDatabase, recorded: None
) -> None:
    run(db, [tiled(), written()])
    assert {s.generator for s in db.records(ScheduleRecord)} == {"own0", "own1"}


def test_a_schedule_without_steps_is_the_program_as_written(
    db: TuningDatabase, recorded: None
) -> None:
    tune(Schedule(matmul()), "cpu -threads=1", database=db, trials=4, config=QUICK)
    traces = [Trace.from_json(s.trace) for s in db.records(ScheduleRecord)]
    assert traces.count(Trace()) == 1


def test_a_written_schedule_is_measured(db: TuningDatabase) -> None:
    result = tune(written(), "cpu -threads=1", database=db, trials=3, config=QUICK)
    assert result.outcomes == {Outcome.OK: 3}
    (own,) = [s.id for s in db.records(ScheduleRecord) if s.generator == "own0"]
    assert own in {m.schedule for m in db.records(Measurement)}


def test_sketches_that_cannot_be_searched(db: TuningDatabase, recorded: None) -> None:
    with refused(TuningError, "'list'"):
        run(db, [])
    with refused(TuningError, "a, b"):
        run(db, [Schedule({"a": matmul(), "b": matmul()})])
    other = Schedule(ops.add_relu_func(8), symbolic=True)
    with refused(TuningError, "matmul", "add_relu"):
        run(db, [tiled(), other])
    assert not db.records(Session)


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in a folder of its own that registers a primitive, imported here."""
    before = dict(PRIMITIVES)
    name = "steps_of_a_stranger"
    (tmp_path / f"{name}.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(name)
    yield name
    del sys.modules[name]
    PRIMITIVES.clear()
    PRIMITIVES.update(before)


STRANGER = """
import tilewright as tw
from tilewright.schedule import primitives as p
from tilewright.tir.ir import Dim, Func, Var


@tw.primitive
def halves(fn: Func, loop: Var, inner: Dim) -> tuple[Func, Var]:
    fn, (outer, _) = p.split(fn, loop, (None, inner))
    return fn, outer
"""


def stranger() -> Schedule:
    sch = Schedule(matmul(), symbolic=True)
    loop = sch.get_loops(sch.get_block(0))[0]
    sch.halves(loop, sch.sample_perfect_tile(loop, 2)[1])
    return sch


def test_builders_import_what_registers_primitives(db: TuningDatabase, steps: str) -> None:
    result = run(db, [stranger()])
    assert result.outcomes == {Outcome.OK: 2}
    assert result.best is not None
    assert "sch.halves(l1, inner=t5)" in str(result.best.trace)
    module = build(matmul(), "cpu -threads=1", database=db, allow=("record",))
    assert module.origin.kind == "record"
    del PRIMITIVES["halves"]
    with pytest.raises(BuildError, match=f"'halves' is not registered; module '{steps}' did that"):
        build(matmul(), "cpu -threads=1", database=db, allow=("record",))


def test_a_module_that_builders_do_not_find(db: TuningDatabase, steps: str, tmp_path: Path) -> None:
    (tmp_path / f"{steps}.py").unlink()
    with pytest.raises(TuningError, match=f"module {steps}, which registers primitives"):
        run(db, [stranger()])


def test_a_script_is_no_module(db: TuningDatabase) -> None:
    before = dict(PRIMITIVES)
    try:
        exec(STRANGER, {"__name__": "__main__"})
        with refused(TuningError, "own0"):
            run(db, [stranger()])
    finally:
        PRIMITIVES.clear()
        PRIMITIVES.update(before)


def test_inexact_sketches_of_ones_own_need_a_tolerance(db: TuningDatabase, recorded: None) -> None:
    sch = Schedule(ops.conv2d_func(1, 2, 5, 6, 3), symbolic=True)
    sch.winograd(sch.get_block("Y"), 2)
    with refused(TuningError, "own0", "winograd"):
        tune([sch], "cpu -threads=1", database=db, trials=1, config=QUICK)
    tune([sch], "cpu -threads=1", database=db, trials=1, config=QUICK, tolerance=1e-3)
    assert [s.inexact for s in db.records(ScheduleRecord)] == ["winograd"]
