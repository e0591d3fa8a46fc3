"""Candidates that are drawn before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...errors import TargetError
from ...schedule import Trace
from ...target import Target
from ...tir.ir import Func
from ...tuning_db.values import ScheduleRecord
from ..model.profile import profile
from ..model.target_model import TargetModel, model_for
from ..records import schedule_record
from .candidates import Rows, Rowspace
from .search import Search
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


def drawn_by_search(func: Func, target: Target, count: int, seed: int) -> list[Drawn]:
    """The first `count` candidates that a search asks for, the program as written among them.

    Where the kind of target has no model of times, they are drawn at random, as many of each
    sketch.
    """
    if model_or_none(target) is None:
        prepared = sketches(func, target)
        some = drawn_of_each(prepared, target, -(-count // len(prepared)), seed)
        return some[:count]
    search = Search(func, target, seed=seed, as_written=True)
    return [
        Drawn(search.sketches[c.sketch].name, c.trace, c.schedule, c.features, 2.0**c.predicted)
        for c in search.ask(count)
    ]


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
