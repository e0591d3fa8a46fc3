"""The program as written and the untuned build take part in the finals of every session."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tilewright import TuningDatabase, ops, tune
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.any_measurer import Numbered
from tilewright.autotune.measure.measure_result import BuildRequest, Kernel, MeasureResult
from tilewright.autotune.records import target_record, workload_record
from tilewright.autotune.result import TuneResult
from tilewright.autotune.search import search
from tilewright.autotune.search.remembered import chosen, recalled
from tilewright.autotune.search.search import Search, SearchConfig
from tilewright.autotune.search.sketch import sketches
from tilewright.autotune.search.unmeasured import model_trace
from tilewright.autotune.session import tuning_job as tuning
from tilewright.autotune.session.events import Drift, Ended, Event, Final, Trial
from tilewright.autotune.session.final_comparison import Rival, Rivals, rivals_of
from tilewright.autotune.session.finals import Finalist
from tilewright.autotune.session.noise import noise_text, was_disturbed
from tilewright.autotune.show.display import LiveDisplay
from tilewright.autotune.show.recorded_run import open_run
from tilewright.building.build import explain
from tilewright.cli.report import print_results
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.schedule import Schedule, Trace
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tuning_db import (
    Baseline,
    ComparedSchedule,
    Gain,
    Outcome,
    ScheduleRecord,
    Session,
    SessionStatus,
    Verdict,
)
from tilewright.tuning_db.gains import Gains

from ..hosts import processor
from .children import QUICK
from .kernels import matmul
from .recorded import Simulated

TARGET = "cpu -threads=1"
CALM = TuneConfig(**{**vars(QUICK), "pause": 0.0, "calm": 4, "final_seconds": 2.0})
ALONG = ops.matmul_func(16, 16, 16, transpose_b=True)
"""A program whose loops the reference run leaves as they are."""

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices", "made_once")
Tune = Callable[..., TuneResult]


@cache
def untuned_traces() -> list[Any]:
    """The traces of the untuned builds, on the given machine."""
    return [
        json.loads(chosen(func, resolve(TARGET), "model").trace.to_json(notes=False))
        for func in (matmul(), ALONG)
    ]


NOTE = " (tw.build without a record)"


@pytest.fixture
def db() -> TuningDatabase:
    return TuningDatabase("sqlite://")


@pytest.fixture
def run(db: TuningDatabase, monkeypatch: pytest.MonkeyPatch) -> Tune:
    def start(measurer: Simulated, func: Func | None = None, **options: Any) -> TuneResult:
        monkeypatch.setattr(tuning, "Measurer", measurer)
        options = {"trials": 8, "config": CALM, **options}
        result: TuneResult = tune(func or matmul(), TARGET, database=db, **options)
        return result

    return start


@pytest.fixture
def hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as written is predicted to be too slow to be a candidate."""
    monkeypatch.setattr(search, "WORTH_MEASURING", -math.inf)


def is_written(trace: str) -> bool:
    return not json.loads(trace)["steps"]


def times(written: float, untuned: float, others: float = 1e-3) -> Callable[[str], float]:
    """The seconds of a trace: candidates besides the rivals take `others`, each 1% more."""
    seen: dict[str, float] = {}

    def seconds(trace: str) -> float:
        if is_written(trace):
            return written
        if json.loads(trace) in untuned_traces():
            return untuned
        return seen.setdefault(trace, others * (1 + 0.01 * len(seen)))

    return seconds


def said(result: TuneResult) -> dict[str, float]:
    """The gains, rounded; those with an interval have it at the ratio."""
    for gain in result.gains.values():
        assert gain.interval in (None, pytest.approx((gain.ratio, gain.ratio)))
    return {baseline: round(gain.ratio, 6) for baseline, gain in result.gains.items()}


def test_the_gain_over_both_is_measured_in_the_finals(db: TuningDatabase, run: Tune) -> None:
    events: list[Event] = []
    result = run(Simulated(times(6.21e-3, 1.31e-3)), callback=events.append)
    (final,) = [e for e in events if isinstance(e, Final)]
    assert result.best is not None
    assert result.best.seconds == 1e-3
    assert said(result) == {"written": 6.21, "untuned": 1.31}
    assert all(gain.interval for gain in result.gains.values())
    assert result.gains == result.best.gains == final.gains
    line = "6.21x faster than the program as written, 1.31x faster than the untuned build"
    assert str(result).splitlines()[1] == f"{line}{NOTE}"
    assert f"\n  {line}\n" in str(explain(matmul(), TARGET, db))
    (session,) = db.records(Session)
    assert session.untuned in {c.schedule for c in result.best.comparison}


