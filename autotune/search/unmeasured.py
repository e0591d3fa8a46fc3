"""Schedules that are chosen without a measurement: of all sketches, the row predicted best.

It is the row that a `Search` of the same seed asks for first, without parallel loops that are too
small for a team. A choice keeps no pools of rows, and no row is predicted that cannot win:
predictions are never below the estimate (`BaseModel`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...base.process import collected_later
from ...schedule import Trace
from ...schedule.facts import keeping_facts
from ...target import CpuTarget, Target
from ...tir.ir import Func
from ..model.base_model import SHIPPED, BaseModel, named
from ..model.cost_model import CostModel
from ..model.memo import Memo
from ..model.profile import profile
from ..model.target_model import Features, TargetModel, model_for
from .candidates import Rows, Rowspace
from .search import SearchConfig, rows_of_each
from .sketch import Sketch, written
from .sketch import sketches as sketches_of

_log = logging.getLogger(__name__)

FEW = 256
"""Rows whose predictions say which others can win: they take as long as a call of the model does
for one."""


@collected_later()
@keeping_facts()
def default_trace(
    func: Func, target: Target, *, seed: int = 0, sketches: Sequence[Sketch] | None = None
) -> Trace:
    """The schedule that the analytic estimate likes best: no measurement, no learned model.

    `sketches` are those of the program, if they are known.
    """
    return _chosen(func, target, model_for(target), None, seed, sketches)


@collected_later()
@keeping_facts()
def model_trace(
    func: Func,
    target: Target,
    *,
    seed: int = 0,
    base: str = SHIPPED,
    sketches: Sequence[Sketch] | None = None,
) -> Trace:
    """The schedule that the base model likes best: no measurement of this program.

    The analytic estimate chooses where there is no usable shipped model; `base` as in
    `SearchConfig`, `sketches` as in `default_trace`.
    """
    target_model = model_for(target)
    return _chosen(func, target, target_model, named(base, target_model), seed, sketches)


def _chosen(
    func: Func,
    target: Target,
    target_model: TargetModel,
    base: BaseModel | None,
    seed: int,
    sketches: Sequence[Sketch] | None,
) -> Trace:
    """The row predicted best, the first one of equals; none where no legal row is found."""
    prepared = sketches_of(func, target) if sketches is None else sketches
    count = rows_of_each(SearchConfig().pool, len(prepared))
    model, rng = CostModel(seed, base), np.random.default_rng(seed)
    memo = Memo()
    drawn: list[Rows] = []
    estimated: list[Features] = []
    for sketch in prepared:
        read = profile(sketch.func, sketch.space.bounds, memo)
        drawn.append(Rowspace(sketch).sample(rng, count))
        estimated.append(target_model.estimator(read, target)(drawn[-1]).features)
    features = np.concatenate(estimated)
    if len(features) == 0:
        _log.warning("no schedule of %s is legal that was drawn: left as written", func.name)
        return written(func, target).trace
    place = _least(features, model)
    for sketch, rows in zip(prepared, drawn, strict=True):
        if place < len(rows):
            trace = sketch.trace.with_row(tuple(rows[place].tolist()))
            return without_small_teams(func, trace, target, target_model)
        place -= len(rows)
    raise AssertionError("a place among all rows is one of a sketch")


def _least(features: Features, model: CostModel) -> int:
    """The first row with the least prediction.

    Predictions of a few rows with the least estimates rule out all whose estimate is higher.
    """
    estimates = features[:, 0].astype(np.float64)
    few = np.argpartition(estimates, min(FEW, len(estimates) - 1))[:FEW]
    near = np.flatnonzero(estimates <= model.margin(features[few]).min())
    return int(near[np.argmin(model.margin(features[near]))])


# Parallel loops of so little work that a team of threads takes longer to begin than it saves.

LONG = 64
"""A program that takes so many times as long as a team to begin is left as it is."""


def without_small_teams(func: Func, trace: Trace, target: Target, model: TargetModel) -> Trace:
    """The trace without the `parallel` steps that the estimate says cost more than they save.

    `target` is resolved, and `trace` leaves no decision open. A step saves what the program takes
    longer without it, both without the time to begin teams; it costs that time once. Those that
    save nothing are kept: they are not part of calls.
    """
    steps = [step for step in trace if step.op == "parallel"]
    if not steps or not isinstance(target, CpuTarget) or target.threads == 1:
        return trace
    free = replace(target, rates=target.rates._replace(fork=0.0))

    def seconds(trace: Trace) -> float:
        scheduled = trace.apply(func).func
        row = np.zeros((1, 0), np.int64)
        return float(model.estimator(profile(scheduled), free)(row).seconds[0])

    now = seconds(trace)
    for step in steps if now < LONG * target.rates.fork else ():
        alone = Trace(tuple(s for s in trace if s is not step))
        serial = seconds(alone)
        if 0.0 < serial - now <= target.rates.fork:
            trace, now = alone, serial
    return trace
