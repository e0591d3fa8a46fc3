"""Sliders: the sizes of a version as open decisions, and what other values would give.

The sizes that people move are the numbers that steps take as a `Dim` (factors of `split` and
`tile`, say), and what sampling steps drew. A symbolic schedule is made of them once: from then on a
row of values is a candidate of a sketch, and its figures are those that the search computes. No
program is compiled for them.

A schedule that the search can make has the search's own sketch: what its rule fixed, such as the
lanes of vectors, stays fixed, and the limits of the rule say which values the search would not try.
Limits of any other schedule say what cannot be built for the target. In its sketch, numbers that
were chosen for each other are decided apart, and less can be proven of the program: of packed
panels, say, it may seem that they are read in no order. There the figures of a row are those of the
program that it makes, and each slider predicts other values only if programs of some of them are
predicted the same.

What rows of decisions give: predicted seconds, figures of the machine, what loops touch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np

from ...autotune.model.cpu.footprints import Evaluated
from ...autotune.model.loop_footprints import loop_bytes
from ...autotune.model.profile import profile
from ...autotune.model.target_model import Estimate, Estimator, TargetModel, model_for
from ...autotune.rules.user_rules import SKETCH_RULES
from ...autotune.search.candidates import Rows, Rowspace
from ...autotune.search.drawing import model_or_none
from ...autotune.search.sketch import Sketch, sketches
from ...base.errors import ScheduleError, TargetError, TuningError
from ...schedule import Schedule
from ...target import Target
from ...tir.columns import Program, Tape
from ...tir.evaluate import Columns, evaluate
from ...tir.ir import Buffer, Expr, Func, Var
from ...tir.printer import loop_names
from ..pictures.listing import held_in
from .program_tree import Data, held_data
from .slider_steps import Slider, opened_trace, sliders_of, with_values
from .versions import LabError

MOST = 24
"""Sliders of a version."""
_CHOICES = 96
"""Values of a slider, about."""
_NAME = "sliders"
FIXED = "the rule that made the schedule fixed it, and its other steps rest on it"
UNLIKE = "with sizes open, less can be proven of the program than of each row of numbers"
Refusal: TypeAlias = Callable[[ScheduleError], Data]


class Sliders:
    """The sliders of a concrete schedule. Raises `LabError` where it has no numbers to move.

    `closed` has the labels of those that cannot be open, with the reasons. A schedule that is
    `searched` has the sketch of a rule of the search.
    """

    def __init__(self, schedule: Schedule, target: Target) -> None:
        self._schedule, self._target = schedule, target
        sliders = sliders_of(schedule.original, schedule.trace)
        if not sliders:
            raise LabError(
                "this version has no sizes to move",
                hint="split or tile a loop first: their factors become sliders",
            )
        self.closed: list[tuple[str, str]] = []
        searched = _of_search(schedule, target)
        self.searched = searched is not None
        if searched is None:
            kept, sketch = self._opened(sliders)
            self.sketch = sketch.within(target)
        else:
            kept, self.sketch = [s for s in sliders if not s.argument], searched
            self.closed += [(s.label, FIXED) for s in sliders if s.argument]
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

        `valid` is whether the steps are legal; `error` has the condition that breaks. `pruned` are
        the limits of the search that do not hold. Sliders that predict nothing say why. Raises
        `LabError` for what is no row.
        """
        row = self._row(values)
        around = np.concatenate([row, *(self._varied(row, n) for n in range(len(self.sliders)))])
        settled, held = self._space.check(around), self._limits(around) != 0
        valid = settled | self._space_of_numbers.check(around)
        refused = None if settled[0] else self._refused(row[0].tolist())
        valid[0] = refused is None
        limits = [name for name, _ in self.sketch.prune]
        answer: Data = {
            "values": row[0].tolist(),
            "valid": bool(valid[0]),
            "pruned": [name for name, holds in zip(limits, held[0], strict=True) if not holds],
        }
        seconds: Sequence[float | None] | None = None
        unlike: Collection[int] = ()
        if refused is not None:
            answer["error"] = refusal(refused)
        if self._figures is not None:
            estimate = self._figures.estimate(around)
            seconds, unlike = estimate.seconds.tolist(), self._unlike
            open_too = (settled | ~valid).tolist()  # of the others the sketch says nothing
            seconds = [s if o else None for s, o in zip(seconds, open_too, strict=True)]
            if not valid[0] or (self.searched and settled[0]):
                answer |= self._figures.of(row)
            else:
                program = self._program(row)
                answer |= program.of(NO_DECISIONS)
                if not alike(program.estimate(NO_DECISIONS), self._figures.estimate(row)):
                    unlike = range(len(self.sliders))
            if not valid[0]:
                answer["predicted"] = None
        pruned = ~held.all(axis=1)
        answer["around"] = self._around(valid.tolist(), pruned.tolist(), seconds, unlike)
        return answer

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
        return with_values(self._schedule.trace, self.sliders, row).apply(self._schedule.original)

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
        return Rowspace(replace(self.sketch, prune=()))

    @cached_property
    def _space_of_numbers(self) -> Rowspace:
        """The space of the rows that steps may take though the sketch, which is open, has not."""
        space = self.sketch.space.copy()
        if all(c.of_numbers is None for c in space.constraints):
            return self._space
        space.constraints = [
            c if c.of_numbers is None else replace(c, condition=c.of_numbers)
            for c in space.constraints
        ]
        return Rowspace(replace(self.sketch, prune=(), space=space))

    def _refused(self, row: list[int]) -> ScheduleError | None:
        """The error of the step that refuses a row."""
        try:
            self.schedule(row)
        except ScheduleError as error:
            return error
        return None

    @cached_property
    def _limits(self) -> Columns:
        return Columns([condition for _, condition in self.sketch.prune], self.sketch.space.bounds)

    @cached_property
    def _figures(self) -> RowFigures | None:
        model = model_or_none(self._target)
        if model is None:
            return None
        return RowFigures(self.sketch.func, model, self._target, self.sketch.space.bounds)

    def _program(self, row: Rows) -> RowFigures:
        """The figures of the program that a row makes."""
        return RowFigures(
            self.schedule(row[0].tolist()).func, model_for(self._target), self._target
        )

    @cached_property
    def _unlike(self) -> Collection[int]:
        """The sliders whose predictions are those of programs for some values, but not for all.

        Programs are made of the least and the largest legal value and of those nearby.
        """
        if self.searched or self._figures is None:
            return ()
        return {n for n in range(len(self.sliders)) if not self._is_alike(n, self._figures)}

    def _is_alike(self, n: int, figures: RowFigures) -> bool:
        rows = self._varied(np.array([self.row]), n)
        rows = rows[self._space.check(rows)]
        here, last = int(np.searchsorted(rows[:, n], self.sliders[n].value)), len(rows) - 1
        for place in {0, max(here - 1, 0), min(here + 1, last), last} if len(rows) else ():
            row = rows[place : place + 1]
            try:
                exact = self._program(row).estimate(NO_DECISIONS)
            except ScheduleError:  # refused for these numbers, though not while they are open
                return False
            if not alike(exact, figures.estimate(row)):
                return False
        return True

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
                why = error.first_line
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

    def _around(
        self,
        valid: list[bool],
        pruned: list[bool],
        seconds: Sequence[float | None] | None,
        unlike: Collection[int],
    ) -> list[Data]:
        """What each slider says of its values; it has no predictions if it is one of `unlike`."""
        marks, start = list[Data](), 1
        for n, slider in enumerate(self.sliders):
            end = start + len(slider.values)
            known = None if seconds is None or n in unlike else seconds[start:end]
            marks.append(
                {
                    "valid": valid[start:end],
                    "pruned": pruned[start:end],
                    "predicted": known or [None] * len(slider.values),
                    "why": UNLIKE if n in unlike else None,
                }
            )
            start = end
        return marks


