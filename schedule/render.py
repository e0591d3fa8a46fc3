"""What the error of a refused step shows when it is read: the step, the program, the place."""

from __future__ import annotations

from functools import partial

from ..errors import ScheduleError
from ..tir.ir import Func, Label, Var
from ..tir.printer import func_text
from .find import find_path
from .trace import Step, step_text


def explain(
    error: ScheduleError, step: Step, history: tuple[Func, ...], steps: tuple[Step, ...]
) -> None:
    """Give `error` what its rendering needs; nothing is formatted before it is read."""
    error.data.setdefault("primitive", step.op)
    error.data.setdefault("func", history[-1])
    error.data.setdefault("step", len(steps))
    error.detail = partial(details, error, step, history, steps)


def details(
    error: ScheduleError, step: Step, history: tuple[Func, ...], steps: tuple[Step, ...]
) -> str:
    """The lines below the message of `error`."""
    lines = [f"  refused: step {len(steps)}, {step_text(step, ())}"]
    dead = error.data.get("dead")
    if dead is not None:
        lines.append("  " + _end_of(dead, history, steps))
    lines.append("  program:")
    text = func_text(history[-1], error.data.get("at"))
    lines.extend("    " + line for line in text.split("\n"))
    return "\n".join(lines)


def _end_of(handle: Var | Label, history: tuple[Func, ...], steps: tuple[Step, ...]) -> str:
    """Which step a handle did not survive."""
    what = "loop" if type(handle) is Var else "block"
    for k in range(len(history) - 1, 0, -1):
        if find_path(history[k - 1].body, handle) is not None:
            return f"{what} {handle.name} ended with step {k - 1}, {step_text(steps[k - 1], ())}"
    return f"{what} {handle.name} was never in this program"
