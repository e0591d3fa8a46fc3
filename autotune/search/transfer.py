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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from ...base.errors import ArtifactError, ScheduleError, TargetError, TilewrightError
from ...base.text import short_id
from ...schedule import Schedule, Trace
from ...schedule.step_arguments import Derived, Ref
from ...target import Target
from ...tir.ir import Func
from ...tir.parser import parse
from ...tuning_db import TuningDatabase
from ...tuning_db.best import Relative
from ...tuning_db.values import Measurement, Outcome, TargetRecord, Toolchain, Workload
from ..model.base_model import SHIPPED, named
from ..model.cost_model import CostModel, Floats, TrainingRows
from ..model.profile import profile
from ..model.target_model import Estimator, TargetModel, model_for
from ..records import target_record
from . import remembered
from .candidates import Rows, Rowspace
from .history import features_of
from .replay import read_trace
from .search import Search
from .sketch import Sketch, sketches

_log = logging.getLogger(__name__)
ALIKE = 0.6
"""The share of steps that a record has in common with a sketch, at least."""
NEAREST = 4
"""Rows that stand in for one that is refused."""
OPEN = 256
"""Rows that are tried where decisions have no counterpart in the record."""
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
        place = None if trace is None else _like(trace, relative.schedule.generator, available)
        if trace is None or place is None:
            continue
        space = spaces[place]
        rows = near(space, _decisions(trace, available[place].trace))
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


# Which sketch, and which decision of it


def _like(trace: Trace, generator: str, available: Sequence[Sketch]) -> int | None:
    """The sketch of the same generator, else the one whose steps are most like those of a trace.

    One of the same generator whose steps are not alike is of a rule that has changed since.
    """
    best: tuple[bool, float, int] | None = None
    for place, sketch in enumerate(available):
        alike = _matcher(trace, sketch.trace).ratio()
        rank = (sketch.generator == generator, alike, -place)
        if alike >= ALIKE and (best is None or rank > best):
            best = rank
    return None if best is None else -best[2]


def _decisions(trace: Trace, sketch: Trace) -> list[int | None]:
    """The trace's value of each decision of a sketch; `None` where it has no counterpart."""
    given: dict[int, tuple[int | None, ...]] = {}
    for a, b, size in _matcher(trace, sketch).get_matching_blocks():
        given |= {b + n: trace.steps[a + n].decision for n in range(size)}
    return [
        value
        for k, decision in sketch.decisions.items()
        for value in given.get(k, (None,) * len(decision))
    ]


def _matcher(trace: Trace, other: Trace) -> SequenceMatcher[Any]:
    return SequenceMatcher(None, _tokens(trace), _tokens(other), autojunk=False)


SIZED = {
    "split": "factors",
    "tile": "factors",
    "prefetch": "offset",
    "transform_block_layout": "index_map",
    "transform_layout": "index_map",
}
"""Arguments that are sizes, in steps that sample nothing."""


def _tokens(trace: Trace) -> list[tuple[Any, ...]]:
    """The steps without handles, decisions and sizes.

    Sampling steps are identified by where their results are used.
    """
    goes: dict[int, set[tuple[Any, ...]]] = {}
    for step in trace.steps:
        for name, value in step.arguments:
            for output, path in _outputs_in(value):
                goes.setdefault(output, set()).add((step.op, name, *path))
    tokens: list[tuple[Any, ...]] = []
    outputs_before = 0
    for step in trace.steps:
        if step.decision:
            outputs = range(outputs_before, outputs_before + len(step.outputs))
            tokens.append((step.op, *(frozenset(goes.get(n, ())) for n in outputs)))
        else:
            sized = SIZED.get(step.op)
            kept = tuple((n, None if n == sized else _blind(v)) for n, v in step.arguments)
            tokens.append((step.op, kept))
        outputs_before += len(step.outputs)
    return tokens


def _outputs_in(value: Any) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The outputs that an argument refers to, each with its place in lists and their lengths."""
    if type(value) is Ref:
        yield value.index, ()
    elif type(value) is Derived:
        yield from _outputs_in(value.args)
    elif isinstance(value, (list, tuple)):
        for n, part in enumerate(value):
            yield from ((output, (n, len(value), *path)) for output, path in _outputs_in(part))


def _blind(value: Any) -> Any:
    if type(value) is Ref:
        return value.kind
    if type(value) is Derived:
        return value.op, _blind(value.args)
    if isinstance(value, (list, tuple)):
        return tuple(_blind(v) for v in value)
    return value


# Rows near to what is wanted


def near(space: Rowspace, wanted: Sequence[int | None]) -> Rows:
    """Good rows that have the values wanted, or the nearest to them, the nearest first.

    `None` stands for any value. As few decisions as possible get other values, at most two.
    """
    choices = [
        values[::-1][:: -(-len(values) // OPEN)][::-1]
        if want is None
        else values[[int(np.argmin(_apart(values, want)))]]
        for values, want in zip(space.values, wanted, strict=True)
    ]
    start = _grid(choices)
    for count in range(3):
        base = start[:NEAREST] if count == 2 else start
        moved = combinations(range(len(space.values)), count)
        changed = (_with(base, {d: space.values[d] for d in decisions}) for decisions in moved)
        good = space.good(np.concatenate([start[:0], *changed]))
        if len(good):
            apart = np.zeros(len(good))
            for d, want in enumerate(wanted):
                if want is not None:
                    apart += _apart(good[:, d], want)
            return good[np.argsort(apart, kind="stable")[: NEAREST if count else OPEN]]
    return start[:0]


def _apart(values: Rows, wanted: int) -> Floats:
    apart: Floats = np.abs(np.log2((values + 1.0) / (wanted + 1.0)))
    return apart


def _grid(choices: Sequence[Rows]) -> Rows:
    """The combinations of choices, spread evenly where there are more than `OPEN`."""
    if not choices:
        return np.empty((1, 0), dtype=np.int64)
    grids = np.meshgrid(*choices, indexing="ij")
    rows = np.stack([g.ravel() for g in grids], axis=1)
    return rows[:: -(-len(rows) // OPEN)]


def _with(rows: Rows, moved: dict[int, Rows]) -> Rows:
    """Each row with each combination of other values of some decisions."""
    changes = _grid(list(moved.values()))
    changed = np.repeat(rows, len(changes), axis=0)
    changed[:, list(moved)] = np.tile(changes, (len(rows), 1))
    return changed
