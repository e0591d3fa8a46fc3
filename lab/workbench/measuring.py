"""Measuring versions in a thread of its own, as a session does it: checked, timed, recorded.

Each run is a session of the database whose search is `{"lab": true}`. It beats while it runs, times
a kernel again to see whether the machine is calm, and is marked if that was not so. Times that are
far beyond their predictions are measured again (`autotune/session/noise.py`). What could not be
written, because the database was locked or is gone, is tried again (`unsaved`).
"""

from __future__ import annotations

import atexit
import logging
import shlex
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...autotune.config import TuneConfig
from ...autotune.measure.measure_result import BuildRequest, Kernel, MeasureResult
from ...autotune.measure.measurer import Measurer
from ...autotune.measure.pack import write_pack
from ...autotune.measure.worker_pool import Built, WorkerPool
from ...autotune.model.target_model import TargetModel
from ...autotune.records import (
    environment_record,
    schedule_record,
    target_record,
    toolchain_record,
    workload_record,
)
from ...autotune.search.drawing import drawn_of_traces, model_or_none
from ...autotune.search.replay import Replays
from ...autotune.search.sketch import Sketch
from ...autotune.session.finals import Finalist, InterleavedTiming, attempts
from ...autotune.session.noise import DriftMonitor, Plausibility, disturbed_finals_text, noise_text
from ...autotune.session.recorder import Recorder, Subject
from ...base.errors import DatabaseError
from ...codegen.detect import check_runnable
from ...runtime.timer import turn_seconds
from ...schedule.require import Space
from ...target import Target
from ...tir.ir import Func
from ...tuning_db import TuningDatabase
from ...tuning_db.interleaved_comparison import compare_schedules, time_ratio
from ...tuning_db.results import ComparedSchedule
from ...tuning_db.values import AnyRecord, Outcome, Session, SessionStatus
from ..pictures.page import text
from .answers import problem
from .program_tree import Data
from .unsaved import Unsaved
from .versions import Comparison, LabError, Timing, Version

_log = logging.getLogger(__name__)
GENERATOR = "lab"
"""The generator of schedules that the lab records."""
_STEP = 0.2
"""Seconds of a pause between looks at whether the run is cancelled."""


class Cancelled(Exception):
    """The user gave up on a run."""


@dataclass(eq=False)
class LabRun:
    """A run of versions in the lab: what it is doing, and how it ended.

    `error` says why it failed. `unsaved` is how many writes wait for the database.
    """

    versions: Sequence[Version]
    began: float
    says: str = "starting"
    ended: float | None = None
    error: Data | None = None
    unsaved: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def running(self) -> bool:
        return self.ended is None

    def data(self) -> Data:
        return {
            "versions": [v.id for v in self.versions],
            "says": self.says,
            "running": self.running,
            "seconds": (time.monotonic() if self.ended is None else self.ended) - self.began,
            "error": self.error,
            "unsaved": self.unsaved,
        }


class VersionResults(NamedTuple):
    """What is known of versions that ran: why each has no time, and how each two compare."""

    timings: dict[Version, Timing]
    problems: dict[Version, str]
    comparisons: list[Comparison]


Tell: TypeAlias = Callable[[str], None]
Work: TypeAlias = Callable[[LabRun, VersionResults], str | None]
"""What a run does; it returns what there is to say of its end."""