def test_a_database_without_the_name_of_the_untuned_build_shows_the_other(
    run: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unnamed(db: TuningDatabase, session: str, _: str | None) -> Session:
        return prepared(db, session)

    prepared = TuningDatabase.prepared_session
    monkeypatch.setattr(TuningDatabase, "prepared_session", unnamed)
    result = run(Simulated(times(6.21e-3, 1.31e-3)))
    assert result.best is not None
    assert list(result.best.gains) == ["written"]


@pytest.mark.parametrize("rival", list(Baseline))
def test_no_best_is_slower_than_a_rival(run: Tune, rival: Baseline) -> None:
    """The trials of the others were faster by luck."""
    rivals = {Baseline.WRITTEN: 2e-3, Baseline.UNTUNED: 2e-3, rival: 1.25e-3}

    class Lucky(Simulated):
        def interleave(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]]:
            rows = super().interleave(kernels, rounds)
            kept = rivals.values()
            return [row if row[0] in kept else tuple(1.5 * t for t in row) for row in rows]

    result = run(Lucky(times(rivals[Baseline.WRITTEN], rivals[Baseline.UNTUNED])))
    assert result.best is not None
    assert result.best.seconds == 1.25e-3
    assert is_written(result.best.trace.to_json()) == (rival is Baseline.WRITTEN)
    assert f"the same machine code as {rival.phrase}" in str(result)
    assert result.trial_seconds == pytest.approx(1e-3, rel=0.1)
    assert str(result).splitlines()[1] == (
        "The fastest trial took 1 ms; the winner of the finals takes 1.25 ms. The finals count."
    )


def test_a_program_that_takes_seconds_is_never_run_again(run: Tune, hopeless: None) -> None:
    measurer = Simulated(times(1e9, 1.31e-3))
    measurer.reference_seconds = 10.0
    result = run(measurer, ALONG)
    assert not any(is_written(trace) for trace in measurer.built)
    assert result.gains["written"].at_least
    assert said(result) == {"written": 9000.0, "untuned": 1.31}
    assert str(result).splitlines()[1] == (
        "more than 9000x faster than the program as written, "
        f"1.31x faster than the untuned build{NOTE}"
    )


def test_no_gain_is_derived_from_loops_that_were_interchanged(run: Tune, hopeless: None) -> None:
    measurer = Simulated(times(1e9, 1.31e-3))
    measurer.reference_seconds = 10.0
    assert said(run(measurer)) == {"untuned": 1.31}


def test_a_slow_trial_is_not_repeated(run: Tune) -> None:
    measurer = Simulated(times(2.0, 1.31e-3))
    result = run(measurer)
    assert sum(map(is_written, measurer.built)) == 1
    assert not any(is_written(trace) for traces, _ in measurer.heats for trace in traces)
    assert result.gains["written"].at_least
    assert said(result) == {"written": 1800.0, "untuned": 1.31}


def test_what_is_far_slower_is_timed_in_few_rounds(run: Tune) -> None:
    """Of half a second, two calls and two rounds."""
    measurer = Simulated(times(0.1, 1.31e-3))
    result = run(measurer)
    assert [rounds for traces, rounds in measurer.heats if any(map(is_written, traces))] == [2]
    assert [gain.interval is None for gain in result.gains.values()] == [True, False]
    assert said(result) == {"written": 100.0, "untuned": 1.31}


def test_a_rival_of_a_slow_program_that_is_near_takes_part(run: Tune, hopeless: None) -> None:
    """In as many rounds as there is time for; one far slower takes none."""
    measurer = Simulated(times(2.0, 0.39, others=0.3))
    measurer.reference_seconds = 2.0
    result = run(measurer, ALONG, trials=2)
    assert [(len(traces), rounds) for traces, rounds in measurer.heats] == [(2, 2)]
    assert said(result) == {"written": 6.0, "untuned": 1.3}
    gains = "more than 6x faster than the program as written, about 1.30x faster than the untuned"
    assert gains in str(result)