def _of_search(schedule: Schedule, target: Target) -> Sketch | None:
    """The sketch of the search that has a schedule among its candidates, if there is one."""
    if not schedule.trace.decisions:
        return None
    opened = schedule.trace.opened()
    made = _sketches(schedule.original, target, target.key, tuple(SKETCH_RULES.values()))
    return next((s for s in made if s.trace == opened), None)


@lru_cache(maxsize=4)
def _sketches(
    func: Func, target: Target, key: tuple[object, ...], rules: tuple[object, ...]
) -> tuple[Sketch, ...]:
    """The sketches of a program while `rules` are the user's; `key` is the target's."""
    del key, rules
    try:
        return sketches(func, target, inexact=True)
    except TargetError:  # a kind of target that has no rules
        return ()


def _thinned(values: Sequence[int], value: int) -> tuple[int, ...]:
    """At most so many of the values as people can choose from, `value` among them."""
    step = -(-len(values) // _CHOICES)
    return tuple(sorted({*values[::step], values[-1], value}))


def holds(condition: Expr, known: Mapping[Var, int]) -> bool:
    """Whether a condition on decisions holds for these values of them."""
    return bool(evaluate(condition, {v: np.array([n]) for v, n in known.items()})[()].all())


NO_DECISIONS: Rows = np.empty((1, 0), np.int64)
"""The one row of a concrete program."""


class RowFigures:
    """Those of a program whose decisions have `bounds`; of a concrete one by default."""

    def __init__(
        self,
        func: Func,
        model: TargetModel,
        target: Target,
        bounds: Mapping[Var, tuple[int, int]] | None = None,
    ) -> None:
        self._func, self._model, self._target = func, model, target
        self._profile = profile(func, bounds)

    @cached_property
    def estimate(self) -> Estimator:
        """The estimate of the model for many rows."""
        return self._model.estimator(self._profile, self._target)

    def of(self, row: Rows) -> Data:
        """The figures of one row as data."""
        estimate = self.estimate(row)
        figures = self._model.figures(estimate.features[0], self._target)
        return {
            "predicted": float(estimate.seconds[0]),
            "figures": [
                {"name": f.name, "value": f.value, "unit": f.unit, "of": f.of, "exceeds": f.exceeds}
                for f in figures
            ],
            "loops": self._loops(row),
        }

    def _loops(self, row: Rows) -> list[Data]:
        """What an iteration of each loop touches."""
        places, program = self._touched
        (_, numbers), *_ = program.run(np.ascontiguousarray(row.T), 1)
        touched: dict[Var, dict[Buffer, int]] = {}
        for (loop, buffer), number in zip(places, numbers, strict=True):
            touched.setdefault(loop, {})[buffer] = int(np.max(number))
        return [
            {
                "loop": name,
                "held": [held_data(h) for h in held_in(touched[loop], {}, self._target)],
            }
            for loop, name in loop_names(self._func).items()
            if loop in touched
        ]

    @cached_property
    def _touched(self) -> tuple[list[tuple[Var, Buffer]], Program]:
        """The buffers that each loop touches, and what computes how many bytes of them."""
        tape = Tape()
        numbers = {
            (loop, buffer): number
            for loop, buffers in loop_bytes(Evaluated(self._profile, tape)).items()
            for buffer, number in buffers.items()
        }
        return list(numbers), Program(tape, list(numbers.values()))


def alike(a: Estimate, b: Estimate) -> bool:
    """Whether two estimates of one row are the same, as far as their numbers are rounded."""
    return np.allclose(a.seconds, b.seconds, rtol=1e-9, atol=0) and np.allclose(
        a.features, b.features, rtol=0, atol=1e-4
    )
