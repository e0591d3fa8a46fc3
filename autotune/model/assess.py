"""Evaluation of models on programs that they never saw, by recorded measurements.

Programs, or whole machines, are dealt to folds; a base model is trained without each fold and
judged on it. A search is
replayed among the candidates that were measured: its regret is how much slower the best that it has
found is than the best recorded, after so many trials, and after so many seconds. The seconds are
what the recorded trials took, and what the models of the replay take here: they are asked of as
many rows as in a search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from ...runtime.timer import Clock
from ..search.pool import drawn
from ..search.search import SearchConfig
from .base_model import BaseModel, train
from .cost_model import CostModel
from .samples import Floats, Ints, SampledTask, Samples
from .target_model import Features

TOPS = (1, 5, 8)
TRIALS = (8, 16, 32, 64)
SECONDS = (0.25, 0.5, 1.0, 2.0)
METHODS = ("model", "base", "session", "analytic", "random")
"""The base model and what a session learns, each of these alone, the estimate, and blind choice."""
_LEAST = 16
_CLOSE = 1.02
_SHUFFLES = 16
_STARTS = 4


@dataclass(frozen=True)
class Score:
    """How a method does on one task, or on all of them.

    `recall` says for each of `TOPS` how often the fastest candidate (or one within 2%) is among the
    first so many by the prediction before any measurement; `rank` is Spearman's correlation of that
    prediction with the times. `regret` is for each of `TRIALS` the time of the best found over that
    of the best there is, and `timed` for each of `SECONDS`: before the first trial has ended, of
    what would be tried first. `timed` is `None` where it is not recorded how long a trial took.
    """

    method: str
    recall: tuple[float, ...]
    rank: float
    regret: tuple[float, ...]
    timed: tuple[float, ...] | None


@dataclass(frozen=True)
class Judged:
    """A task, its number of candidates, and a score for each of `METHODS` and of the peers."""

    task: SampledTask
    candidates: int
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class Report:
    """The tasks that were judged, and the means over them."""

    tasks: tuple[Judged, ...]
    overall: tuple[Score, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object; programs are left out, they are long."""
        tasks = [
            {
                "task": str(judged.task),
                "session": judged.task.session,
                "candidates": judged.candidates,
                "trial_seconds": judged.task.trial_seconds,
                "scores": [asdict(score) for score in judged.scores],
            }
            for judged in self.tasks
        ]
        return {
            "tops": list(TOPS),
            "trials": list(TRIALS),
            "seconds": list(SECONDS),
            "tasks": tasks,
            "overall": [asdict(score) for score in self.overall],
        }


class Guide(Protocol):
    """The order in which a search tries rows: a prediction for each of them, the least first.

    By `temperature` batches are drawn, see `drawn`.
    """

    temperature: float

    def predict(self) -> Floats: ...
    def learn(self, features: Features, seconds: Floats) -> None: ...


Peer: TypeAlias = Callable[[Features, int], Guide]
"""Makes a guide for rows of features, from a seed."""
NO_PEERS: Mapping[str, Peer] = {}


class _Session:
    """The cost model of a session, which predicts the margins of rows but once."""

    temperature = SearchConfig().temperature

    def __init__(self, base: BaseModel | None, crowd: Features) -> None:
        self._model = CostModel(base=base)
        self._crowd, self._margin = crowd, self._model.margin(crowd)

    def predict(self) -> Floats:
        return self._model.predict(self._crowd, self._margin)

    def learn(self, features: Features, seconds: Floats) -> None:
        self._model.fit(features, seconds)


@dataclass(frozen=True)
class MeasuringOrder:
    """The `order` in which candidates are measured, and the seconds in models before each."""

    order: Ints
    thought: Floats


Unseen: TypeAlias = Callable[[SampledTask], str]
"""The part of a task that is held out: a name."""


def of_program(task: SampledTask) -> str:
    """Its program."""
    return task.program


def of_machine(task: SampledTask) -> str:
    """The machine that it was measured on."""
    return task.machine


def assess(
    samples: Samples,
    judged: Sequence[int],
    *,
    folds: int = 8,
    batch: int = 8,
    trainer: Callable[[Samples], BaseModel] = train,
    clock: Clock = time.perf_counter,
    peers: Mapping[str, Peer] = NO_PEERS,
    unseen: Unseen = of_program,
) -> Report:
    """Judge the tasks with the numbers `judged` that have candidates enough.

    `unseen` says what of a task a base model that is judged on it has seen nothing of.
    `peers` are methods to compare with, by name.
    """
    judgements = []
    for held, base in _held_out(samples, judged, folds, trainer, unseen):
        for number in held:
            of_task = samples.only([number])
            if len(of_task) >= _LEAST:
                task = samples.tasks[number]
                judgements.append((number, _judge(task, of_task, base, batch, clock, peers)))
    tasks = tuple(j for _, j in sorted(judgements, key=lambda pair: pair[0]))
    return Report(tasks, _means(tasks))


def _held_out(
    samples: Samples,
    judged: Sequence[int],
    folds: int,
    trainer: Callable[[Samples], BaseModel],
    unseen: Unseen,
) -> Iterator[tuple[list[int], BaseModel]]:
    """Tasks to be judged with a model that saw nothing `unseen` of them.

    Raises `TuningError` where nothing is left to train on.
    """
    names = [unseen(task) for task in samples.tasks]
    judged_names = sorted({names[n] for n in judged})
    for fold in range(min(folds, len(judged_names))):
        left_out = set(judged_names[fold::folds])
        rest = [n for n, name in enumerate(names) if name not in left_out]
        yield [n for n in judged if names[n] in left_out], trainer(samples.only(rest))


