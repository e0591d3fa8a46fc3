"""Programs to tune, some of which are built as several kernels: these are tuned in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from ..target import Target
from ..tir.ir import Func
from ..tuning_db.values import SessionStatus
from .model.target_model import Roofline
from .result import Spent, TuneResult
from .rules.division import pieces_of
from .session.records import workload_record
from .tasks import Task

T = TypeVar("T")


class Kernels:
    """The kernels of programs: `tasks` and their `weights`.

    Where a program is one kernel, its task stays as it is, and so do all where they are kernels
    already. What is alike among the kernels of several is tuned once.
    """

    def __init__(
        self, programs: Sequence[Task], weights: Sequence[float], target: Target, *, divide: bool
    ) -> None:
        self.tasks: list[Task] = []
        self.weights: list[float] = []
        self._programs = programs
        self._places: list[Mapping[str, int] | int] = []
        """Of each program the task, or those of its kernels by name."""
        self._known: dict[str, int] = {}
        self._pieces = set[int]()
        for program, weight in zip(programs, weights, strict=True):
            own = program.user_sketches is not None or program.beside
            pieces = () if own or not divide else pieces_of(program.func, target)
            if pieces:
                added = {p.func.name: self._add(Task(p.func, None), weight, True) for p in pieces}
                self._pieces |= set(added.values())
                self._places.append(added)
            else:
                self._places.append(self._add(program, weight, not divide))

    def _add(self, task: Task, weight: float, piece: bool) -> int:
        """The place of a task, which is new unless it is a piece, or another is, and alike."""
        new = len(self.tasks)
        own = task.user_sketches is not None or task.beside
        place = new if own else self._known.setdefault(workload_record(task.func).id, new)
        if place < new and (piece or place in self._pieces):
            self.weights[place] += weight
            return place
        self.tasks.append(task)
        self.weights.append(weight)
        return new

    def of_programs(self, found: Sequence[TuneResult]) -> list[TuneResult]:
        """The results of the programs, of those of the tasks."""
        return [
            found[places]
            if isinstance(places, int)
            else together(program.func, {name: found[n] for name, n in places.items()})
            for program, places in zip(self._programs, self._places, strict=True)
        ]

    def alone(self, found: Sequence[T]) -> list[T | None]:
        """What was found of the tasks by program; `None` of those that are several kernels."""
        known = dict(enumerate(found))
        return [known.get(n) if isinstance(n, int) else None for n in self._places]


def together(func: Func, kernels: Mapping[str, TuneResult]) -> TuneResult:
    """The result of a program, of those of its kernels by name."""
    results = [*{id(result): result for result in kernels.values()}.values()]
    workload = workload_record(func)
    spent = [vars(result.spent) for result in results]
    rooflines = [result.roofline for result in kernels.values()]
    return TuneResult(
        workload=f"{workload.name} {workload.shape}",
        target=results[0].target,
        flops=workload.flops,
        best=None,
        trials=sum(result.trials for result in results),
        outcomes=sum((Counter(result.outcomes) for result in results), Counter()),
        error=next((r.error for r in results if r.error is not None), None),
        status=max((r.status for r in results), key=lambda s: s is SessionStatus.INTERRUPTED),
        reason=results[0].reason,
        session="",
        seconds=sum(result.seconds for result in results),
        spent=Spent(**{part: sum(seconds[part] for seconds in spent) for part in spent[0]}),
        roofline=Roofline(sum(r.compute for r in rooflines), sum(r.memory for r in rooflines)),
        drift=(),
        gains={},
        noise=None,
        earlier_trials=sum(result.earlier_trials for result in results),
        kernels=kernels,
    )
