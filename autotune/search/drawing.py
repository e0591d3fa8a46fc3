"""Candidates that are drawn before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...base.errors import TargetError
from ...schedule import Trace
from ...target import Target
from ...tir.ir import Func
from ...tuning_db import TuningDatabase
from ...tuning_db.values import Measurement, ScheduleRecord, TargetRecord
from ..model.profile import profile
from ..model.target_model import TargetModel, model_for
from ..records import schedule_record, toolchain_record, workload_record
from . import history, transfer
from .candidates import Rows, Rowspace
from .replay import Replays
from .search import Known, Search
from .sketch import Sketch, sketches


class Drawn(NamedTuple):
    """A candidate of a sketch. `predicted` are seconds; `None` where its kind has no model."""

    sketch: str
    trace: Trace
    schedule: ScheduleRecord
    features: tuple[float, ...] = ()
    predicted: float | None = None


def model_or_none(target: Target) -> TargetModel | None:
    """The model of times of its kind of target, if there is one."""
    try:
        return model_for(target)
    except TargetError:
        return None


def drawn_by_search(
    func: Func,
    target: Target,
    count: int,
    seed: int,
    *,
    database: TuningDatabase | None = None,
    tolerance: float | None = None,
) -> list[Drawn]:
    """The first `count` candidates that a search asks for, the program as written among them.

    What `database` has of targets that run the same code warms the search, and is not asked for
    again: those whose measurements are the newest. With `tolerance` there are schedules with
    inexact steps.

    Where the kind of target has no model of times, they are drawn at random, as many of each
    sketch.
    """
    inexact = tolerance is not None
    if model_or_none(target) is None:
        prepared = sketches(func, target, inexact=inexact)
        some = drawn_of_each(prepared, target, -(-count // len(prepared)), seed)
        return some[:count]
    workload, tools = workload_record(func), toolchain_record(target)
    where = None if database is None else _measured_last(database, target)
    known: list[Known] = []
    if database is not None and where is not None:
        replays = Replays(func)
        history.best_known(database, workload, where, tools, tolerance, replays=replays)
        known = history.known(
            database, workload, where, tools, model_for(target), without=replays.refused
        )
    search = Search(func, target, seed=seed, known=known, inexact=inexact, as_written=True)
    if database is not None and where is not None:
        transfer.warm(search, database, workload, where, tools, tolerance)
    return [
        Drawn(search.sketches[c.sketch].name, c.trace, c.schedule, c.features, 2.0**c.predicted)
        for c in search.ask(count)
    ]


def drawn_of_traces(
    func: Func, target: Target, traces: Sequence[Trace], generator: str
) -> list[Drawn]:
    """Schedules that somebody chose, each once. Raises `ScheduleError` for one that is refused."""
    model = model_or_none(target)
    found: list[Drawn] = []
    for trace in dict.fromkeys(traces):
        program, record = trace.apply(func).func, schedule_record(trace, generator)
        if model is None:
            found.append(Drawn(generator, trace, record))
        else:
            seconds, features = model.estimate(program, target)
            found.append(Drawn(generator, trace, record, features, seconds))
    return found


def _measured_last(database: TuningDatabase, target: Target) -> TargetRecord | None:
    """Of the targets that run the same code, that of the newest measurement."""
    newest: tuple[Measurement, TargetRecord] | None = None
    for record in database.records(TargetRecord):
        if record.compat == target.compat_class:
            for measured in database.measurements(target=record, limit=1):
                if newest is None or measured.created > newest[0].created:
                    newest = measured, record
    return None if newest is None else newest[1]


def drawn_of_each(prepared: Sequence[Sketch], target: Target, count: int, seed: int) -> list[Drawn]:
    """At most `count` candidates of each sketch, drawn at random, with their estimates."""
    model, rng = model_or_none(target), np.random.default_rng(seed)
    found: list[Drawn] = []
    for sketch in prepared:
        rows: Rows = Rowspace(sketch).sample(rng, count)[:count]
        estimates = [None] * len(rows)
        if model is not None and len(rows):
            estimator = model.estimator(profile(sketch.func, sketch.space.bounds), target)
            estimates = estimator(rows).seconds.tolist()
        for row, seconds in zip(rows.tolist(), estimates, strict=True):
            trace = sketch.trace.with_row(tuple(row))
            record = schedule_record(trace, sketch.generator)
            found.append(Drawn(sketch.name, trace, record, (), seconds))
    return found
