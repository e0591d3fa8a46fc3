"""Transfer: what is known of other programs, and schedules of other sizes or threads, re-fitted.

A record's trace is that of a sketch of its own program. The sketch of this program by the same
choices of the same rules, or else the one whose steps are most alike, gives its decisions a place:
each takes the nearest value that is possible here, and where the constraints refuse the row, the
nearest good rows stand in.
What comes out is ranked by the cost model, which has learned from the measurements of all sizes,
and by how well the record did against what the model says of it. Nothing is measured.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...base.errors import ArtifactError, ScheduleError, TargetError, TilewrightError
from ...base.text import short_id
from ...schedule import Schedule, Trace
from ...target import Target
from ...tir.ir import Func
from ...tir.parser import parse
from ...tuning_db import TuningDatabase
from ...tuning_db.results import Relative
from ...tuning_db.values import Measurement, Outcome, TargetRecord, Toolchain, Workload
from ..model.base_model import SHIPPED, named
from ..model.cost_model import CostModel, TrainingRows
from ..model.profile import profile
from ..model.target_model import Estimator, TargetModel, model_for
from ..records import target_record
from . import remembered
from .candidates import Rowspace
from .history import features_of
from .matching import counterparts, like, near
from .replay import read_trace
from .search import Search
from .sketch import Sketch, sketches

_log = logging.getLogger(__name__)
LEARNED = 4096
"""Measurements of other sizes that the model learns from: the newest."""
SAMPLE = 1000
"""Rows drawn from a sketch to see what may be expected of it."""
HOPELESS = 2.0
"""How much longer than the best of those a re-fitted schedule may be estimated to take."""


@dataclass(frozen=True)
class Refitted:
    """A record's schedule on the sizes of this program.

    `sketch` is a position among the sketches. `predicted` is log2 of seconds; `penalty` is added if
    it may fail.
    """

    sketch: int
    row: tuple[int, ...]
    trace: Trace
    features: tuple[float, ...]
    predicted: float
    penalty: float
    source: Relative

    @property
    def score(self) -> float:
        """Predicted time and penalty, as log2: less is better."""
        return self.predicted + self.penalty


@dataclass(frozen=True)
class Transfer:
    """The schedule of a relative on a program, and the seconds that it is expected to take."""

    schedule: Schedule
    seconds: float
    source: Relative


def transferred(
    func: Func,
    target: Target,
    database: TuningDatabase,
    workload: Workload,
    where: TargetRecord,
    toolchain: Toolchain,
) -> Transfer | None:
    """The best schedule that records of other sizes, or of another number of threads, give.

    `None` if there is none. It comes from the disk where the same records gave it before: a build
    of many programs would make the sketches of each anew.
    """
    families = (workload.family,) if workload.family else ()
    # Taken first: of records that come meanwhile, the next call knows that they are new.
    state = database.state(families, (workload.id,))
    relatives = [
        *other_threads(database, workload, target, toolchain),
        *database.relatives(workload, where, toolchain),
    ]
    if not relatives:
        return None
    sources = {r.measurement.id: r for r in relatives}
    name = remembered.key(func, target, "transfer", toolchain.generation, state)
    choices = remembered.choices_of(target)
    if choices is not None:
        kept = choices.get(name, lambda content: _recalled(content, func, sources))
        if kept is not None:
            return kept[0]
    found = _best_fitted(func, target, database, (workload, where, toolchain), relatives)
    if choices is not None and remembered.is_whole(target, "model"):
        choices.put(name, _entry(found))
    if found is None:
        return None
    return Transfer(found.trace.apply(func), float(2.0**found.predicted), found.source)


def _best_fitted(
    func: Func,
    target: Target,
    database: TuningDatabase,
    subject: tuple[Workload, TargetRecord, Toolchain],
    relatives: Sequence[Relative],
) -> Refitted | None:
    available = _sketches(func, target, {r.schedule.generator for r in relatives})
    known = model_for(target)
    model = model_of(learned(database, *subject, known), known)
    return next(iter(refit(available, relatives, target, model)), None)


def _entry(found: Refitted | None) -> bytes:
    """What is remembered of a transfer, also that there is none."""
    if found is None:
        return b"null"
    kept = [found.source.measurement.id, found.predicted, json.loads(found.trace.to_json())]
    return json.dumps(kept).encode()


def _recalled(
    content: bytes, func: Func, sources: Mapping[str, Relative]
) -> tuple[Transfer | None]:
    """What an entry says. Raises `ArtifactError` where it does not apply."""
    try:
        kept = json.loads(content)
        if kept is None:
            return (None,)
        source, predicted, trace = kept
        seconds, relative = 2.0**predicted, sources[source]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ArtifactError("{0}: {1}", type(error).__name__, error) from error
    schedule = remembered.replayed_entry(json.dumps(trace).encode(), func)
    return (Transfer(schedule, seconds, relative),)


def warm(
    search: Search,
    database: TuningDatabase,
    workload: Workload,
    where: TargetRecord,
    toolchain: Toolchain,
    tolerance: float | None = None,
) -> None:
    """Warm a search by records of other programs.

    Its model learns from their measurements, and the best schedules of other sizes of its program,
    and of other numbers of threads, are its first candidates.
    """
    measured = learned(database, workload, where, toolchain, search.target_model, others=True)
    search.relate(measured)
    relatives = [
        *other_threads(database, workload, search.target, toolchain),
        *database.relatives(workload, where, toolchain, tolerance=tolerance),
    ]
    ranked = refit(search.sketches, relatives, search.target, search.model)
    search.suggest([(r.sketch, r.row) for r in ranked])


def other_threads(
    database: TuningDatabase, workload: Workload, target: Target, toolchain: Toolchain
) -> list[Relative]:
    """The best schedules of the program itself, on this machine with other numbers of threads.

    Like those of other sizes, they have no inexact steps.
    """
    found: dict[int, Relative] = {}
    for record in database.records(TargetRecord):
        threads = threads_of(record)
        if threads is None or threads in (target.threads, *found):
            continue
        there = target_record(replace(target, threads=threads))
        if there.comparable != record.comparable:
            continue
        best = database.best(workload.id, there, toolchain)
        if best is not None and best.measurement is not None:
            found[threads] = Relative(workload, best.schedule, best.measurement, best.layer)
    return list(found.values())


def threads_of(record: TargetRecord) -> int | None:
    """The number of threads of a recorded target; `None` where its text cannot be read."""
    try:
        return Target.parse(record.text).threads or None
    except TargetError:
        return None


def learned(
    database: TuningDatabase,
    workload: Workload,
    where: TargetRecord,
    toolchain: Toolchain,
    target_model: TargetModel,
    *,
    others: bool = False,
) -> TrainingRows:
    """The measurements of other sizes of a program, on comparable targets and toolchains.

    Failures are among them. With `others`, also measurements of programs of other families.
    """
    generations = {t.id: t.generation for t in database.records(Toolchain)}
    measurements: list[Measurement] = []
    if workload.family:
        every = database.measurements(family=workload.family, target=where, limit=LEARNED)
        measurements += (
            m
            for m in every
            if m.workload != workload.id and generations.get(m.toolchain) == toolchain.generation
        )
    measurements = _shortest(m for m in measurements if features_of(m, target_model) is not None)
    programs = [0] * len(measurements)
    if others:
        version = target_model.feature_version
        elsewhere = database.others(workload, where, toolchain, version)
        elsewhere = _shortest(m for m in elsewhere if features_of(m, target_model) is not None)
        numbers: dict[str, int] = {}
        programs += (numbers.setdefault(m.workload, 1 + len(numbers)) for m in elsewhere)
        measurements += elsewhere
    features = np.array([m.features for m in measurements]).reshape(
        len(measurements), len(target_model.features)
    )
    seconds = np.array([_time(m) for m in measurements])
    return TrainingRows(features, seconds, np.array(programs, dtype=np.int64))


def _shortest(measurements: Iterable[Measurement]) -> list[Measurement]:
    """One measurement of each schedule of a session: a trial that was timed again is one."""
    kept: dict[tuple[str, str, str], Measurement] = {}
    for measured in measurements:
        key = (measured.session, measured.workload, measured.schedule)
        kept[key] = min(kept.get(key, measured), measured, key=_time)
    return list(kept.values())


def _time(measured: Measurement) -> float:
    return min(measured.samples) if measured.outcome is Outcome.OK else math.inf


def model_of(measured: TrainingRows, target_model: TargetModel) -> CostModel:
    """A cost model that has learned from other sizes, on top of the shipped base model."""
    model = CostModel(base=named(SHIPPED, target_model))
    model.fit(measured.features, measured.seconds)
    return model


def refit(
    available: Sequence[Sketch], relatives: Sequence[Relative], target: Target, model: CostModel
) -> list[Refitted]:
    """The schedules of relatives as rows of sketches, the most promising first.

    A schedule is left out if it resembles no sketch, if no good row is near it, or if the estimate
    calls it slow beside other rows. The learned model does not decide that: of many rows it prefers
    those about which it is most wrong, and a schedule that was measured to be fast looks slow
    beside them.
    """
    spaces = [_Space(sketch, target) for sketch in available]
    ranked: dict[tuple[int, tuple[int, ...]], Refitted] = {}
    for relative in relatives:
        trace = read_trace(relative.schedule)
        place = None if trace is None else like(trace, relative.schedule.generator, available)
        if trace is None or place is None:
            continue
        space = spaces[place]
        rows = near(space, counterparts(trace, available[place].trace))
        surprise = _surprise(relative, trace, target, model) if len(rows) else None
        if surprise is None:
            continue
        features = space.estimator(rows).features
        good = features[:, 0] <= space.usual + np.log2(HOPELESS)
        rows, features = rows[good], features[good]
        judged = zip(rows, features, model.predict(features), model.penalty(features), strict=True)
        for row, row_features, predicted, penalty in judged:
            key = place, tuple(int(v) for v in row)
            refitted = Refitted(
                *key,
                available[place].trace.with_row(key[1]),
                tuple(float(v) for v in row_features),
                float(predicted) + surprise,
                float(penalty),
                relative,
            )
            if key not in ranked or refitted.score < ranked[key].score:
                ranked[key] = refitted
    return sorted(ranked.values(), key=lambda r: (r.score, r.sketch, r.row))


class _Space(Rowspace):
    """The rows of a sketch with their estimate."""

    def __init__(self, sketch: Sketch, target: Target) -> None:
        super().__init__(sketch)
        self._target = target

    @cached_property
    def estimator(self) -> Estimator:
        read = profile(self.sketch.func, self.sketch.space.bounds)
        return model_for(self._target).estimator(read, self._target)

    @cached_property
    def usual(self) -> float:
        """The estimate of the best of some random rows, as log2 of seconds."""
        drawn = self.sample(np.random.default_rng(0), SAMPLE)
        return float(self.estimator(drawn).features[:, 0].min(initial=np.inf))


def _sketches(func: Func, target: Target, generators: set[str]) -> tuple[Sketch, ...]:
    """The sketches of those generators, or all where there are none of them.

    None where no rule makes one.
    """
    for wanted in (generators, None):
        try:
            return sketches(func, target, only=wanted)
        except ScheduleError as error:
            _log.debug("%s", error)
    return ()


def _surprise(relative: Relative, trace: Trace, target: Target, model: CostModel) -> float | None:
    """How much longer a record took than the model predicts, as log2.

    `None` if its schedule does not apply to its program any more.
    """
    measured = relative.measurement
    assert measured.seconds is not None, "what is usable has a time"
    target_model = model_for(target)
    recorded = features_of(measured, target_model)
    if recorded is not None:
        features = np.array([recorded])
    else:
        try:
            scheduled = trace.apply(parse(relative.workload.ir)).func
        except TilewrightError as error:
            _log.warning("the schedule %s: %s", short_id(relative.schedule.id), error)
            return None
        features = np.array([target_model.estimate(scheduled, target).features])
    return float(np.log2(measured.seconds) - model.predict(features)[0])
