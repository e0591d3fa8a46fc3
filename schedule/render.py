"""What the error of a refused step shows when it is read: the step, the program, the place."""

from __future__ import annotations

from functools import partial

from ..errors import ScheduleError
from ..tir.ir import Func, Label, Var
from ..tir.printer import func_text
from .find import find_path
from .trace import Step, step_text

History = tuple[tuple[Func, ...], ...]
"""The programs of a schedule before each of its steps, and after the last."""


def explain(
    error: ScheduleError, step: Step, history: History, at: int, steps: tuple[Step, ...]
) -> None:
    """Give `error` what its rendering needs; nothing is formatted before it is read.

    `at` is the position of the program that the step was asked of.
    """
    data, func = error.data, history[-1][at]
    data.setdefault("primitive", step.op)
    data.setdefault("given", step.arguments)
    data.setdefault("func", func)
    data.setdefault("step", len(steps))
    data.setdefault("program", partial(func_text, func, data.get("at")))
    if "dead" in data:
        data["ended"] = partial(_end_of, data["dead"], history, at, steps)
    error.detail = partial(details, error, step, len(steps))


def details(error: ScheduleError, step: Step, number: int) -> str:
    """The lines below the message of `error`."""
    lines = [f"  refused: step {number}, {step_text(step, ())}"]
    if "ended" in error.data:
        lines.append("  " + error.data["ended"]())
    lines.append("  program:")
    lines.extend("    " + line for line in error.data["program"]().split("\n"))
    return "\n".join(lines)


def _end_of(handle: Var | Label, history: History, at: int, steps: tuple[Step, ...]) -> str:
    """Which step made a handle, and which one it did not survive."""
    what = f"{'loop' if type(handle) is Var else 'block'} {handle.name}"
    there = [k for k, fs in enumerate(history) if find_path(fs[at].body, handle) is not None]
    if not there:
        return f"{what} was never in this program"
    first, last = there[0], there[-1]
    made = f"was made by step {first - 1} and " if first else ""
    if last == len(steps):
        return f"{what} {made}is used up by this step, which needs it twice"
    return f"{what} {made}ended with step {last}, {step_text(steps[last], ())}"