def test_rivals_of_a_session_before_are_timed_again(db: TuningDatabase, run: Tune) -> None:
    seconds = times(6.21e-3, 1.31e-3)
    run(Simulated(seconds))
    again = Simulated(seconds)
    before = len(db.measurements())
    result = run(again, seed=1)
    (traces, _), *_ = again.heats
    assert sum(map(is_written, traces)) == 1
    assert sum(json.loads(trace) in untuned_traces() for trace in traces) == 1
    finals = len(traces)
    assert len(db.measurements()) == before + result.trials + finals, "in the finals alone"
    assert result.gains.keys() == {"written", "untuned"}


def test_a_rival_is_no_trial_for_anybody(db: TuningDatabase, run: Tune, hopeless: None) -> None:
    """The budget pays for trials alone, and a session that is resumed has the rest of it."""
    seconds = times(6.21e-3, 1.31e-3)

    def interrupt(event: Event) -> None:
        if isinstance(event, Final):
            raise KeyboardInterrupt

    def counts(result: TuneResult) -> list[int]:
        with db._layers[0].reading() as connection:
            rows = connection.exec_driver_sql("SELECT trials, measurements FROM sessions")
            (seen,) = rows.all()
        assert seen[1] > seen[0]
        (picture,) = open_run(db, result.session).pictures.pictures.values()
        return [seen[0], len(picture.trials), db.trials(result.session)]

    first = run(Simulated(seconds), callback=interrupt, trials=12, stop_at=1e-6)
    assert first.interrupted
    schedules = {measured.schedule for measured in db.measurements()}
    assert first.trials < len(schedules) < 12, "a rival was measured"
    assert counts(first) == [first.trials] * 3
    second = run(Simulated(seconds), trials=12, resume=True)
    assert (second.session, second.earlier_trials) == (first.session, first.trials)
    assert second.reason == "all 12 trials are done"
    assert counts(second) == [first.trials + second.trials] * 3 == [12] * 3


def test_a_rival_that_was_faster_in_another_session_keeps_its_record(run: Tune) -> None:
    first = run(Simulated(times(2e-3, 1e-4)))
    second = run(Simulated(times(2e-3, 1.31e-3)), seed=1)
    assert first.best is not None
    assert second.best is not None
    assert second.best.measurement_id == first.best.measurement_id


def test_a_best_of_another_session_says_whose_it_is(
    run: Tune, capsys: pytest.CaptureFixture[str]
) -> None:
    events: list[Event] = []
    first = run(Simulated(times(2e-3, 1e-4)))
    second = run(Simulated(times(2.6e-3, 1.31e-3)), seed=1, callback=events.append)
    assert first.best is not None
    assert first.best.session == first.session
    assert first.own_seconds == 1e-4
    assert second.best is not None
    assert second.best.session == first.session
    assert second.own_seconds == 1e-3
    of = f", of session {first.session:.12}"
    assert str(first).startswith("best 100 us (100 to 100) after 8 trials")
    assert f"best 100 us (100 to 100){of}; this session's: 1 ms after 8 trials" in str(second)
    gain = "20x faster than the program as written, the same machine code as the untuned build"
    assert f"{gain}{NOTE}{of}" in str(second)
    (final,) = [e for e in events if isinstance(e, Final)]
    assert final.gains["written"].ratio == pytest.approx(2.6), "of this session's finals"
    assert final.trial_seconds == second.trial_seconds == 1e-3
    with LiveDisplay(Console(file=(text := io.StringIO()), width=200)) as display:
        for event in events:
            display(event)
    assert "trial took" not in text.getvalue(), "the first session's best is none of its trials"
    assert isinstance(events[-1], Ended)
    assert events[-1].best_session == first.session
    assert events[-1].own_seconds == 1e-3
    print_results([second])
    out = capsys.readouterr().out
    assert f"{of}; this session's: 1 ms after " in out
    assert f"(tw.build without a record){of}\n" in out