def _judge(
    task: SampledTask,
    samples: Samples,
    base: BaseModel,
    batch: int,
    clock: Clock,
    peers: Mapping[str, Peer],
) -> Judged:
    features, seconds = samples.features, samples.seconds
    columns = _columns(samples)
    crowd = np.resize(columns, (max(len(samples), SearchConfig().pool), columns.shape[1]))
    rng = np.random.default_rng(0)
    blind = [_at_once(rng.permutation(len(samples))) for _ in range(_SHUFFLES)]

    began = clock()
    known = CostModel(base=base).margin(crowd)[: len(samples)]
    took = clock() - began
    plain = features[:, 0]
    predicted: dict[str, Features] = {
        "model": known, "base": known, "session": plain, "analytic": plain
    }  # fmt: skip
    orders = {
        "model": _replays(samples, lambda _: _Session(base, crowd), batch, clock),
        "base": [_at_once(np.argsort(known, kind="stable"), took)],
        "session": _replays(samples, lambda _: _Session(None, crowd), batch, clock),
        "analytic": [_at_once(np.argsort(plain, kind="stable"))],
        "random": blind,
    }
    for name, peer in peers.items():
        orders[name] = _replays(samples, partial(peer, features), batch, clock)
    scores = []
    for method, replayed in orders.items():
        if method in predicted:
            first = [np.argsort(predicted[method], kind="stable")]
            rank = spearman(predicted[method], seconds)
        else:
            first, rank = [each.order for each in blind], 0.0
        recall = np.mean([_recall(order, seconds) for order in first], axis=0)
        scores.append(_score(method, recall, rank, replayed, samples, task.trial_seconds))
    return Judged(task, len(seconds), tuple(scores))


def _columns(samples: Samples) -> Features:
    """The columns that a session learns from: the features, and behind them the decisions."""
    return np.hstack([samples.features, samples.decisions])


def _at_once(order: Ints, thought: float = 0.0) -> MeasuringOrder:
    """An order that is known before the first measurement."""
    return MeasuringOrder(order, np.full(len(order), thought))


def _replays(
    samples: Samples, guide: Callable[[int], Guide], batch: int, clock: Clock
) -> list[MeasuringOrder]:
    return [
        replay(samples, partial(guide, seed), batch, clock, np.random.default_rng(seed))
        for seed in range(_STARTS)
    ]


def replay(
    samples: Samples, guide: Callable[[], Guide], batch: int, clock: Clock, rng: np.random.Generator
) -> MeasuringOrder:
    """The order of a search that measures candidates `batch` at a time.

    The crowd of the guide begins with the candidates. Batches are drawn as by a search, less its
    share of any rows.
    """
    columns = _columns(samples)
    began = clock()
    model = guide()
    spent = clock() - began
    order: list[int] = []
    thought: list[float] = []
    left = np.arange(len(samples))
    while len(left):
        began = clock()
        predicted = model.predict()
        spent += clock() - began
        measured = left[drawn(predicted[left], model.temperature, rng)[:batch]]
        order += measured.tolist()
        thought += [spent] * len(measured)
        left = np.setdiff1d(left, measured)
        began = clock()
        model.learn(columns[order], samples.seconds[order])
        spent += clock() - began
    return MeasuringOrder(np.array(order, dtype=np.int64), np.array(thought))


def spearman(xs: Features, ys: Features) -> float:
    """Spearman's rank correlation; equal values share the mean of their ranks."""
    a, b = _ranks(xs), _ranks(ys)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: Features) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Floats = last - (counts - 1) / 2.0
    return means[place]


def _recall(order: Ints, seconds: Floats) -> Floats:
    close = _CLOSE * seconds.min()
    return np.array([float(seconds[order[:top]].min() <= close) for top in TOPS])


def _score(
    method: str,
    recall: Floats,
    rank: float,
    orders: Sequence[MeasuringOrder],
    samples: Samples,
    trial_seconds: float | None,
) -> Score:
    """Regrets are means, of logarithms, over the orders."""
    bests = [
        np.minimum.accumulate(samples.seconds[c.order]) / samples.seconds.min() for c in orders
    ]
    regret = [_mean([best[min(n, len(best)) - 1] for best in bests]) for n in TRIALS]
    timed = None
    if trial_seconds is not None:
        ends = [c.thought + trial_seconds * np.arange(1, len(c.order) + 1) for c in orders]
        ended = [[max(1, int((end <= limit).sum())) for end in ends] for limit in SECONDS]
        timed = tuple(
            _mean([best[n - 1] for best, n in zip(bests, counts, strict=True)]) for counts in ended
        )
    return Score(method, tuple(map(float, recall)), rank, tuple(regret), timed)


def _means(tasks: Sequence[Judged]) -> tuple[Score, ...]:
    """For each method the mean over tasks, the geometric one of regrets."""
    means = []
    for scores in zip(*(judged.scores for judged in tasks), strict=True):
        recall = np.mean([s.recall for s in scores], axis=0)
        timed = [s.timed for s in scores if s.timed is not None]
        means.append(
            Score(
                scores[0].method,
                tuple(map(float, recall)),
                float(np.mean([s.rank for s in scores])),
                tuple(map(_mean, zip(*(s.regret for s in scores), strict=True))),
                tuple(map(_mean, zip(*timed, strict=True))) if timed else None,
            )
        )
    return tuple(means)


def _mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(ratios))))
