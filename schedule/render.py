"""Render the error of a refused step: the step, the program, and the place in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ..base.errors import ScheduleError
from ..tir.ir import Func, Label, Var
from ..tir.printer import MARK, func_text
from .find import blocks_in, called, find_path, loops_in, printed_names
from .require import HandleName
from .step_arguments import Argument, Derived, Record, Ref
from .trace import Step, step_text

MOST_LINES = 20
"""Of a message: longer programs are folded."""
LEAST_LINES = 8
"""Of a program that is folded."""

History = tuple[tuple[Func, ...], ...]
"""The programs of a schedule before each of its steps, and after the last."""


def explain(
    error: ScheduleError,
    step: Step,
    history: History,
    at: int,
    steps: tuple[Step, ...],
    outputs: tuple[Any, ...],
) -> None:
    """Attach to `error` what its rendering needs; nothing is formatted before it is read.

    `at` is the position of the program to which the step was applied, `outputs` are the results of
    the earlier `steps`.
    """
    # What refers to the error would keep it, and the frames that raised it.
    data, arguments = error.data, error.arguments

    def about() -> dict[str, Any]:
        programs = tuple([funcs[at] for funcs in history])
        parts: dict[str, Any] = {
            "asked": partial(step_text, step, ()),
            "primitive": step.op,
            "given": step.arguments,
            "handles": partial(_names, step, outputs, programs[-1]),
            "names": partial(_told_apart, arguments, step, outputs, programs[-1]),
            "func": programs[-1],
            "step": len(steps),
            "program": partial(func_text, programs[-1], data.get("at")),
        }
        if "dead" in data:
            parts["ended"] = partial(_end_of, data["dead"], programs, steps)
        elif "named" in data:
            parts["ended"] = partial(_end_of_name, data["named"], programs, steps)
        return parts

    error.about, error.detail = about, _details


def _details(error: ScheduleError) -> str:
    """The lines below the message of `error`."""
    names = ", ".join(f"{ref}: {name}" for ref, name in error.handles.items())
    lines = [f"  refused: step {error.step}, {error.asked}" + (f"  # {names}" if names else "")]
    if error.ended is not None:
        lines.append(f"  {error.ended}")
    lines.append("  program:")
    above = 1 + (error.example is not None) + (error.hint is not None) + len(lines)
    shown = _folded(str(error.program).split("\n"), max(MOST_LINES - above, LEAST_LINES))
    return "\n".join([*lines, *(f"    {line}" for line in shown)])


def _folded(lines: list[str], most: int) -> list[str]:
    """A program in at most so many lines: those around the marked one, else the first."""
    if len(lines) <= most:
        return lines
    marked = next((n for n, line in enumerate(lines) if line.endswith(MARK)), 0)
    first = min(max(0, marked - most * 2 // 3), len(lines) - most)
    end = first + most
    if first:
        first += 1
    if end < len(lines):
        end -= 1
    top = [f"... {first} lines"] if first else []
    rest = f"... {len(lines) - end} lines; `program` of the error has all"
    return [*top, *lines[first:end], *([rest] if end < len(lines) else [])]


def _names(step: Step, outputs: Sequence[Any], func: Func) -> dict[str, str]:
    """The names of loops and blocks, and the integers, that references of a step stand for."""
    handles = _handles_of(step, outputs)
    names = _told_apart((), step, outputs, func)
    return {repr(r): names.get(id(v), str(getattr(v, "name", v))) for r, v in handles.items()}


def _told_apart(
    arguments: Sequence[Any], step: Step, outputs: Sequence[Any], func: Func
) -> dict[int, str]:
    """The names of the loops that an error and its step are about, by their identity.

    Of several, those that the program has more than one of come with a block in them.
    """
    named = [a.handle for a in arguments if isinstance(a, HandleName)]
    values = [getattr(v, "loop", v) for v in _handles_of(step, outputs).values()]
    loops = dict.fromkeys(v for v in (*named, *values) if type(v) is Var)
    if len(loops) > 1:
        return {id(v): called(func, v) for v in loops}
    printed = printed_names(func)
    return {id(v): printed.get(v, v.name) for v in loops}


def _handles_of(step: Step, outputs: Sequence[Any]) -> dict[Ref, Any]:
    """What the references of a step stand for."""
    refs = dict.fromkeys(ref for _, value in step.arguments for ref in _references(value))
    return {ref: outputs[ref.index] for ref in refs if ref.index < len(outputs)}


def _references(value: Argument) -> Iterator[Ref]:
    match value:
        case Ref():
            yield value
        case Derived(args=parts) | tuple(parts):
            for part in parts:
                yield from _references(part)
        case Record(items=items):
            for _, part in items:
                yield from _references(part)
        case _:
            pass


def _end_of(handle: Var | Label, programs: tuple[Func, ...], steps: tuple[Step, ...]) -> str:
    """The step that created a handle, the step that consumed it, and the replacements."""
    what = f"{'loop' if type(handle) is Var else 'block'} {handle.name}"
    there = _programs_with(handle, programs)
    if not there:
        return f"{what} was never in this program"
    first, last = there[0], there[-1]
    made = f"was made by step {first - 1} and " if first else ""
    if last == len(steps):
        return f"{what} {made}is used up by this step, which needs it twice"
    heirs = ", ".join(h.name for h in _made(type(handle), programs[last], programs[last + 1]))
    rest = f"; in its place: {heirs}" if heirs else ""
    return f"{what} {made}ended with step {last}, {step_text(steps[last], ())}{rest}"


def _end_of_name(name: str, programs: tuple[Func, ...], steps: tuple[Step, ...]) -> str | None:
    """The same for the last block of that name, if there was one."""
    for func in reversed(programs):
        for block in blocks_in(func.body):
            if block.label.name == name:
                return _end_of(block.label, programs, steps)
    return None


def _programs_with(handle: Var | Label, programs: Sequence[Func]) -> list[int]:
    return [k for k, func in enumerate(programs) if find_path(func.body, handle) is not None]


def _made(kind: type, before: Func, after: Func) -> list[Var | Label]:
    """The handles of that kind that are new."""
    old = set(_handles(kind, before))
    return [h for h in _handles(kind, after) if h not in old]


def _handles(kind: type, func: Func) -> list[Var | Label]:
    if kind is Var:
        return [s.var for s in loops_in(func.body)]
    return [b.label for b in blocks_in(func.body)]