def test_the_users_own_sketches_have_no_rivals(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    sch = Schedule(matmul(), symbolic=True)
    loops = sch.get_loops(sch.get_block("C"))
    sch.split(loops[0], factors=sch.sample_perfect_tile(loops[0], 2, 16))
    measurer = Simulated(times(6.21e-3, 1.31e-3))
    monkeypatch.setattr(tuning, "Measurer", measurer)
    result = tune(sch, TARGET, database=db, trials=3, config=CALM)
    assert not any(is_written(trace) for trace in measurer.built)
    assert not result.gains


@pytest.mark.parametrize("func", [ops.conv2d_func(1, 8, 12, 12, 8), ops.softmax_func(8, 64)])
def test_the_untuned_build_is_what_a_build_chooses(func: Func) -> None:
    """Whatever sketches the session searches besides."""
    target = processor("cpu -mcpu=skylake-avx512 -threads=1")
    among = sketches(func, target, inexact=True)
    search = Search(
        func, target, config=SearchConfig(pool=64), prepared=among, as_written=True, seed=7
    )
    written, untuned = rivals_of(func, target, search)
    assert untuned.trace == chosen(func, target, "model").trace
    assert untuned.schedule.generator
    assert len(written.trace) == 0
    search.begin_with(untuned.trace)
    assert untuned.schedule.id in {c.schedule.id for c in search.ask(4)}


def test_the_untuned_build_of_a_program_written_well_is_that_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A build keeps what was scheduled by hand if no sketch is predicted to be faster."""
    monkeypatch.setenv(LOCATION, str(tmp_path))
    target = processor("cpu -mcpu=skylake-avx512 -threads=1")
    formula = ops.softmax_func(64, 64)
    func = parse(str(model_trace(formula, target).apply(formula).func))
    among = sketches(func, target)
    assert among[0].name == "written"
    build = model_trace(func, target)
    assert not build.steps
    search = Search(func, target, config=SearchConfig(pool=64), prepared=among, as_written=True)
    _, untuned = rivals_of(func, target, search)
    assert untuned.trace == build
    remembered = recalled(func, target, "model")
    assert remembered is not None
    assert remembered.trace == build


def test_kernels_of_the_same_machine_code_tie(db: TuningDatabase, run: Tune) -> None:
    """They are timed once: noise between two timings of one kernel is no gain."""

    class OneCode(Simulated):
        def measure(self, *args: Any) -> Iterator[Numbered]:
            for number, measured in super().measure(*args):
                assert measured.kernel is not None
                image = b"same" if not is_written(self.built[-1]) else b"written"
                yield number, replace(measured, kernel=Kernel(image))

        def interleave(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]]:
            self.heats.append(([str(kernel.image) for kernel in kernels], rounds))
            return [(6e-3 if k.image == b"written" else 1e-3,) * rounds for k in kernels]

    measurer = OneCode(times(6e-3, 1.08e-3))
    result = run(measurer)
    assert result.best is not None
    assert max(len(set(images)) for images, _ in measurer.heats) == 2
    assert all(len(set(images)) == len(images) for images, _ in measurer.heats)
    assert {c.verdict for c in result.best.comparison[1:-1]} <= {Verdict.TIE, Verdict.FASTEST}
    line = "6.00x faster than the program as written, the same machine code as the untuned build"
    assert str(result).splitlines()[1] == f"{line}{NOTE}"
    assert f"\n  {line}\n" in str(explain(matmul(), TARGET, db))


# A machine that is not quiet


class Disturbed(Simulated):
    """The reference kernel takes `course` times as long, one after the other."""

    def __init__(self, seconds: Callable[[str], float], *course: float) -> None:
        super().__init__(seconds)
        self._course = iter(course)

    def interleave(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]]:
        rows = super().interleave(kernels, rounds)
        if len(kernels) > 1:
            return rows
        factor = next(self._course)
        return [tuple(factor * t for t in row) for row in rows]


def test_a_disturbed_machine_is_waited_for(db: TuningDatabase, run: Tune) -> None:
    events: list[Event] = []
    result = run(
        Disturbed(times(6.21e-3, 1.31e-3), 1.0, 68.0, 30.0, 1.1, 1.0),
        trials=12,
        callback=events.append,
    )
    assert result.drift == (1.1, 1.0)
    assert [s.drift for s in db.records(Session)] == [1.0], "for those who watch"
    assert [e.ratio for e in events if isinstance(e, Drift)] == [1.1, 1.0]
    assert result.noise is None


def test_a_machine_that_stays_disturbed_is_said_in_plain_words(run: Tune) -> None:
    """It is waited for once."""
    measurer = Disturbed(times(6.21e-3, 1.31e-3), 1.0, 68.0, 69.0, 70.0, 68.0, 67.9)
    result = run(measurer, trials=12)
    assert measurer.watched == 6
    assert [round(ratio, 6) for ratio in result.drift] == [68.0, 67.9]
    assert str(result).splitlines()[-1] == (
        "noisy machine: times uncertain by up to 68x; tune again when calm"
    )


def test_a_disturbed_session_names_the_one_beside_it(db: TuningDatabase, run: Tune) -> None:
    """Not one that ended before."""
    before = run(Simulated(times(6.21e-3, 1.31e-3)))
    records = workload_record(matmul(8)), target_record(resolve(TARGET))
    beside = db.start_session(
        *(record.id for record in records),
        records=records,
        trials=8,
        seconds=None,
        seed=0,
        search={},
        model={},
    )

    class Beside(Disturbed):
        def interleave(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]]:
            db.heartbeat(beside.id)
            return super().interleave(kernels, rounds)

    result = run(Beside(times(6.21e-3, 1.31e-3), 1.0, *[68.0] * 5), trials=12)
    assert before.session not in (result.session, beside.id)
    assert (result.noise or "").split("; ")[1:] == [
        f"session {beside.id[:12]} (of this process) ran meanwhile",
        "tune again when calm",
    ]


@pytest.mark.parametrize(
    ("course", "says"),
    [
        ((1.0, 0.12, 0.12), "noisy machine: times uncertain by up to 8.3x"),
        ((1.0, 1.5, 1.6), None),
        (
            (1.0, *(68.0,) * 4, 1.0),
            "noisy machine: times uncertain by up to 68x",
        ),
        (
            (1.0, 0.4, *(1.0,) * 4),
            "noisy machine: times uncertain by up to 2.5x",
        ),
    ],
)
def test_noise_is_the_largest_drift_in_either_direction(
    run: Tune, course: tuple[float, ...], says: str | None
) -> None:
    """Also if it is over, and if it was at the beginning."""
    result = run(Disturbed(times(6.21e-3, 1.31e-3), *course), trials=12)
    assert (result.noise or "").partition(";")[0] == (says or "")
    assert result.noise is None or result.noise.endswith("; tune again when calm")


class Spoilt(Simulated):
    """Something disturbs all but the program as written: in trials, and more in most rounds."""

    def interleave(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]]:
        rows = super().interleave(kernels, rounds)
        if len(kernels) == 1:
            return rows
        return [
            row
            if is_written(kernel.image.decode())
            else tuple(t * (2.9 if (n + k) % 5 < 3 else 0.3) for n, t in enumerate(row))
            for k, (kernel, row) in enumerate(zip(kernels, rows, strict=True))
        ]


def test_finals_that_noise_hides_choose_by_the_shortest_times_and_say_so(
    db: TuningDatabase, run: Tune
) -> None:
    """The program as written is the simplest, takes six times as long, and nothing disturbs it."""
    result = run(Spoilt(times(1.9e-3, 1.31e-3)))
    assert result.best is not None
    assert result.best.trace.steps
    assert result.noise is not None
    assert result.noise.startswith("noisy machine: times uncertain")
    assert str(result).splitlines()[-1] == result.noise
    found = explain(matmul(), TARGET, db).best
    assert found is not None
    assert found.schedule.id == result.best.schedule_id


def test_words_for_noise() -> None:
    wide = ComparedSchedule("ab" * 32, 1e-3, 9, 1.5, (0.7, 7.0), Verdict.SLOWER)
    narrow = ComparedSchedule("ab" * 32, 1e-3, 9, 1.5, (1.1, 3.0), Verdict.SLOWER)
    assert noise_text([], [narrow], 1) is None
    assert noise_text([1.9], [wide], 2) == (
        "noisy machine: times uncertain by up to 10x; "
        "tune again when calm, or for one thread (-threads=1)"
    )
    unsettled = replace(wide, verdict=Verdict.UNSETTLED)
    assert noise_text([], [narrow, unsettled], 1) == (
        "noisy machine: times uncertain by up to 10x; tune again when calm"
    )
    few = replace(unsettled, interval=None)
    assert noise_text([], [few], 1) == "noisy machine: times uncertain; tune again when calm"
    assert noise_text([3.84], [wide], 1) == (
        "noisy machine: times uncertain by up to 10x; tune again when calm"
    ), "the largest of all, once"


def test_noise_names_the_other_sessions_of_this_machine() -> None:
    def other(n: int, pid: int) -> Session:
        began = datetime(2026, 3, 1, tzinfo=UTC)
        return Session(
            workload="a" * 64,
            target="b" * 64,
            trials=8,
            seconds=None,
            seed=0,
            search={},
            model={},
            started=began,
            nonce=str(n),
            status=SessionStatus.RUNNING,
            heartbeat=began,
            ended=None,
            host="here",
            pid=pid,
        )

    def said(*others: Session) -> str | None:
        return noise_text([3.0], [], 1, others=lambda: others)

    first, own, *more = other(1, 4711), other(2, os.getpid()), *(other(n, n) for n in range(3, 6))
    alone = said()
    assert alone is not None
    start, end = alone.split("; ")
    assert said(first) == f"{start}; session {first.id[:12]} (of process 4711) ran meanwhile; {end}"
    many = said(own, first, *more)
    assert many is not None
    assert f"; sessions {own.id[:12]} (of this process), {first.id[:12]} (of " in many
    assert many.count("(of ") == 3
    assert ", 2 more ran meanwhile; " in many

    def never() -> list[Session]:
        raise AssertionError("a calm machine asks for no others")

    assert noise_text([1.0], [], 1, others=never) is None


def test_a_choice_is_sure_where_only_a_baseline_far_behind_was_disturbed() -> None:
    fastest = ComparedSchedule("ab" * 32, 1e-3, 36, 1.0, None, Verdict.FASTEST)
    second = replace(fastest, ratio=1.018, interval=(1.006, 1.03), verdict=Verdict.SLOWER)
    spoilt = replace(second, ratio=1.062, interval=(1.058, 48.1))
    written = replace(second, ratio=39.0, interval=(2.0, 90.0))
    assert noise_text([1.0], [fastest, second, spoilt, written], 1) is None
    gains: Gains = {
        Baseline.WRITTEN: Gain(39.0, (2.0, 90.0)),
        Baseline.UNTUNED: Gain(1.2, (1.1, 1.3)),
    }
    assert noise_text([1.0], [fastest, second, written], 1, gains) == (
        "noisy machine: gain over the program as written uncertain by up to 45x; "
        "tune again when calm"
    )


def test_trials_show_themselves_that_a_machine_is_not_calm() -> None:
    spoilt = (10.1, 78.1, 10.3, 10.1, 55.9, 10.1, 10.3, 80.2)
    assert was_disturbed(spoilt)
    assert was_disturbed((10.1,) * 11 + (55.9,)) is False, "an interrupt"
    assert was_disturbed((4000.0,)) is None
    trials = [False] * 6 + [None] * 6 + [True] * 2
    assert noise_text([1.01], [], 2, None, trials) is None
    trials.append(True)
    assert noise_text([1.01], [], 2, None, trials) == (
        "noisy machine: times uncertain by up to 2x; "
        "tune again when calm, or for one thread (-threads=1)"
    )


class Spiky(Simulated):
    """A quarter of the samples of each trial wait for a processor."""

    def measure(self, *args: Any) -> Iterator[Numbered]:
        for number, result in super().measure(*args):
            seconds = result.samples[0]
            yield number, replace(result, samples=(*[seconds] * 6, *[9 * seconds] * 2))


def test_a_session_whose_trials_were_disturbed_is_marked(db: TuningDatabase, run: Tune) -> None:
    """Though the reference kernel takes as long as at the start."""
    events: list[Event] = []
    result = run(Spiky(times(6.21e-3, 1.31e-3)), callback=events.append)
    assert result.noise is not None
    assert result.noise.startswith("noisy machine: times uncertain by up to 2x")
    assert str(result).splitlines()[-1] == result.noise
    assert [s.noise for s in db.records(Session)] == [result.noise]
    assert [e.disturbed for e in events if isinstance(e, Trial)] == [True] * 8


def test_a_candidate_of_a_disturbed_machine_is_timed_again(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if no other is near it."""
    sch = Schedule(matmul(), symbolic=True)
    loops = sch.get_loops(sch.get_block("C"))
    sch.split(loops[0], factors=sch.sample_perfect_tile(loops[0], 2, 16))
    apart: dict[str, float] = {}

    def seconds(trace: str) -> float:
        return apart.setdefault(trace, 1e-3 * 100 ** len(apart))

    config = TuneConfig(**{**vars(CALM), "batch": 1, "calm": 1})
    measurer = Disturbed(seconds, 1.0, 3.0, 3.0, 3.0, 3.0)
    monkeypatch.setattr(tuning, "Measurer", measurer)
    result = tune(sch, TARGET, database=db, trials=2, config=config)
    assert result.drift == (3.0,)
    assert [len(traces) for traces, _ in measurer.heats] == [2]


def test_disturbed_finals_are_repeated_once(db: TuningDatabase, run: Tune) -> None:
    measurer = Simulated(times(6.21e-3, 1.31e-3), slower=(200.0, 1.0))
    result = run(measurer)
    assert result.best is not None
    assert result.best.seconds == 1e-3
    assert said(result) == {"written": 6.21, "untuned": 1.31}
    assert result.noise is None
    assert max(m.seconds or 0.0 for m in db.measurements()) < 0.1


def test_finals_of_a_machine_that_stays_disturbed_choose_nothing(
    db: TuningDatabase, run: Tune
) -> None:
    measurer = Simulated(times(6.21e-3, 1.31e-3), slower=(200.0,))
    events: list[Event] = []
    result = run(measurer, callback=events.append)
    assert result.best is not None
    assert result.best.seconds == 1e-3
    assert result.best.comparison == ()
    assert max(m.seconds or 0.0 for m in db.measurements()) < 0.1
    assert [e for e in events if isinstance(e, Final)] == []
    assert [e.ratio for e in events if isinstance(e, Drift) and e.finals] == [pytest.approx(200.0)]
    assert str(result).splitlines()[-1] == (
        "noisy machine: finals took 200x as long as trials, and are void; tune again when calm"
    )


class DisturbedLater(Simulated):
    """From the third candidate on, everything takes 200 times as long."""

    def __init__(self, seconds: Callable[[str], float]) -> None:
        super().__init__(seconds)
        self._seconds = lambda trace: seconds(trace) * (200.0 if len(self.built) > 2 else 1.0)


def test_a_session_that_is_disturbed_from_some_trial_on_keeps_its_best_and_is_marked(
    db: TuningDatabase, run: Tune
) -> None:
    """Most finalists were as disturbed when they were candidates."""
    result = run(DisturbedLater(times(1e-3, 1e-3, 1e-3)), trials=12)
    assert result.best is not None
    assert result.best.seconds < 1.1e-3
    assert result.finals == ()
    assert str(result.noise).startswith("noisy machine: ")
    (session,) = db.records(Session)
    assert session.noise == result.noise


def test_a_lower_bound_is_by_the_shortest_time_of_a_trial() -> None:
    """The median of a disturbed trial says nothing of the program."""
    schedule = ScheduleRecord("[]", 1)
    rivals = Rivals([Rival(Baseline.UNTUNED, Trace(()), schedule)])
    disturbed = Finalist(5.0, schedule, Trace(()), Kernel(b""), True)
    rivals.note(schedule, disturbed, (1e-3, 5.0, 9.0))
    (bound,) = rivals.bounds(1e-4, None).values()
    assert bound == Gain(bound.ratio, at_least=True)
    assert bound.ratio == pytest.approx(9.0)
    assert rivals.bounds(1e-3, None) == {}


def resumed(
    run: Tune, first: Simulated, then: Simulated, *, interrupted_at: int
) -> tuple[TuneResult, TuneResult]:
    """The results of a session of 8 trials before and after an interrupt."""

    def interrupt(event: Event) -> None:
        if isinstance(event, Trial) and event.number == interrupted_at:
            raise KeyboardInterrupt

    before = run(first, callback=interrupt)
    assert before.interrupted
    after = run(then, resume=True)
    assert after.session == before.session
    assert after.trials == 8 - interrupted_at
    return before, after


def third_is_fast() -> Callable[[str], float]:
    """The third schedule takes 500 us, which is no rival; the others 2 ms and more."""
    seen: dict[str, float] = {}

    def seconds(trace: str) -> float:
        base = 0.5e-3 if len(seen) == 2 else 2e-3
        return seen.setdefault(trace, base * (1 + 0.01 * len(seen)))

    return seconds


@pytest.mark.parametrize("interrupted_at", [4, 8])
def test_a_resumed_session_keeps_its_best(
    db: TuningDatabase, run: Tune, interrupted_at: int
) -> None:
    """It takes part in the finals, which are held although no trial is left."""
    calm = Simulated(third_is_fast())
    before, after = resumed(run, calm, calm, interrupted_at=interrupted_at)
    assert before.best is not None
    assert after.best is not None
    assert after.best.schedule_id == before.best.schedule_id == after.finals[0].schedule
    assert after.best.seconds == before.best.seconds == after.own_seconds == 0.5e-3 * 1.02
    assert after.gains.keys() == {"written", "untuned"}
    assert "fastest trial" not in str(after)


def test_finals_of_a_resumed_session_on_a_slower_machine_choose_by_times_of_now(run: Tune) -> None:
    """Its best of before takes 1.5 times as long as then, and a new trial is faster."""
    seconds, seen = third_is_fast(), list[str]()

    def slower(trace: str) -> float:
        seen.append(trace)
        return 0.7e-3 if trace == seen[0] else 1.5 * seconds(trace)

    before, after = resumed(run, Simulated(seconds), Simulated(slower), interrupted_at=4)
    assert before.best is not None
    assert after.best is not None
    compared = {c.schedule: c.seconds for c in after.finals}
    assert compared[before.best.schedule_id] == pytest.approx(1.5 * before.best.seconds)
    assert after.best.schedule_id != before.best.schedule_id
    assert after.best.seconds == 0.7e-3


@pytest.mark.parametrize("fast", [(2, 3), (2,)], ids=["one of two", "alone"])
def test_one_disturbed_time_puts_the_best_of_before_out_of_no_finals(
    run: Tune, fast: tuple[int, ...]
) -> None:
    """Another one of before may be nearly as fast, and is not disturbed; trials follow."""
    seen: dict[str, float] = {}
    disturbed: list[str] = []

    def seconds(trace: str) -> float:
        base = 0.5e-3 if len(seen) in fast else 0.6e-3 if len(seen) > 4 else 2e-3
        return seen.setdefault(trace, base * (1 + 0.01 * len(seen)))

    def once(trace: str) -> float:
        if seconds(trace) == 0.5e-3 * 1.02 and not disturbed:
            disturbed.append(trace)
            return 2 * seconds(trace)
        return seconds(trace)

    before, after = resumed(run, Simulated(seconds), Simulated(once), interrupted_at=5)
    assert disturbed
    assert before.best is not None
    assert after.best is not None
    assert before.best.seconds == 0.5e-3 * 1.02
    assert after.best.schedule_id == before.best.schedule_id


def test_a_resumed_session_on_a_busy_machine_holds_no_finals(run: Tune) -> None:
    """The finals would replace the times of before by ones that are 4 times as long."""
    seconds = third_is_fast()
    before, after = resumed(
        run, Simulated(seconds), Simulated(lambda trace: 4 * seconds(trace)), interrupted_at=4
    )
    assert after.best == before.best
    assert not after.finals
    assert "finals took 4x as long as trials" in str(after.noise)


def test_a_best_that_fails_once_resumed_is_not_the_best(db: TuningDatabase, run: Tune) -> None:
    seconds = third_is_fast()

    class Broken(Simulated):
        def measure(self, requests: Sequence[BuildRequest], *more: Any) -> Iterator[Numbered]:
            for number, found in super().measure(requests, *more):
                crash = MeasureResult(Outcome.CRASH, error="signal 11")
                yield number, crash if seconds(requests[number].trace) < 1e-3 else found

    before, after = resumed(run, Simulated(seconds), Broken(seconds), interrupted_at=4)
    assert before.best is not None
    assert after.best is not None
    assert after.best.seconds == 2e-3
    last, *_ = db.measurements(schedule=before.best.schedule_id)
    assert (last.outcome, last.error, last.trial) == (Outcome.CRASH, "signal 11", False)
