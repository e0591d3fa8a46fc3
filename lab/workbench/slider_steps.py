"""The numbers of a schedule that sliders move, and its steps with other numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, get_args, get_origin

from ...schedule import Schedule, Trace
from ...schedule.find import blocks_in, find_path
from ...schedule.primitive import find_primitive
from ...schedule.step_arguments import Argument, Derived, Lambda, Record, Ref, checker
from ...schedule.trace import Step
from ...tir.ir import For, Func, Var
from ...tir.printer import loop_names

_LARGEST = 4096
_SMALL = 16


@dataclass(frozen=True)
class Slider:
    """A number of a schedule that can be another one of `values`, which are ascending.

    It is item `item` of argument `argument` of a step, or of the decisions of a step that samples,
    whose `argument` is empty and whose output is `drawn`.
    """

    step: int
    argument: str
    item: int | None
    value: int
    drawn: Ref | None = None
    values: tuple[int, ...] = ()
    label: str = ""

    def place(self) -> tuple[int, int]:
        """Where its sketch decides it, among the others."""
        return self.step, self.item or 0


def opened_trace(trace: Trace, sliders: Sequence[Slider]) -> Trace:
    """A trace in which sampling steps draw the numbers of sliders; they decide for the present
    ones."""
    steps: list[Step] = []
    places: dict[int, int] = {}
    old = new = 0
    for number, step in enumerate(trace.steps):
        moved = {n: _renumbered(v, places) for n, v in step.arguments}
        for slider in (s for s in sliders if s.step == number and s.argument):
            drawn = (("candidates", slider.values),)
            steps.append(Step("sample_categorical", drawn, "t", (slider.value,)))
            moved[slider.argument] = _replaced(moved[slider.argument], slider.item, Ref("t", new))
            new += 1
        steps.append(replace(step, arguments=tuple(moved.items())))
        for _ in step.outputs:
            places[old] = new
            old, new = old + 1, new + 1
    return Trace(tuple(steps))


def with_values(trace: Trace, sliders: Sequence[Slider], row: Sequence[int]) -> Trace:
    steps = list(trace.steps)
    for slider, value in zip(sliders, row, strict=True):
        step = steps[slider.step]
        if slider.argument:
            arguments = dict(step.arguments)
            arguments[slider.argument] = _replaced(arguments[slider.argument], slider.item, value)
            steps[slider.step] = replace(step, arguments=tuple(arguments.items()))
        else:
            decision = _replaced(step.decision, slider.item, value)
            steps[slider.step] = replace(step, decision=decision)
    return Trace(tuple(steps))


def _replaced(value: Argument, item: int | None, by: object) -> Any:
    return by if item is None else (*value[:item], by, *value[item + 1 :])


def _renumbered(value: Argument, places: dict[int, int]) -> Argument:
    """An argument whose references are to the outputs at other places."""
    match value:
        case Ref():
            return Ref(value.kind, places[value.index])
        case Derived():
            return Derived(value.op, tuple(_renumbered(a, places) for a in value.args))
        case Record():
            return Record(tuple((k, _renumbered(v, places)) for k, v in value.items))
        case Lambda():
            return value
        case tuple():
            return tuple(_renumbered(v, places) for v in value)
        case _:
            return value


def sliders_of(func: Func, trace: Trace) -> list[Slider]:
    """The numbers of a schedule, in the order in which its sketch decides them.

    No two have one label. Raises `ScheduleError` if the trace does not apply to the program.
    """
    replayed = Schedule(func)
    handles, sliders = list[Any](), list[Slider]()
    funcs: list[Func] = []
    for number, step in enumerate(trace.steps):
        before, count = replayed.func, len(handles)
        funcs.append(before)
        handles += flat(replayed.replay(step))
        for item, value in enumerate(step.decision):
            if value is not None:
                sliders.append(Slider(number, "", item, value, Ref("t", count + item)))
        for argument, place, size in [] if step.decision else _numbers(step):
            values = _values(size, _largest(step, handles, before))
            sliders.append(Slider(number, argument, place, size, None, values))
    uses = [_use_of(s, trace) for s in sliders]
    labels = [_label(trace, funcs, handles, use) for use in uses]
    for more in ({"blocks": True}, {"blocks": True, "constants": True}):
        labels = [
            _label(trace, funcs, handles, use, **more) if labels.count(label) > 1 else label
            for use, label in zip(uses, labels, strict=True)
        ]
    return [replace(s, label=label) for s, label in zip(sliders, _unique(labels), strict=True)]


def _unique(labels: Sequence[str]) -> Iterator[str]:
    """Labels, of which the second of a kind ends in `#2`."""
    seen = Counter[str]()
    for label in labels:
        seen[label] += 1
        yield label if seen[label] == 1 else f"{label} #{seen[label]}"


_Use: TypeAlias = tuple[int, str, int | None]
"""A step, an argument of it, and an item of that."""


def _use_of(slider: Slider, trace: Trace) -> _Use:
    """What has a number; of one that was sampled, what is the first to take it."""
    if slider.drawn is None:
        return slider.step, slider.argument, slider.item
    for number, step in enumerate(trace.steps):
        for name, value in step.arguments:
            if type(value) is tuple:
                item = next((n for n, part in enumerate(value) if _uses(part, slider.drawn)), None)
                if item is not None:
                    return number, name, item
            elif _uses(value, slider.drawn):
                return number, name, None
    return slider.step, "", slider.item


def _uses(value: Argument, drawn: Ref) -> bool:
    """Whether an argument is a sampled number, or is computed with it."""
    if type(value) is Derived:
        return any(_uses(part, drawn) for part in value.args)
    return bool(value == drawn)


def flat(result: Any) -> list[Any]:
    """The outputs in the result of a step, in order."""
    if isinstance(result, tuple):
        return [v for part in result for v in flat(part)]
    return [] if result is None else [result]


def _label(
    trace: Trace,
    funcs: Sequence[Func],
    handles: Sequence[Any],
    use: _Use,
    *,
    blocks: bool = False,
    constants: bool = False,
) -> str:
    """A number in words: `split(i) factors[1]`, with the names in the text of the program that the
    step is taken of. Steps beside each other may have one name: `blocks` are those inside loops,
    `split(i of C) factors[1]`, and `constants` are arguments before the number, `pack(C, 1)
    factors[0]`."""
    number, argument, item = use
    step, func = trace.steps[number], funcs[number]
    names, said = loop_names(func), list[str]()
    before = True
    for name, value in step.arguments:
        before = before and name != argument
        for part in value if type(value) is tuple else (value,):
            if type(part) is Ref and part.kind in "lb":
                handle = handles[part.index]
                inside = _inside(handle, func) if blocks else ""
                said.append(names.get(handle, handle.name) + inside)
            elif constants and before and type(part) in (int, str):
                said.append(repr(part))
    where = f"{step.op}({', '.join(said)})"
    return " ".join(filter(None, [where, argument])) + ("" if item is None else f"[{item}]")


def _inside(handle: Any, func: Func) -> str:
    """The first block in a loop; nothing for a block."""
    path = find_path(func.body, handle) if isinstance(handle, Var) else None
    return f" of {next(blocks_in(path[-1])).label.name}" if path else ""


def _numbers(step: Step) -> Iterator[tuple[str, int | None, int]]:
    """The numbers of a step that may be open: arguments, or items of them."""
    types = find_primitive(step.op).types
    for name, value in step.arguments:
        if type(value) is int and value > 0 and checker(types[name])(_OPEN):
            yield name, None, value
        elif type(value) is tuple and _is_open(types[name]):
            for n, part in enumerate(value):
                if type(part) is int and part > 0:
                    yield name, n, part


_OPEN = Ref("t", 0)


def _is_open(hint: Any) -> bool:
    """Whether the items of a sequence may be sampled."""
    parts = get_args(hint)
    return get_origin(hint) is not None and len(parts) > 0 and checker(hint)((_OPEN,))


def _largest(step: Step, handles: Sequence[Any], func: Func) -> int:
    """The largest extent of the loops that a step is about."""
    refs = [r for _, v in step.arguments for r in (v if type(v) is tuple else (v,))]
    extents = [1]
    for ref in refs:
        if type(ref) is not Ref or ref.kind not in "lb":
            continue
        handle = handles[ref.index]
        path = find_path(func.body, getattr(handle, "loop", handle)) or ()
        loops = path[-1:] if ref.kind == "l" else path
        extents += [s.extent for s in loops if type(s) is For and isinstance(s.extent, int)]
    return min(max(extents), _LARGEST)


def _values(value: int, most: int) -> tuple[int, ...]:
    """Divisors of an extent, powers of two and small numbers up to it, and the present value."""
    values = {d for d in range(1, most + 1) if most % d == 0 or d & (d - 1) == 0 or d <= _SMALL}
    return tuple(sorted({*values, value}))
