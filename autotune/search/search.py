"""The search: asked for candidates, told what became of them; it measures nothing itself.

Rows of all sketches are scored as arrays by the cost model. A batch takes the best predicted rows,
spread over different tiles, and a share of random ones; the rows are redrawn around the best ones
measured after every batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...base.process import collected_later
from ...schedule import Trace
from ...target import Target
from ...tir.ir import Func
from ...tuning_db.values import Outcome, ScheduleRecord
from ..model.base_model import SHIPPED, named
from ..model.cost_model import CostModel, TrainingRows
from ..model.memo import Memo
from ..model.profile import profile
from ..model.target_model import model_for
from ..records import schedule_record
from .candidates import Rows, Rowspace, decided, row_keys
from .pool import Pool, drawn, smallest
from .replay import row_of
from .sketch import Sketch, sketches, written

MIN_POOL = 2000
"""Rows of a sketch that are looked at, at least, where there are so many."""
ELITE = 256
"""Rows that children are drawn from, of all sketches together."""
WORTH_MEASURING = 5.0
"""Octaves by which the program as written may be predicted slower than the best, and is measured:
the estimate does not know which of its loops the compiler turns into vectors."""


@dataclass(frozen=True)
class Predicted:
    """A schedule to measure, and the time that is expected of it: `predicted` is log2 of seconds.

    `schedule` is its record, whose id identifies it from here to the database.
    """

    trace: Trace
    schedule: ScheduleRecord
    features: tuple[float, ...]
    predicted: float

    @property
    def predicted_seconds(self) -> float:
        return float(2.0**self.predicted)


@dataclass(frozen=True)
class Candidate(Predicted):
    """The schedule of a row of a sketch (its position)."""

    sketch: int
    row: tuple[int, ...]

    def observed(self, outcome: Outcome, seconds: float | None) -> Observation:
        """The observation of this candidate."""
        return Observation(self.schedule.id, self.sketch, self.row, self.features, outcome, seconds)


@dataclass(frozen=True)
class Observation:
    """The outcome of a schedule (id). Without `features` the models do not learn from it.

    `sketch` and `row` are those of the candidate; `None` and empty for a schedule of no sketch.
    `seconds` is the fastest sample: disturbances only make samples slower, and a schedule that
    could not win has few.
    """

    schedule: str
    sketch: int | None
    row: tuple[int, ...]
    features: tuple[float, ...]
    outcome: Outcome
    seconds: float | None


class Known(NamedTuple):
    """A schedule (id) that was measured before the search began; the rest as in `Observation`."""

    schedule: str
    trace: Trace
    features: tuple[float, ...]
    outcome: Outcome
    seconds: float | None


@dataclass(frozen=True)
class SearchConfig:
    """`pool` rows are scored at a time, of each sketch as many and `MIN_POOL` at least.

    `children` are drawn after each batch from the `ELITE` rows predicted best. A batch is drawn
    from the `among` rows predicted best: one that is predicted x octaves slower than another is
    exp(x / `temperature`) times less likely (0: they are taken in their order). `random` is the
    share of a batch drawn from all rows predicted at most `explored` octaves slower than the best:
    a candidate that takes ten times as long costs more than the rest of a batch, and cannot win.
    `model=False` searches by the analytic estimate alone. `base` is the model that predicts before
    anything is measured: the shipped one, a file of `tilewright model train`, or none.
    """

    pool: int = 16000
    children: int = 4000
    among: int = 512
    temperature: float = 0.04
    random: float = 0.1
    explored: float = 2.0
    model: bool = True
    base: str | None = SHIPPED


class _Batch:
    """Candidates that are taken from the pools of a search, `size` at most."""

    def __init__(self, search: Search, size: int) -> None:
        self.size = size
        self.candidates: list[Candidate] = []
        self._search = search
        self._taken: dict[int, list[int]] = {}
        """The places of rows in the pools of sketches."""

    @property
    def full(self) -> bool:
        return len(self.candidates) >= self.size

    def take(self, s: int, r: int) -> bool:
        """Take a row (a place in a pool), unless it was asked for before; whether it was taken."""
        places = self._taken.setdefault(s, [])
        if r in places:
            return False
        places.append(r)
        candidate = self._search.new_candidate(s, r)
        if candidate is not None:
            self.candidates.append(candidate)
        return candidate is not None

    def take_row(self, s: int, row: tuple[int, ...]) -> None:
        """Take a row of a sketch, if its pool holds it."""
        for place in np.flatnonzero((self._search.pools[s].rows == row).all(axis=1)):
            self.take(s, int(place))

    def fill(self, order: Sequence[tuple[int, int]], size: int) -> None:
        """Take rows in this order until there are so many."""
        for s, r in order:
            if len(self.candidates) >= size:
                break
            self.take(s, r)

    def leave_pools(self) -> None:
        """Remove what was taken, and what was asked for before."""
        for s, places in self._taken.items():
            pool = self._search.pools[s]
            pool.keep(np.delete(np.arange(len(pool.rows)), places))


class Search:
    """Ask/tell search over the sketches of a program. Deterministic for a seed.

    With `inexact`, sketches with inexact steps are searched too. So are those `beside` the ones by
    rules, which a build without records does not know, for half of the candidates if they have
    decisions. With `as_written`, so is the
    program itself: it is in the first batch unless it is predicted to be hopelessly slow.
    """

    @collected_later()
    def __init__(  # noqa: PLR0913 - each option has a name
        self,
        func: Func,
        target: Target,
        *,
        seed: int = 0,
        config: SearchConfig | None = None,
        prepared: Sequence[Sketch] | None = None,
        beside: Sequence[Sketch] = (),
        known: Sequence[Known] = (),
        inexact: bool = False,
        as_written: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.config = config or SearchConfig()
        self.target = target
        self.by_rules = (
            tuple(prepared) if prepared is not None else sketches(func, target, inexact=inexact)
        )
        self.sketches = self.by_rules + tuple(beside)
        plain = written(func, target) if as_written else None
        if plain is not None and all(s.trace != plain.trace for s in self.sketches):
            self.sketches += (plain,)
        first, last = len(self.by_rules), len(self.by_rules) + len(beside)
        self._open_beside = [n for n in range(first, last) if self.sketches[n].variables]
        self._owed = 0.0
        self.target_model = model_for(target)
        self.base = named(self.config.base, self.target_model) if self.config.model else None
        self.model = CostModel(seed, self.base)
        self.seconds_in_model = 0.0
        self._clock = clock
        self._rng = np.random.default_rng(seed)
        self._asked: set[str] = set()
        self._observed: list[Observation] = []
        self._width = 1 + max((len(s.variables) for s in self.sketches), default=0)
        self._columns = len(self.target_model.features) + self._width
        self._suggested: list[tuple[int, tuple[int, ...]]] = []
        self._first: list[tuple[int, tuple[int, ...]]] = []
        self._one_of: list[Sequence[int]] = []
        self._told: list[tuple[float, ...]] = []
        self._seconds: list[float] = []
        self._fitted = True
        self.pools: list[Pool] = []
        memo = Memo()
        for sketch in self.sketches:
            space = Rowspace(sketch)
            read = profile(sketch.func, sketch.space.bounds, memo)
            rows, none = np.empty((0, len(sketch.variables)), dtype=np.int64), np.empty(0)
            features = np.empty((0, self._columns), dtype=np.float32)
            estimator = self.target_model.estimator(read, target)
            self.pools.append(
                Pool(len(self.pools), space, estimator, rows, features, none, none, none)
            )
        self._share = max(MIN_POOL, self.config.pool // len(self.pools))
        for pool in self.pools:
            self._add(pool, pool.space.sample(self._rng, self._share))
        if known:
            self.tell([self._recognised(k) for k in known])
        if plain is not None:
            self._begin_with(plain)

    @property
    def observed(self) -> Sequence[Observation]:
        """The outcomes that the search was told, in order."""
        return self._observed

    @property
    def best(self) -> Observation | None:
        """The fastest schedule observed so far."""
        timed = [o for o in self._observed if o.outcome is Outcome.OK and o.seconds is not None]
        return min(timed, key=lambda o: o.seconds or 0.0) if timed else None

    def relate(self, measured: TrainingRows) -> None:
        """Let the model learn from measurements of other programs as well."""
        if self.config.model and len(measured):
            self.model.relate(measured)
            self._fitted = False
            self._fit()

    def suggest(self, rows: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        """Put rows of sketches (positions) into the next batch: into half of it at most.

        A batch that `begin_with_each` fills is not counted.
        """
        for s, row in rows:
            self._add(self.pools[s], np.array([row], dtype=np.int64))
        self._suggested = list(rows)

    def begin_with(self, trace: Trace) -> None:
        """Put the candidate of a trace into the first batch, if a sketch has it."""
        sketch, row = self._place(trace)
        if sketch is not None:
            self._add(self.pools[sketch], np.array([row], dtype=np.int64))
            self._first.append((sketch, row))

    def scores(self, sketch: int, rows: Rows) -> np.ndarray:
        """What the model says of rows of a sketch (position), as log2 of seconds: less is better.

        A penalty for what may fail is part of it.
        """
        return self._judged(self.pools[sketch], rows)[-1]

    def begin_with_each(self, groups: Iterable[Sequence[int]]) -> None:
        """Put a candidate of one sketch (position) of each group into the first batches.

        It has the initial values of the sketch, if there are some.
        """
        self._one_of += groups

    def has_candidate(self, sketches: Iterable[int]) -> bool:
        """Whether any of these sketches (positions) has a row that `ask` may still return."""
        return any(
            schedule_record(self.sketches[s].trace.with_row(row)).id not in self._asked
            for s in sketches
            for row in self.pools[s].rows.tolist()
        )

    def ask(self, count: int) -> list[Candidate]:
        """At most `count` new candidates, drawn as `SearchConfig` says.

        One of each group to begin with comes first, then suggested ones, the others to begin with,
        the best predicted of sketches beside those by rules, and of all.
        """
        if count < 1:
            return []
        self._fit()
        batch = _Batch(self, count)
        order = self._ranked(count)
        limit = min((p.scores.min() for p in self.pools if len(p.scores)), default=0.0)
        limit += self.config.explored
        while self._one_of and not batch.full:
            self._take_one_of(batch, self._one_of.pop(0))
        begun = len(batch.candidates)
        if begun < count:
            for s, row in self._suggested:
                if 2 * (len(batch.candidates) - begun) >= count - begun:
                    break
                batch.take_row(s, row)
            self._suggested = []
        while self._first and not batch.full and count > 1:
            batch.take_row(*self._first.pop(0))
        self._take_open_beside(batch)
        greedy = count - int(self._rng.binomial(count, self.config.random)) if count > 1 else 1
        batch.fill(order, greedy)
        for _ in range(8 * count):
            if batch.full:
                break
            s = int(self._rng.integers(len(self.pools)))
            near = np.flatnonzero(self.pools[s].scores <= limit)
            if len(near):
                batch.take(s, int(self._rng.choice(near)))
        batch.fill(order, count)
        batch.leave_pools()
        return batch.candidates

    def _begin_with(self, plain: Sketch) -> None:
        """Put the program as written into the first batch, if it may be among the fastest."""
        best = min((p.scores.min() for p in self.pools if len(p.scores)), default=0.0)
        for pool, sketch in zip(self.pools, self.sketches, strict=True):
            if sketch.trace == plain.trace and (pool.scores <= best + WORTH_MEASURING).any():
                self._first.append((pool.number, ()))

    def _ranked(self, count: int) -> list[tuple[int, int]]:
        """The rows predicted best, with their sketches, in the order in which to take them."""
        scores = np.concatenate([p.scores for p in self.pools])
        places = smallest(scores, max(self.config.among, 8 * count))
        places = places[drawn(scores[places], self.config.temperature, self._rng)]
        ends = np.cumsum([len(p.scores) for p in self.pools])
        pools = np.searchsorted(ends, places, side="right")
        rows = places - (ends - [len(p.scores) for p in self.pools])[pools]
        return list(zip(pools.tolist(), rows.tolist(), strict=True))

    def tell(self, observations: Sequence[Observation]) -> None:
        """Learn from outcomes, and redraw the rows around the best."""
        self.learn(observations)
        for _ in self.explore():
            pass

    def learn(self, observations: Sequence[Observation]) -> None:
        """Learn from outcomes, once candidates are asked for again."""
        for o in observations:
            self._asked.add(o.schedule)
            if o.features:
                seconds = o.seconds if o.outcome is Outcome.OK else None
                self._told.append((*o.features, *self._decided(o)))
                self._seconds.append(math.inf if seconds is None else seconds)
        self._observed.extend(observations)
        self._fitted = False

    def explore(self) -> Iterator[None]:
        """Add children of the rows predicted best, if a space is too large to hold whole.

        A sketch gets children in proportion to its share of the best rows. Each step is one sketch,
        so that other work can be done in between.
        """
        self._fit()
        elite = smallest(np.concatenate([p.scores for p in self.pools]), ELITE)
        first = 0
        for pool in self.pools:
            last = first + len(pool.rows)
            places = elite[(first <= elite) & (elite < last)] - first
            first = last
            if pool.space.size > self._share and len(places):
                parents = pool.rows[places]
                count = self.config.children * len(places) // len(elite)
                self._add(pool, pool.space.mutate(self._rng, parents, count))
                if len(pool.rows) > 2 * self._share:
                    pool.keep_best(self._share)
                yield

    def _fit(self) -> None:
        """Fit the model to all observations, and score the rows again."""
        if self._fitted:
            return
        self._fitted = True
        start = self._clock()
        if self.config.model:
            rows = np.array(self._told).reshape(-1, self._columns)
            self.model.fit(rows, np.array(self._seconds))
            features = np.concatenate([p.features for p in self.pools])
            predicted = self.model.predict(features, np.concatenate([p.margin for p in self.pools]))
            scores = predicted + self.model.penalty(features)
            last = 0
            for pool in self.pools:
                part = slice(last, last := last + len(pool.rows))
                pool.predicted, pool.scores = predicted[part], scores[part]
        self.seconds_in_model += self._clock() - start

    def _recognised(self, known: Known) -> Observation:
        """A known schedule with its sketch: the one whose trace its own is, once opened."""
        return Observation(
            known.schedule, *self._place(known.trace), known.features, known.outcome, known.seconds
        )

    def _place(self, trace: Trace) -> tuple[int | None, tuple[int, ...]]:
        """The sketch that has a trace and its row; `None` and an empty row if there is none."""
        opened = trace.opened()
        sketch = next((n for n, s in enumerate(self.sketches) if s.trace == opened), None)
        return sketch, () if sketch is None else row_of(trace) or ()

    def _decided(self, observed: Observation) -> tuple[float, ...]:
        """The columns of `decided`; NaN for a schedule of no sketch."""
        if observed.sketch is None:
            return (math.nan,) * self._width
        rows = np.array([observed.row], dtype=np.int64)
        return tuple(decided(observed.sketch, rows, self._width)[0].tolist())

    def _take_open_beside(self, batch: _Batch) -> None:
        """Take the rows predicted best of sketches beside those by rules, if these have decisions.

        Half of all candidates are theirs, as far as they have so many.
        """
        pools = [self.pools[s] for s in self._open_beside]
        self._owed += batch.size / 2
        taken = sum(c.sketch in self._open_beside for c in batch.candidates)
        rows = sorted(
            (score, pool.number, r) for pool in pools for r, score in enumerate(pool.scores)
        )
        for _, s, r in rows:
            if taken + 1 > self._owed or batch.full:
                break
            taken += batch.take(s, r)
        self._owed = min(self._owed - taken, 1.0)

    def _take_one_of(self, batch: _Batch, group: Sequence[int]) -> None:
        """Take the row of these sketches that is predicted best, unless the batch has one.

        One with the initial values of its sketch is preferred.
        """
        if any(candidate.sketch in group for candidate in batch.candidates):
            return
        scored = list[tuple[bool, float, int, int]]()
        for s in group:
            pool = self.pools[s]
            rows = pool.space.initial(self._rng, self._share)
            self._add(pool, rows)
            initial = {*row_keys(rows)}
            for r, key in enumerate(row_keys(pool.rows)):
                scored.append((key not in initial, float(pool.scores[r]), s, r))
        for *_, s, r in sorted(scored):
            if batch.take(s, r):
                return

    def new_candidate(self, s: int, r: int) -> Candidate | None:
        """The candidate of a row (a place in a pool); `None` for one that was asked for before."""
        pool = self.pools[s]
        row = tuple(int(v) for v in pool.rows[r])
        trace = self.sketches[s].trace.with_row(row)
        schedule = schedule_record(trace, self.sketches[s].generator)
        if schedule.id in self._asked:
            return None
        self._asked.add(schedule.id)
        features = tuple(float(v) for v in pool.features[r, : len(self.target_model.features)])
        return Candidate(trace, schedule, features, float(pool.predicted[r]), s, row)

    def _add(self, pool: Pool, rows: Rows) -> None:
        """Put new rows into a pool."""
        new = pool.new(rows)
        if len(new):
            pool.add(new, *self._judged(pool, new))

    def _judged(self, pool: Pool, rows: Rows) -> tuple[np.ndarray, ...]:
        """The features, margins, predictions and scores of rows, as a pool has them."""
        decisions = decided(pool.number, rows, self._width)
        features = np.hstack([pool.estimator(rows).features, decisions])
        start = self._clock()
        margin = self.model.margin(features)
        predicted = self.model.predict(features, margin)
        scores = predicted + self.model.penalty(features)
        self.seconds_in_model += self._clock() - start
        return features, margin, predicted, scores
