"""The argument of `tune`: a program, sketches of one, or several programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..base.errors import TuningError
from ..schedule import Schedule, Trace
from ..target import Target
from ..tir.equality import structural_equal
from ..tir.instruction_set import products_of
from ..tir.ir import Func
from ..tir.program import program_hint, shown
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
