"""The argument of `tune`: a program, sketches of one, or several programs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ..base.errors import TuningError
from ..schedule import Schedule, Trace
from ..target import Target
from ..tir.equality import structural_equal
from ..tir.instruction_set import products_of
from ..tir.ir import Func
from ..tir.program import program_hint, shown
from ..tuning_db.values import SessionStatus
from .model.target_model import Roofline
from .records import workload_record
from .result import Spent, TuneResult
from .rules.division import pieces_of
from .rules.user_rules import SKETCH_RULES, noted_refusals
from .search.sketch import Sketch, sketches


class Task(NamedTuple):
    """A program to tune, and the user's sketches of it if only these are searched.

    `beside` are the user's concrete schedules as sketches, which are searched beside those by
    rules. `first` are the traces of concrete ones.
    """

    func: Func
    user_sketches: list[Sketch] | None
    beside: Sequence[Sketch] = ()
    first: Sequence[Trace] = ()


class Prepared(NamedTuple):
    """The sketches of a task, if they were made; and why users' rules (by name) were refused."""

    sketches: Sequence[Sketch] | None
    refusals: Mapping[str, str]


def tasks(given: Any) -> tuple[list[Task], bool]:
    """The programs to tune, and whether the argument was a sequence of programs.

    Raises `TuningError` for anything but a program, several, or schedules of one.
    """
    if isinstance(given, Func):
        return [Task(given, None)], False
    if isinstance(given, Sequence) and any(isinstance(f, Func) for f in given):
        return [Task(func, None) for func in _several(given)], True
    schedules = _schedules(given)
    func = schedules[0].original
    found = [
        Sketch.of_concrete(s, f"own{n}") if s.space is None else Sketch.of(s, f"own{n}")
        for n, s in enumerate(schedules)
    ]
    for sketch in found:
        _require_importable(sketch)
    if any(s.space is not None for s in schedules):
        concrete = [s.trace for s in schedules if s.space is None]
        return [Task(func, found, first=concrete)], False
    return [Task(func, None, found, [s.trace for s in schedules])], False


def prepared_sketches(task: Task, target: Target, *, inexact: bool) -> Prepared:
    """The sketches of a task, if they may have steps or instructions of the user's own.

    Candidates that exceed a limit of the target are excluded.

    Raises `TuningError` for those that builders cannot import, and for the user's own sketches with
    inexact steps unless `inexact` allows them.
    """
    for sketch in (*(task.user_sketches or ()), *task.beside):
        if sketch.trace.inexact and not inexact:
            raise TuningError(
                "{0} has inexact steps ({1}), and no tolerance was given",
                sketch.name,
                ", ".join(sketch.trace.inexact),
                hint="say what error is accepted: tune(..., tolerance=1e-3)",
            )
    own = any(instruction.home is not None for instruction, *_ in products_of(target))
    if task.user_sketches is not None:
        return Prepared([s.within(target) for s in task.user_sketches], {})
    if not (SKETCH_RULES or own):
        return Prepared(None, {})
    with noted_refusals() as refusals:
        prepared = sketches(task.func, target, inexact=inexact)
    for sketch in prepared:
        _require_importable(sketch)
    return Prepared(prepared, refusals)


def weights_of(weights: Sequence[float] | None, count: int) -> list[float]:
    """A weight for each of `count` programs. Raises `TuningError` for what is none."""
    numbers: list[Any] = [1.0] * count if weights is None else list(weights)
    if len(numbers) != count:
        raise TuningError("{0} weights for {1} programs, expected one each", len(numbers), count)
    for weight in numbers:
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not (number and weight > 0 and math.isfinite(weight)):
            raise TuningError("weights: expected numbers of more than 0, found {0!r}", weight)
    return numbers


def _several(funcs: Any) -> list[Func]:
    for func in funcs:
        if not isinstance(func, Func):
            raise TuningError(
                "expected programs (Func) that share a budget, found {0!r} among them",
                type(func).__name__,
                hint="schedules of one program are tuned by themselves",
            )
    return list(funcs)


def _schedules(given: Any) -> Sequence[Schedule]:
    """The user's schedules, of one program."""
    schedules: Any = [given] if isinstance(given, Schedule) else given
    several = isinstance(schedules, Sequence) and all(isinstance(s, Schedule) for s in schedules)
    if not several or not schedules:
        raise TuningError(
            "expected a program (Func) to tune, or schedules of one, found {0}",
            shown(given),
            hint=program_hint(given, "tw.tune"),
        )
    for schedule in schedules:
        if len(schedule.funcs) > 1:
            raise TuningError(
                "a schedule of several programs ({0}); a session tunes one",
                ", ".join(schedule.funcs),
                hint="tune([f, g]) tunes several that share a budget",
            )
        if not structural_equal(schedule.original, schedules[0].original):
            raise TuningError(
                "schedules of two programs, {0} and {1}; a session tunes one",
                schedules[0].original.name,
                schedule.original.name,
            )
    return list(schedules)


def _require_importable(sketch: Sketch) -> None:
    if "__main__" in sketch.modules:
        raise TuningError(
            "{0} takes steps or instructions that this script or notebook defines, which the "
            "processes that build cannot import",
            sketch.name,
            hint="put them into a module, and import that here",
        )


# Programs to tune, some of which are built as several kernels: these are tuned in their place.

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