class Measurements:
    """Measures versions of a program, one run after the other. `told` is called as they go on.

    `tolerance` is as for `tune`: the error that is accepted of inexact schedules. The lock `quiet`
    is held while a kernel is timed: who computes in this process holds it too.
    """

    def __init__(
        self,
        func: Func,
        target: Target,
        database: TuningDatabase | None,
        config: TuneConfig,
        tolerance: float | None,
        told: Callable[[LabRun, VersionResults | None], None],
    ) -> None:
        self._func, self._target, self._database = func, target, database
        self._config, self._tolerance, self._told = config, tolerance, told
        self._unsaved = Unsaved(self._saved)
        self.quiet = threading.RLock()
        self._thread: threading.Thread | None = None
        self.run: LabRun | None = None

    def start(self, versions: Sequence[Version]) -> LabRun:
        """Begin to measure versions. Raises `LabError` while a run goes on and without a database,
        `TargetError` where this machine does not run the target."""
        if self._database is None:
            raise LabError(
                "measurements are kept in a database, and this lab has none",
                hint='open it with one: tw.lab(func, target, tw.TuningDatabase("tuning.db"))',
            )
        check_runnable(self._target)
        return self._begin(versions, partial(self._measure, self._database))

    def pack(self, versions: Sequence[Version], folder: Path) -> LabRun:
        """Begin to compile versions into a new folder, which a machine elsewhere measures. Raises
        `LabError` while a run goes on."""
        return self._begin(versions, partial(self._pack, folder))

    def _begin(self, versions: Sequence[Version], work: Work) -> LabRun:
        if self.run is not None and self.run.running:
            raise LabError("a run goes on; wait for it, or cancel it")
        self.run = LabRun(versions, time.monotonic())
        _OPEN.add(self)
        self._thread = threading.Thread(
            target=self._work, args=(self.run, work), name="tilewright lab", daemon=True
        )
        self._thread.start()
        return self.run

    def cancel(self) -> None:
        """Give up on the run. What it measured is kept. Raises `LabError` if there is none."""
        if self.run is None or not self.run.running:
            raise LabError("no run goes on")
        self.run.cancelled.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the run; whether it has ended."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self.run is None or not self.run.running

    def close(self) -> None:
        """Give up on the run, and write what waits; a warning says what is lost."""
        with suppress(LabError):
            self.cancel()
        self.wait()
        self._unsaved.close()
        _OPEN.discard(self)

    def _saved(self) -> None:
        """Tell that fewer writes wait."""
        if self.run is not None:
            self.run.unsaved = len(self._unsaved)
            self._told(self.run, None)

    def _work(self, run: LabRun, work: Work) -> None:
        measured = VersionResults({}, {}, [])
        try:
            run.says = work(run, measured) or "done"
        except Cancelled:
            run.says = "cancelled"
        except Exception as error:  # noqa: BLE001 - a thread has nobody else to tell
            _log.info("the run of the lab failed", exc_info=True)
            run.says, run.error = "failed", problem(error)
        self._unsaved.flush()
        run.unsaved, run.ended = len(self._unsaved), time.monotonic()
        self._told(run, measured)
        self._unsaved.retry()

    def _say(self, run: LabRun, text: str) -> None:
        """Tell what goes on. Raises `Cancelled` if nobody wants it any more."""
        if run.cancelled.is_set():
            raise Cancelled
        if run.says != text:
            run.says = text
            self._told(run, None)

    def _pack(self, folder: Path, run: LabRun, _: VersionResults) -> str:
        traces = [v.schedule.trace for v in run.versions]
        self._say(run, "compiling")
        packed = write_pack(
            self._func,
            self._target,
            folder,
            config=self._config,
            tolerance=self._tolerance,
            chosen=drawn_of_traces(self._func, self._target, traces, GENERATOR),
            tell=partial(self._say, run),
        )
        return (
            f"{packed.built} of {len(run.versions)} are in {folder}; measure them there: "
            f"python -m tilewright.runtime.measure {shlex.quote(str(folder))} --out results.jsonl; "
            "then import the results here: tilewright measure import results.jsonl --db DATABASE"
        )

    def _measure(
        self, database: TuningDatabase, run: LabRun, measured: VersionResults
    ) -> str | None:
        """Measure as a session; returns plain words if the machine was not calm."""
        subject = Subject(
            workload_record(self._func),
            target_record(self._target),
            toolchain_record(self._target),
            environment_record(self._target),
        )
        self._unsaved.flush()
        recorder = _recorder(database, subject, self._func, self._target, self._tolerance)
        session, status = recorder.session, SessionStatus.INTERRUPTED
        modules = sorted({m for v in run.versions for m in _modules(v)})
        measurer = _QuietMeasurer(
            self._func,
            self._target,
            self._config.measure,
            workers=WorkerPool(self._target, self._config.measure, modules),
            tolerance=self._tolerance,
            quiet=self.quiet,
        )

        def tick() -> None:
            if run.cancelled.is_set():
                raise Cancelled
            with suppress(DatabaseError):  # it is put again with what it measured
                recorder.beat()

        def pause() -> None:
            self._say(run, "waiting for a calm machine")
            end = time.monotonic() + self._config.pause
            while (left := end - time.monotonic()) > 0:
                tick()
                time.sleep(min(left, _STEP))

        timed = _Timed(database, recorder, measurer, DriftMonitor(1, pause), pause)
        try:
            with measurer:
                measurer.tick = tick
                self._time(timed, run.versions, measured, partial(self._say, run))
            status = SessionStatus.FINISHED
        finally:
            ratios, threads = timed.drift.ratios, self._target.threads
            others = partial(_others, recorder)
            if timed.slowdown is None:
                noise = noise_text(ratios, timed.comparison, threads, act="measure", others=others)
            else:
                noise = disturbed_finals_text(timed.slowdown, threads, "measure", others)
            self._unsaved.write(partial(database.finish_session, session.id, status, noise))
        return noise

    def _time(
        self, timed: _Timed, versions: Sequence[Version], measured: VersionResults, say: Tell
    ) -> None:
        model, measurer = model_or_none(self._target), timed.measurer
        finalists: list[tuple[Version, Finalist]] = []
        earlier: dict[str, list[float]] = {}
        say("building")
        built = measurer.build([BuildRequest.of(v.schedule.trace) for v in versions])
        say("running the unscheduled program")
        measurer.await_reference()
        for version, code in zip(versions, built, strict=True):
            say(f"timing {version.id}")
            record = schedule_record(version.schedule.trace, GENERATOR)
            best = min((t.seconds for t in measured.timings.values()), default=None)
            for result in _results(timed, version, code, best):
                features = _features(version, result, model, self._target)
                self._put(
                    timed,
                    *timed.recorder.trial_records(record, result, features, version.predicted),
                )
                earlier.setdefault(record.id, []).extend(result.samples)
            if result.seconds is None or result.kernel is None:
                measured.problems[version] = text(f"{result.outcome.value}: {result.error}")
                continue
            checked = result.accepted(self._tolerance)
            measured.timings[version] = Timing(result.seconds, result.samples, checked)
            trace, kernel = version.schedule.trace, result.kernel
            finalists.append((version, Finalist(result.seconds, record, trace, kernel, checked)))
            timed.drift.watch(len(finalists), finalists[0][1], measurer)
        if len(finalists) > 1:
            say("timing interleaved")
            self._interleave(timed, finalists, earlier, measured)
        if finalists:
            say("timing the first again")
            timed.drift.watch(len(finalists) + 1, None, measurer)

    def _interleave(
        self,
        timed: _Timed,
        finalists: Sequence[tuple[Version, Finalist]],
        earlier: dict[str, list[float]],
        measured: VersionResults,
    ) -> None:
        config = self._config
        sample = config.measure.sample_seconds
        turns = sum(turn_seconds(f.seconds, sample) for _, f in finalists)
        new = partial(
            InterleavedTiming,
            [f for _, f in finalists],
            config.rounds,
            max(config.final_seconds, (config.rounds + 1) * turns),
            sample,
        )
        for timing in attempts(new, timed.pause):
            timing.run(timed.measurer.interleave)
        if timing.disturbed:
            timed.slowdown = timing.slowdown
            return
        every = zip(finalists, timing.samples, strict=True)
        rows = [(v, f, samples) for (v, f), samples in every if samples]
        if len(rows) < 2:
            return
        entries = timed.recorder.final_entries([(f.schedule, samples) for _, f, samples in rows])
        self._put(timed, *(measurement for measurement, _ in entries))
        timed.comparison += compare_schedules(entries, lambda: earlier)
        for version, finalist, samples in rows:
            seconds = float(np.median(samples))
            measured.timings[version] = Timing(seconds, samples, finalist.checked)
        for n, (b, _, row) in enumerate(rows):
            for a, _, base in rows[:n]:
                measured.comparisons.append(Comparison.of(a, b, time_ratio(row, base)))

    def _put(self, timed: _Timed, *records: AnyRecord) -> None:
        """Write records with their session, which may be gone with its database."""
        recorder = timed.recorder
        every = (*recorder.subject, recorder.session, *records)
        self._unsaved.write(partial(timed.database.put, *every))


