"""Schedules that are chosen without a measurement: of the sketches, the row predicted best.

A choice keeps no pools of rows, and no row is predicted that cannot win: predictions are never
below the estimate (`BaseModel`). Nor are sketches made that are not worth it (`_Standing`).
Parallel loops that are too small for a team are left out.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...base.process import collected_later
from ...schedule import Trace
from ...schedule.facts import keeping_facts
from ...target import CpuTarget, Target
from ...tir.ir import Func
from ...tuning_db.values import ScheduleRecord
from ..model.base_model import SHIPPED, BaseModel, named
from ..model.cost_model import CostModel
from ..model.memo import Memo
from ..model.profile import profile
from ..model.target_model import Features, TargetModel, model_for
from ..rules.draft import RuleChoice
from ..rules.user_rules import SKETCH_RULES
from .candidates import Rowspace
from .search import Predicted, SearchConfig
from .sketch import Sketch, sketches_in_turn, written

_log = logging.getLogger(__name__)

ROWS = 4000
"""Rows that are drawn of each sketch."""
FEW = 256
"""Rows whose predictions say which others can win: they take as long as a call of the model does
for one."""


@collected_later()
@keeping_facts()
def default_trace(
    func: Func,
    target: Target,
    *,
    seed: int = 0,
    sketches: Sequence[Sketch] | None = None,
    error_factor: float = 1.0,
) -> Trace:
    """The schedule that the analytic estimate likes best: no measurement, no learned model.

    `sketches` are those of the program, if they are known. Its steps may make the error of rounding
    up to `error_factor` times as large (`Trace.error_factor`).
    """
    return _chosen(func, target, model_for(target), None, seed, sketches, error_factor)


@collected_later()
@keeping_facts()
def model_trace(
    func: Func,
    target: Target,
    *,
    seed: int = 0,
    base: str = SHIPPED,
    sketches: Sequence[Sketch] | None = None,
    error_factor: float = 1.0,
) -> Trace:
    """The schedule that the base model likes best: no measurement of this program.

    The analytic estimate chooses where there is no usable shipped model; `base` as in
    `SearchConfig`, the others as in `default_trace`.
    """
    target_model = model_for(target)
    return _chosen(
        func, target, target_model, named(base, target_model), seed, sketches, error_factor
    )


def unsearched(
    func: Func, target: Target, trace: Trace, schedule: ScheduleRecord, config: SearchConfig
) -> Predicted:
    """A schedule without open decisions, and what the base model expects of it."""
    model = model_for(target)
    base = named(config.base, model) if config.model else None
    row = np.zeros((1, 0), np.int64)
    features = model.estimator(profile(trace.apply(func).func), target)(row).features
    predicted = float(CostModel(0, base).margin(features)[0])
    return Predicted(trace, schedule, tuple(features[0].tolist()), predicted)


def _chosen(
    func: Func,
    target: Target,
    target_model: TargetModel,
    base: BaseModel | None,
    seed: int,
    sketches: Sequence[Sketch] | None,
    error_factor: float,
) -> Trace:
    """The row predicted best, the first one of equals; none where no legal row is found."""
    roofline = target_model.roofline(func, target).seconds
    standing = _Standing(roofline, frozenset(rule.name for rule in SKETCH_RULES.values()))
    if sketches is None:
        inexact = error_factor > 1.0
        offered = sketches_in_turn(func, target, inexact=inexact, wanted=standing.may_win)
    else:
        offered = (sketch for sketch in sketches if standing.may_win(sketch.choices))
    model, rng, memo = CostModel(seed, base), np.random.default_rng(seed), Memo()
    for sketch in offered:
        if sketch.trace.error_factor > error_factor:
            continue
        rows = Rowspace(sketch).sample(rng, ROWS)
        estimator = target_model.estimator(profile(sketch.func, sketch.space.bounds, memo), target)
        features = estimator(rows).features
        if len(features):
            place, predicted = _least(features, model)
            standing.take(sketch, tuple(rows[place].tolist()), predicted)
        if not (standing.may_gain or SKETCH_RULES):
            break
    if standing.sketch is None:
        _log.warning("no schedule of %s is legal that was drawn: left as written", func.name)
        return written(func, target).trace
    trace = standing.sketch.trace.with_row(standing.row)
    return without_small_teams(func, trace, target, target_model)


def _least(features: Features, model: CostModel) -> tuple[int, float]:
    """The first row with the least prediction, and that (log2 of seconds).

    Predictions of a few rows with the least estimates rule out all whose estimate is higher.
    """
    estimates = features[:, 0].astype(np.float64)
    few = np.argpartition(estimates, min(FEW, len(estimates) - 1))[:FEW]
    near = np.flatnonzero(estimates <= model.margin(features[few]).min())
    predicted = model.margin(features[near])
    best = int(np.argmin(predicted))
    return int(near[best]), float(predicted[best])


# Which sketches are looked at. To make one and to estimate its rows takes as long as thousands of
# calls of a small program: those of which nothing is to be gained are not made.

NEAR = 1.25
"""Predictions hardly come nearer to the roofline, in which nothing waits and no lane is idle."""
ALIKE = 0.15
"""Sketches with a part of one that is so many octaves slower than the best do not win."""
SAVES = 20e-6
"""Seconds of a call that each sketch after the third has to be able to save."""


class _Standing:
    """The best row of the sketches looked at so far, and what is known of their parts.

    Nothing is known beforehand of the rules `own`, which are the user's: their sketches may win.
    """

    def __init__(self, roofline: float, own: frozenset[str] = frozenset()) -> None:
        self.sketch: Sketch | None = None
        self.row: tuple[int, ...] = ()
        self._predicted = math.inf
        self._of_parts: dict[Hashable, float] = {}
        self._seen: dict[frozenset[Hashable], float] = {}
        self._roofline = roofline
        self._own = own

    def take(self, sketch: Sketch, row: tuple[int, ...], predicted: float) -> None:
        """The best row of a further sketch."""
        if predicted < self._predicted:
            self.sketch, self.row, self._predicted = sketch, row, predicted
        for part in _parts(sketch.choices):
            self._of_parts[part] = min(predicted, self._of_parts.get(part, math.inf))
        self._seen[_decided(sketch.choices)] = predicted

    def may_win(self, choices: tuple[RuleChoice, ...]) -> bool:
        """Whether a call may save enough by a sketch of these choices."""
        if any(choice.rule in self._own for choice in choices):
            return True
        slow = self._predicted + ALIKE
        return (
            self.may_gain
            and all(self._of_parts.get(p, -math.inf) <= slow for p in _parts(choices))
            and self._expected(choices) < self._predicted
        )

    @property
    def may_gain(self) -> bool:
        """Whether what a call may save is worth another sketch."""
        spare: float = 2.0**self._predicted - NEAR * self._roofline
        return spare > SAVES * max(0, len(self._seen) - 2)

    def _expected(self, choices: tuple[RuleChoice, ...]) -> float:
        """What three sketches say of a fourth: options change others by as much as each other.

        tiled: -10, blocked: -9.9, tiled and packed: -9.8   ->   blocked and packed: -9.7
        """
        here, found = _decided(choices), list[float]()
        for near, of_near in self._seen.items():
            change = here - near, near - here
            found += [
                of_near + after - before
                for other, after in self._seen.items()
                for start, before in self._seen.items()
                if (other - start, start - other) == change
            ]
        return min(found, default=-math.inf)


def _decided(choices: tuple[RuleChoice, ...]) -> frozenset[Hashable]:
    """The rules and the options of all groups, each with the place of its group."""
    rules = ((place, choice.rule) for place, choice in enumerate(choices))
    options = ((place, *o) for place, choice in enumerate(choices) for o in choice.options)
    return frozenset([*rules, *options])


def _parts(choices: tuple[RuleChoice, ...]) -> Iterator[Hashable]:
    """What says how fast a sketch is, whatever else it does: the choice for each of several groups,
    and along which variable its vectors lie."""
    for place, choice in enumerate(choices):
        if len(choices) > 1:
            yield place, choice
        for option in choice.options:
            if option[0] == "vector":
                yield place, choice.rule, option


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
