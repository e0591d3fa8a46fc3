"""What a model is worth on programs that it never saw, by measurements that were recorded.

Programs are dealt to folds; a base model is trained without each fold and judged on it. A search is
replayed among the candidates that were measured: its regret after so many trials is how much slower
the best found is than the best recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .analytic import Features
from .base_model import BaseModel, train
from .cost_model import CostModel
from .samples import Floats, Ints, Samples, Task

TOPS = (1, 5, 8)
TRIALS = (8, 16, 32, 64)
METHODS = ("model", "base", "session", "analytic", "random")
"""The base model and what a session learns, each of these alone, the estimate, and blind choice."""
_LEAST = 16
_CLOSE = 1.02
_SHUFFLES = 16


@dataclass(frozen=True)
class Score:
    """How a method does on one task, or on all of them.

    `recall` says for each of `TOPS` how often the fastest candidate (or one within 2%) is among the
    first so many by the prediction before any measurement; `rank` is Spearman's correlation of that
    prediction with the times. `regret` is for each of `TRIALS` the time of the best found over that
    of the best there is.
    """

    method: str
    recall: tuple[float, ...]
    rank: float
    regret: tuple[float, ...]


@dataclass(frozen=True)
class Judged:
    """A task, its number of candidates, and a score for each of `METHODS`."""

    task: Task
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
                "scores": [asdict(score) for score in judged.scores],
            }
            for judged in self.tasks
        ]
        return {
            "tops": list(TOPS),
            "trials": list(TRIALS),
            "tasks": tasks,
            "overall": [asdict(score) for score in self.overall],
        }


def assess(
    samples: Samples,
    judged: Sequence[int],
    *,
    folds: int = 8,
    batch: int = 8,
    trainer: Callable[[Samples], BaseModel] = train,
) -> Report:
    """Judge the tasks with the numbers `judged` that have candidates enough."""
    found = []
    for held, base in _held_out(samples, judged, folds, trainer):
        for number in held:
            own = samples.only([number])
            if len(own) >= _LEAST:
                found.append((number, _judge(samples.tasks[number], own, base, batch)))
    tasks = tuple(j for _, j in sorted(found, key=lambda pair: pair[0]))
    return Report(tasks, _means(tasks))


def _held_out(
    samples: Samples,
    judged: Sequence[int],
    folds: int,
    trainer: Callable[[Samples], BaseModel],
) -> Iterator[tuple[list[int], BaseModel]]:
    """Tasks to be judged with a model that saw no candidate of their programs."""
    programs = sorted({samples.tasks[n].program for n in judged})
    for fold in range(min(folds, len(programs))):
        left_out = set(programs[fold::folds])
        rest = [n for n, t in enumerate(samples.tasks) if t.program not in left_out]
        yield (
            [n for n in judged if samples.tasks[n].program in left_out],
            trainer(samples.only(rest)),
        )


def _judge(task: Task, own: Samples, base: BaseModel, batch: int) -> Judged:
    features, seconds = own.features, own.seconds
    first = {
        "model": CostModel(base=base).margin(features),
        "base": CostModel(base=base).margin(features),
        "session": features[:, 0],
        "analytic": features[:, 0],
    }
    orders = {
        "model": [replay(features, seconds, base, batch)],
        "base": [np.argsort(first["base"], kind="stable")],
        "session": [replay(features, seconds, None, batch)],
        "analytic": [np.argsort(first["analytic"], kind="stable")],
    }
    rng = np.random.default_rng(0)
    blind = [rng.permutation(len(seconds)) for _ in range(_SHUFFLES)]
    scores = []
    for method in METHODS:
        if method == "random":
            recall = np.mean([_recall(order, seconds) for order in blind], axis=0)
            scores.append(_score(method, recall, 0.0, blind, seconds))
            continue
        predicted = first[method]
        recall = _recall(np.argsort(predicted, kind="stable"), seconds)
        rank = spearman(predicted, seconds)
        scores.append(_score(method, recall, rank, orders[method], seconds))
    return Judged(task, len(seconds), tuple(scores))


def replay(features: Features, seconds: Floats, base: BaseModel | None, batch: int) -> Ints:
    """The order in which a search with a model measures candidates, `batch` at a time."""
    model = CostModel(base=base)
    margin = model.margin(features)
    order: list[int] = []
    left = np.arange(len(seconds))
    while len(left):
        predicted = model.predict(features[left], margin[left])
        taken = left[np.argsort(predicted, kind="stable")[:batch]]
        order += taken.tolist()
        left = np.setdiff1d(left, taken)
        model.fit(features[order], seconds[order])
    return np.array(order, dtype=np.int64)


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
    method: str, recall: Floats, rank: float, orders: Sequence[Ints], seconds: Floats
) -> Score:
    """Regrets are means, of logarithms, over the orders."""
    regret = [
        float(np.exp(np.mean([np.log(seconds[o[:n]].min() / seconds.min()) for o in orders])))
        for n in TRIALS
    ]
    return Score(method, tuple(map(float, recall)), rank, tuple(regret))


def _means(tasks: Sequence[Judged]) -> tuple[Score, ...]:
    """For each method the mean over tasks, the geometric one of regrets."""
    found = []
    for number, method in enumerate(METHODS):
        own = [judged.scores[number] for judged in tasks]
        if own:
            recall = np.mean([s.recall for s in own], axis=0)
            regret = np.exp(np.mean([np.log(s.regret) for s in own], axis=0))
            rank = float(np.mean([s.rank for s in own]))
            found.append(Score(method, tuple(map(float, recall)), rank, tuple(map(float, regret))))
    return tuple(found)