_OPEN = weakref.WeakSet[Measurements]()
"""Those that have measured, and may have more to write."""


@atexit.register
def _close_all() -> None:
    """A process that ends writes what its labs measured, as far as the database takes it."""
    for measurements in list(_OPEN):
        measurements.close()


class _QuietMeasurer(Measurer):
    """A measurer that holds a lock while it times."""

    def __init__(self, *args: Any, quiet: AbstractContextManager[bool], **options: Any) -> None:
        super().__init__(*args, **options)
        self._quiet = quiet

    def run(self, built: Built, best_seconds: float | None = None) -> MeasureResult:
        self.await_reference()
        with self._quiet:
            return super().run(built, best_seconds)

    def interleave(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]] | None:
        with self._quiet:
            return super().interleave(kernels, rounds)


@dataclass(eq=False)
class _Timed:
    """A run at work: what times, what records, and what is known of the machine's calm.

    `slowdown` is that of finals that were disturbed, and so not recorded.
    """

    database: TuningDatabase
    recorder: Recorder
    measurer: Measurer
    drift: DriftMonitor
    pause: Callable[[], None]
    slowdown: float | None = None
    plausibility: Plausibility = field(default_factory=Plausibility)
    comparison: list[ComparedSchedule] = field(default_factory=list)


def _results(
    timed: _Timed, version: Version, code: Built | MeasureResult, best: float | None
) -> Iterator[MeasureResult]:
    """The result of a version, and those that replace it where its time is not plausible.

    `best` is the shortest time of the versions before it.
    """
    if isinstance(code, MeasureResult):
        yield code
        return
    run = partial(timed.measurer.run, code)
    first = run()
    yield first
    if version.predicted is not None:
        look = partial(timed.drift.look, timed.measurer)
        yield from timed.plausibility.better(first, version.predicted, best, run, look)


def _features(
    version: Version, result: MeasureResult, model: TargetModel | None, target: Target
) -> tuple[float, ...]:
    if model is None or result.outcome is Outcome.ILLEGAL:
        return ()
    return model.estimate(version.schedule.func, target).features


def _others(recorder: Recorder) -> list[Session]:
    """The other sessions meanwhile; none while the database cannot be read."""
    with suppress(DatabaseError):
        return recorder.others()
    return []


def _recorder(
    database: TuningDatabase, subject: Subject, func: Func, target: Target, tolerance: float | None
) -> Recorder:
    """The recorder of a new session."""
    model = model_or_none(target)
    version = "" if model is None else model.feature_version
    session = database.start_session(
        subject.workload.id,
        subject.target.id,
        trials=None,
        seconds=None,
        seed=0,
        search={"lab": True, "tolerance": tolerance},
        model={"features": version},
        records=subject,
    )
    return Recorder(database, subject, session, Replays(func), version, tolerance)


def _modules(version: Version) -> tuple[str, ...]:
    """The modules that builders import for the steps of a version."""
    schedule = version.schedule
    return Sketch(GENERATOR, (), schedule.trace, schedule.func, Space(), ()).modules
