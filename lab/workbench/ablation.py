"""What each step of a schedule is worth: times without it, and times after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from json import dumps
from typing import Any, NamedTuple, TypeAlias

from ...autotune.search.drawing import model_or_none
from ...base.errors import BuildError, ScheduleError, TuningError
from ...schedule import Schedule, Trace
from ...schedule.primitive import find_primitive
from ...schedule.step_arguments import Argument, Derived, Lambda, Record, Ref, evaluate
from ...target import Target
from ...tir.ir import Func
from ...tir.printer import loop_names
from .moves import call_text
from .slider_steps import flat

Seconds: TypeAlias = Callable[[Schedule], float]
"""The time of a call of a scheduled program, which is built as it is."""


_REFUSALS = (ScheduleError, BuildError)
"""What a schedule with a step left out may raise."""


class Ablated(NamedTuple):
    """A step as people write it, and the time of the schedule without it, or of the steps up to it.

    `along` are the steps that need it and are left out with it. Without `seconds`, the rest of the
    schedule is refused or does not compile, for a `reason`.
    """

    step: str
    seconds: float | None
    along: int = 0
    reason: str | None = None


def estimate(target: Target) -> Seconds:
    """The analytic estimate for a resolved target.

    Raises `TuningError` if there is none for its kind.
    """
    model = model_or_none(target)
    if model is None:
        raise TuningError(
            "there is no estimate for {0}", target, hint="give a function seconds= that measures"
        )
    return lambda sch: model.estimate(sch.func, target).seconds


def without_each(func: Func, trace: Trace, seconds: Seconds) -> Iterator[Ablated]:
    """The schedule without each of the steps that change the program, and without what needs it.

    Raises `ScheduleError` if the trace does not apply to the program.
    """
    data = trace.to_data()["steps"]
    lines = step_texts(func, trace)
    for number in _changing(func, trace):
        left_out = _dependents(data, number)
        rest = [step for k, step in enumerate(data) if k not in left_out]
        line, along = lines[number], len(left_out) - 1
        try:
            shorter = Trace.from_json(dumps({**trace.to_data(), "steps": _renumbered(rest)}))
            yield Ablated(line, seconds(shorter.apply(func)), along)
        except _REFUSALS as error:
            yield Ablated(line, None, along, error.first_line)


def prefixes(func: Func, trace: Trace, seconds: Seconds) -> Iterator[Ablated]:
    """The program as written, and after each step that changes it.

    Raises `ScheduleError` if the trace does not apply to the program.
    """
    yield Ablated("as written", seconds(Schedule(func)))
    lines = step_texts(func, trace)
    for number in _changing(func, trace):
        try:
            yield Ablated(lines[number], seconds(Trace(trace.steps[: number + 1]).apply(func)))
        except _REFUSALS as error:
            yield Ablated(lines[number], None, 0, error.first_line)


def _changing(func: Func, trace: Trace) -> list[int]:
    """The numbers of the steps that change the program."""
    programs = pairwise(trace.apply(func).history)
    return [n for n, (before, after) in enumerate(programs) if before != after]


def _dependents(steps: list[dict[str, Any]], number: int) -> set[int]:
    """The step of that number, and those that need its results or those of such steps."""
    gone, lost = {number}, set(steps[number].get("out", ()))
    for k in range(number + 1, len(steps)):
        if lost & set(_references(steps[k]["args"])):
            gone.add(k)
            lost |= set(steps[k].get("out", ()))
    return gone


def _references(value: Any) -> Iterator[str]:
    """The names of results that arguments in JSON refer to."""
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        if value.keys() == {"v"}:
            yield value["v"]
        else:
            yield from _references(list(value.values()))


def _renumbered(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps whose results are numbered from 0 without gaps, as traces have them."""
    names: dict[str, str] = {}
    renumbered = []
    for step in steps:
        arguments = _renamed(step["args"], names)
        for old in step.get("out", ()):
            names[old] = f"{old[0]}{len(names)}"
        out = {"out": [names[old] for old in step["out"]]} if "out" in step else {}
        renumbered.append({**step, "args": arguments, **out})
    return renumbered


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        if value.keys() == {"v"}:
            return {"v": names[value["v"]]}
        return {key: _renamed(item, names) for key, item in value.items()}
    return value


# The steps of a trace as people write them, with the names in the text of the program.


class _Source:
    """A text of Python that stands for itself."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def step_texts(func: Func, trace: Trace) -> list[str]:
    """The steps, each with the names and numbers at it: `sch.split(i, factors=[None, 8])`.

    Raises `ScheduleError` if the trace does not apply to the program.
    """
    replayed, handles, texts = Schedule(func), list[Any](), list[str]()
    for step in trace.steps:
        bound = {name: _resolved(value, handles) for name, value in step.arguments}
        texts.append(call_text(find_primitive(step.op), bound, loop_names(replayed.func)))
        handles += flat(replayed.replay(step))
    return texts


def _resolved(value: Argument, handles: Sequence[Any]) -> Any:
    """What an argument stands for: a handle, a number, a text."""
    match value:
        case Ref():
            handle = handles[value.index]
            return int(handle) if isinstance(handle, int) else handle
        case Derived():
            return evaluate(value, lambda ref: int(handles[ref.index]))
        case tuple():
            return tuple(_resolved(v, handles) for v in value)
        case Record():
            return {name: _resolved(v, handles) for name, v in value.items}
        case Lambda():
            return _Source(value.text)
        case _:
            return value
