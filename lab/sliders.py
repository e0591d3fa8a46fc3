"""Sliders: the sizes of a version as open decisions, and what other values would give.

The sizes that people move are the numbers that steps take as a `Dim` (factors of `split` and
`tile`, say), and what sampling steps drew. A symbolic schedule is made of them once: from then on a
row of values is a candidate of a sketch, and its figures are those that the search computes. No
program is scheduled or compiled for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, get_args, get_origin

import numpy as np

from ..autotune.model.cpu.footprints import Evaluated
from ..autotune.model.loop_footprints import loop_bytes
from ..autotune.model.profile import profile
from ..autotune.model.target_model import Estimator, TargetModel
from ..autotune.search.candidates import Rows, Rowspace
from ..autotune.search.drawing import model_or_none
from ..autotune.search.sketch import Sketch
from ..errors import ScheduleError, TuningError
from ..schedule import Schedule, Trace
from ..schedule.find import blocks_in, find_path
from ..schedule.primitive import find_primitive
from ..schedule.step_arguments import Argument, Derived, Lambda, Record, Ref, checker
from ..schedule.trace import Step
from ..target import Target
from ..tir.columns import Program, Tape
from ..tir.evaluate import evaluate
from ..tir.ir import Buffer, Expr, For, Func, Var
from ..tir.printer import loop_names
from .listing import held_in
from .program_tree import Data, held_data
from .versions import LabError

MOST = 24
"""Sliders of a version."""
_LARGEST = 4096
_CHOICES = 96
"""Values of a slider, about."""
_SMALL = 16
_NAME = "sliders"
Refusal: TypeAlias = Callable[[ScheduleError], Data]


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


class Sliders:
    """The sliders of a concrete schedule. Raises `LabError` where it has no numbers to move.

    `closed` has the labels of those that cannot be open, with the reasons.
    """

    def __init__(self, schedule: Schedule, target: Target) -> None:
        self._schedule, self._target = schedule, target
        self._model: TargetModel | None = model_or_none(target)
        sliders = _sliders(schedule)
        if not sliders:
            raise LabError(
                "this version has no sizes to move",
                hint="split or tile a loop first: their factors become sliders",
            )
        self.closed: list[tuple[str, str]] = []
        kept, self.sketch = self._opened(sliders)
        values = map(self.sketch.space.values.__getitem__, self.sketch.variables)
        self.sliders = [
            replace(s, values=_thinned(v, s.value)) for s, v in zip(kept, values, strict=True)
        ]

    @property
    def row(self) -> list[int]:
        """The values that the version has."""
        return [s.value for s in self.sliders]

    def figures(self, values: object, refusal: Refusal) -> Data:
        """What a row of values gives, and each slider with the others as they are.

        `valid` is whether the steps are legal; `error` has the condition that breaks. Raises
        `LabError` for what is no row.
        """
        row = self._row(values)
        around = np.concatenate([row, *(self._varied(row, n) for n in range(len(self.sliders)))])
        valid = self._space.check(around)
        found: Data = {"values": row[0].tolist(), "valid": bool(valid[0])}
        if not valid[0]:
            found["error"] = self._broken(row[0].tolist(), refusal)
        seconds: list[float | None] = [None] * len(around)
        if self._estimator is not None and self._model is not None:
            estimate = self._estimator(around)
            seconds = estimate.seconds.tolist()
            found["predicted"] = seconds[0] if valid[0] else None
            found["figures"] = [
                {"name": f.name, "value": f.value, "unit": f.unit, "of": f.of, "exceeds": f.exceeds}
                for f in self._model.figures(estimate.features[0], self._target)
            ]
            found["loops"] = self._loops(row)
        found["around"] = self._around(valid.tolist(), seconds)
        return found

    def changes(self, values: object) -> str:
        """How a row differs from that of the version, in words."""
        row = self._row(values)[0].tolist()
        changed = [
            f"{s.label} = {v}" for s, v in zip(self.sliders, row, strict=True) if v != s.value
        ]
        if not changed:
            raise LabError("these are the sizes that the version has")
        return ", ".join(changed)

    def schedule(self, values: object) -> Schedule:
        """The schedule with other values. Raises `ScheduleError` if they are refused."""
        row = self._row(values)[0].tolist()
        return _with_values(self._schedule.trace, self.sliders, row).apply(self._schedule.original)

    def data(self) -> Data:
        """The sliders with their values, and what cannot be moved."""
        return {
            "sliders": [
                {"label": s.label, "step": s.step, "value": s.value, "values": list(s.values)}
                for s in self.sliders
            ],
            "closed": [{"label": label, "why": why} for label, why in self.closed],
        }

    @cached_property
    def _space(self) -> Rowspace:
        return Rowspace(self.sketch)

    @cached_property
    def _estimator(self) -> Estimator | None:
        if self._model is None:
            return None
        return self._model.estimator(
            profile(self.sketch.func, self.sketch.space.bounds), self._target
        )

    @cached_property
    def _touched(self) -> tuple[list[tuple[Var, Buffer]], Program]:
        """The buffers that each loop touches, and what computes how many bytes of them."""
        tape = Tape()
        data = Evaluated(profile(self.sketch.func, self.sketch.space.bounds), tape)
        numbers = {
            (loop, buffer): number
            for loop, buffers in loop_bytes(data).items()
            for buffer, number in buffers.items()
        }
        return list(numbers), Program(tape, list(numbers.values()))

    def _loops(self, row: Rows) -> list[Data]:
        """What an iteration of each loop touches with a row of values."""
        places, program = self._touched
        (_, numbers), *_ = program.run(np.ascontiguousarray(row.T), 1)
        touched: dict[Var, dict[Buffer, int]] = {}
        for (loop, buffer), number in zip(places, numbers, strict=True):
            touched.setdefault(loop, {})[buffer] = int(np.max(number))
        names = loop_names(self.sketch.func)
        return [
            {
                "loop": name,
                "held": [held_data(h) for h in held_in(touched[loop], {}, self._target)],
            }
            for loop, name in names.items()
            if loop in touched
        ]

    def _opened(self, sliders: list[Slider]) -> tuple[list[Slider], Sketch]:
        """As many sliders as can be open at once, and the sketch of them.

        What was sampled is open in any case. Raises `LabError` where no sketch can be made of that.
        """
        numbers = [s for s in sliders if s.argument]
        sampled = [s for s in sliders if not s.argument]
        some = sorted([*sampled, *numbers[:MOST]], key=Slider.place)
        self.closed += [(s.label, f"a version has at most {MOST} sliders") for s in numbers[MOST:]]
        with suppress(TuningError, ScheduleError):
            return some, self._sketch(some)
        kept, sketch, why = sampled, None, ""
        for more in [[], *([n] for n in numbers[:MOST])]:
            trial = sorted([*kept, *more], key=Slider.place)
            if not trial:
                continue
            try:
                sketch = self._sketch(trial)
            except (TuningError, ScheduleError) as error:
                why = str(error).partition("\n")[0]
                self.closed += [(s.label, why) for s in more]
                if not more:
                    break
            else:
                kept = trial
        if sketch is None:
            raise LabError("the sizes of this version cannot be open: {0}", why)
        return kept, sketch

    def _sketch(self, sliders: Sequence[Slider]) -> Sketch:
        trace = opened_trace(self._schedule.trace, sliders)
        return Sketch.of_concrete(trace.apply(self._schedule.original), _NAME)

    def _row(self, values: object) -> Rows:
        if not isinstance(values, (list, tuple)) or len(values) != len(self.sliders):
            raise LabError("expected {0} values, found {1!r:.80}", len(self.sliders), values)
        for slider, value in zip(self.sliders, values, strict=True):
            if type(value) is not int or value not in slider.values:
                raise LabError(
                    "{0} cannot be {1!r:.40}; there are {2}",
                    slider.label,
                    value,
                    ", ".join(map(str, slider.values)),
                )
        return np.array([values], np.int64)

    def _varied(self, row: Rows, n: int) -> Rows:
        rows = np.repeat(row, len(self.sliders[n].values), axis=0)
        rows[:, n] = self.sliders[n].values
        return rows

    def _around(self, valid: list[bool], seconds: list[float | None]) -> list[Data]:
        found, start = [], 1
        for slider in self.sliders:
            end = start + len(slider.values)
            found.append({"valid": valid[start:end], "predicted": seconds[start:end]})
            start = end
        return found

    def _broken(self, row: list[int], refusal: Refusal) -> Data:
        """The condition that a row breaks: as the step says it, else as the sketch knows it."""
        try:
            self.schedule(row)
        except ScheduleError as error:
            return refusal(error)
        known = dict(zip(self.sketch.variables, row, strict=True))
        broken = (c for c in self.sketch.space.constraints if not _holds(c.condition, known))
        first = next(broken)
        return refusal(ScheduleError(first.message, *first.arguments))


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


def _with_values(trace: Trace, sliders: Sequence[Slider], row: Sequence[int]) -> Trace:
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


def _sliders(schedule: Schedule) -> list[Slider]:
    """The numbers of a schedule, in the order in which its sketch decides them."""
    replayed = Schedule(schedule.original)
    trace, handles, found = schedule.trace, list[Any](), list[Slider]()
    funcs: list[Func] = []
    for number, step in enumerate(trace.steps):
        before, count = replayed.func, len(handles)
        funcs.append(before)
        handles += _flat(replayed.replay(step))
        for item, value in enumerate(step.decision):
            if value is not None:
                found.append(Slider(number, "", item, value, Ref("t", count + item)))
        for argument, place, size in [] if step.decision else _numbers(step):
            values = _values(size, _largest(step, handles, before))
            found.append(Slider(number, argument, place, size, None, values))
    uses = [_use_of(s, trace) for s in found]
    labels = [_label(trace, funcs, handles, use) for use in uses]
    told_apart = [
        _label(trace, funcs, handles, use, blocks=True) if labels.count(label) > 1 else label
        for use, label in zip(uses, labels, strict=True)
    ]
    return [replace(s, label=label) for s, label in zip(found, told_apart, strict=True)]


_Use: TypeAlias = tuple[int, str, int | None]
"""A step, an argument of it, and an item of that."""


def _use_of(slider: Slider, trace: Trace) -> _Use:
    """What has a number; of one that was sampled, what is the first to take it."""
    if slider.drawn is None:
        return slider.step, slider.argument, slider.item
    for number, step in enumerate(trace.steps):
        for name, value in step.arguments:
            if value == slider.drawn:
                return number, name, None
            if type(value) is tuple and slider.drawn in value:
                return number, name, value.index(slider.drawn)
    return slider.step, "", slider.item


def _flat(result: Any) -> list[Any]:
    """The outputs in the result of a step, in order."""
    if isinstance(result, tuple):
        return [v for part in result for v in _flat(part)]
    return [] if result is None else [result]


def _label(
    trace: Trace, funcs: Sequence[Func], handles: Sequence[Any], use: _Use, *, blocks: bool = False
) -> str:
    """A number in words: `split(i) factors[1]`, with the names in the text of the program that the
    step is taken of. Loops beside each other may have one name: `blocks` are those inside them,
    `split(i of C) factors[1]`."""
    number, argument, item = use
    step, func = trace.steps[number], funcs[number]
    refs = [r for _, v in step.arguments for r in (v if type(v) is tuple else (v,))]
    known = [handles[r.index] for r in refs if type(r) is Ref and r.kind in "lb"]
    names = loop_names(func)
    said = [names.get(h, h.name) + (_inside(h, func) if blocks else "") for h in known]
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
    found = {d for d in range(1, most + 1) if most % d == 0 or d & (d - 1) == 0 or d <= _SMALL}
    return tuple(sorted({*found, value}))


def _thinned(values: Sequence[int], value: int) -> tuple[int, ...]:
    """At most so many of the values as people can choose from, `value` among them."""
    step = -(-len(values) // _CHOICES)
    return tuple(sorted({*values[::step], values[-1], value}))


def _holds(condition: Expr, known: Mapping[Var, int]) -> bool:
    return bool(evaluate(condition, {v: np.array([n]) for v, n in known.items()})[()].all())
