"""The steps of a trace as people write them, with the names in the text of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...schedule import Schedule, Trace
from ...schedule.primitive import find_primitive
from ...schedule.step_arguments import Argument, Derived, Lambda, Record, Ref, evaluate
from ...tir.ir import Func
from ...tir.printer import loop_names
from ..workbench.moves import call_text
from ..workbench.slider_steps import flat


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
